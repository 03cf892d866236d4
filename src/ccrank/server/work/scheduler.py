"""One forward pass for many requests.

Each request runs its method in a thread of its own, on a reader whose engine is a `SharedEngine`. What the method reads
comes here as a `Job`: token sequences and the points to read in them. One thread takes sequences of all waiting jobs,
by turns, up to a pass's number of tokens, and runs them as one batch of the model. So requests share passes, a request
of 10,000 items does not delay one of three, and between passes a request can be cancelled or run out of time.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ccrank.lm.backbone import Backbone
from ccrank.lm.engine import Progress
from ccrank.lm.listed import ListedEngine, Point, PointOutputs, as_arrays, as_lists
from ccrank.lm.points import EngineOutput, Inputs, Points
from ccrank.lm.tree import shared_prefix
from ccrank.server.stopping import Cancelled, Ticket

log = logging.getLogger(__name__)

LEAST_SHARE = 256
"""Tokens that a job gets of a pass at least while others wait: cutting a job finer repeats the prefixes that its
prompts share, and most jobs are smaller than this."""


@dataclass(eq=False)
class Job:
    """The sequences and points of one call of `SharedEngine.run`, and what was read so far."""

    ticket: Ticket
    sequences: Sequence[Any]
    points: Sequence[Point]
    layers: tuple[int, ...]
    output: PointOutputs
    order: list[int]
    """Sequences in lexicographic order, so that neighbours share prefixes."""
    by_sequence: dict[int, list[int]]
    """Sequence → its points."""
    news: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    """For the waiting thread: the number of sequences just read, or the error that ended the job."""
    place: int = 0
    """How many sequences of `order` were taken."""

    @classmethod
    def of(
        cls, ticket: Ticket, sequences: Sequence[Any], points: Sequence[Point], layers: Sequence[int]
    ) -> Job:
        by_sequence: dict[int, list[int]] = {}
        for index, point in enumerate(points):
            by_sequence.setdefault(point.sequence, []).append(index)
        output = PointOutputs(
            [np.zeros(0, np.float32)] * len(points), np.zeros(len(points), np.float32), [None] * len(points)
        )
        order = sorted(by_sequence, key=lambda index: sequences[index])
        return cls(ticket, sequences, points, tuple(layers), output, order, by_sequence)

    @property
    def left(self) -> bool:
        """Whether sequences remain to be taken."""
        return self.place < len(self.order)

    def take(self, tokens: int) -> tuple[list[int], int]:
        """The next sequences of about so many distinct tokens, at least one; and their distinct tokens.

        Like rows of a tree, a share grows up to twice the prefix that the next share would have to compute again.
        """
        taken: list[int] = []
        size = 0
        while self.left:
            index = self.order[self.place]
            common = _shared(self.sequences[taken[-1]], self.sequences[index]) if taken else 0
            added = _length(self.sequences[index]) - common
            if taken and size + added > max(tokens, 2 * common):
                break
            taken.append(index)
            size += added
            self.place += 1
        return taken, size


@dataclass
class Share:
    """The sequences of one job in a pass."""

    job: Job
    sequences: list[int]


@dataclass(frozen=True)
class Pass:
    """What a pass was, for metrics."""

    requests: int
    tokens: int
    seconds: float


class Scheduler:
    """The thread that runs a model's forward passes.

    Parameters
    ----------
    engine
        Runs the passes; its `budget` is the size of a pass.
    threads
        Torch's threads in a pass; None keeps torch's default.
    report
        Called after each pass.
    """

    def __init__(
        self,
        engine: ListedEngine,
        threads: int | None = None,
        report: Callable[[Pass], None] = lambda _: None,
    ) -> None:
        self.engine = engine
        self.threads = threads or torch.get_num_threads()
        self.report = report
        self._jobs: list[Job] = []
        self._in_pass: list[Job] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="ccrank-scheduler", daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        self._ready.wait()

    @property
    def alive(self) -> bool:
        """Whether passes are run."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a pass."""
        with self._changed:  # not in the middle of choosing a pass
            return len(self._jobs)

    def stop(self) -> None:
        """End the thread; waiting jobs are cancelled."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def read(
        self,
        ticket: Ticket,
        sequences: Sequence[Any],
        points: Sequence[Point],
        layers: Sequence[int],
        progress: Progress | None = None,
    ) -> PointOutputs:
        """Read points in passes that other requests may share; called in the request's own thread.

        Parameters
        ----------
        ticket
            Ends the reading when it is cancelled or its deadline passes.
        sequences, points, layers, progress
            As of `Engine.run`.
        """
        ticket.check()
        job = Job.of(ticket, sequences, points, layers)
        if not job.order:
            return job.output
        with self._changed:
            if self._stopping:
                raise Cancelled
            self._jobs.append(job)
            self._changed.notify()
        done = 0
        while done < len(job.order):
            news = job.news.get()
            if isinstance(news, BaseException):
                raise news
            done += news
            if progress is not None:
                progress(news)
        return job.output

    def _loop(self) -> None:
        try:
            self._passes()
        except BaseException as error:
            log.error("the scheduler failed: %s", type(error).__name__)
            with self._changed:
                self._stopping = True
                for job in {*self._jobs, *self._in_pass}:
                    job.news.put(RuntimeError("the scheduler failed"))
                self._jobs.clear()
            raise

    def _passes(self) -> None:
        # Torch takes over the process-wide number in a thread's first operation or question, and keeps it from then on.
        # Asking here keeps this thread's number when workers set theirs.
        torch.set_num_threads(self.threads)
        torch.get_num_threads()
        self._ready.set()
        while True:
            with self._changed:
                while not self._jobs and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    for job in self._jobs:
                        job.news.put(Cancelled())
                    self._jobs.clear()
                    return
                shares = self._next_pass()
            self._in_pass = [share.job for share in shares]
            if shares:
                self._run(shares)

    def _next_pass(self) -> list[Share]:
        """Sequences of the waiting jobs, by turns, up to the budget of a pass; jobs that must stop are dropped.

        Jobs that were served go to the back, so the first is the one that has waited longest.
        """
        for job in self._jobs:
            if (reason := job.ticket.reason_to_stop()) is not None:
                job.news.put(reason())
                job.place = len(job.order)
        waiting = _with_alike_prompts_first([job for job in self._jobs if job.left])
        shares: dict[int, Share] = {}
        budget = self.engine.budget
        while waiting and budget > 0:
            quantum = max(LEAST_SHARE, budget // len(waiting))
            for job in waiting:
                taken, size = job.take(min(quantum, max(budget, 1)))
                shares.setdefault(id(job), Share(job, [])).sequences.extend(taken)
                budget -= size
                if budget <= 0:
                    break
            waiting = [job for job in waiting if job.left]
        served = [share.job for share in shares.values()]
        rest = [job for job in self._jobs if job not in served]
        self._jobs = [job for job in (*rest, *served) if job.left]
        return [*shares.values()]

    def _run(self, shares: Sequence[Share]) -> None:
        """One pass. If it fails, each job is read alone, so that only the one at fault fails."""
        start = time.monotonic()
        try:
            computed = self._read(shares)
        except Exception as error:
            if len(shares) > 1:
                log.warning(
                    "a pass of %d requests failed (%s); reading them one by one",
                    len(shares),
                    type(error).__name__,
                )
                for share in shares:
                    self._run([share])
                return
            self._fail(shares[0].job, error)
            return
        # Before the requests learn of it: whoever has an answer finds its passes in the metrics.
        self.report(Pass(len(shares), computed, time.monotonic() - start))
        for share in shares:
            share.job.news.put(len(share.sequences))

    def _fail(self, job: Job, error: Exception) -> None:
        with self._changed:
            self._jobs = [one for one in self._jobs if one is not job]
        job.news.put(error)

    def _read(self, shares: Sequence[Share]) -> int:
        """Run the shares' sequences as one batch and hand each job its outputs; returns the computed tokens."""
        layers = sorted({layer for share in shares for layer in share.job.layers})
        column = {layer: place for place, layer in enumerate(layers)}
        sequences: list[Any] = []
        points: list[Point] = []
        owners: list[tuple[Job, int]] = []
        for share in shares:
            job = share.job
            for index in share.sequences:
                place = len(sequences)
                sequences.append(job.sequences[index])
                for own in job.by_sequence[index]:
                    point = job.points[own]
                    points.append(
                        Point(
                            place,
                            point.position,
                            point.token_ids,
                            point.normaliser,
                            point.states,
                            point.encoder,
                        )
                    )
                    owners.append((job, own))
        read = self.engine.run(sequences, points, layers)
        for place, (job, own) in enumerate(owners):
            job.output.token_logits[own] = read.token_logits[place]
            job.output.normalisers[own] = read.normalisers[place]
            states = read.states[place]
            if states is not None:
                wanted = [column[layer] for layer in job.layers]
                job.output.states[own] = states if len(wanted) == len(layers) else states[wanted]
        total = max(1, sum(len(share.sequences) for share in shares))
        for share in shares:
            share.job.output.computed += round(read.computed * len(share.sequences) / total)
        return read.computed


class SharedEngine:
    """Stands in for a reader's engine: hands its work to a scheduler, on behalf of one request.

    Parameters
    ----------
    scheduler
        Runs the passes.
    ticket
        The request.
    """

    def __init__(self, scheduler: Scheduler, ticket: Ticket) -> None:
        self.scheduler, self.ticket = scheduler, ticket

    @property
    def backbone(self) -> Backbone:
        """The model's layers."""
        return self.scheduler.engine.backbone

    @property
    def tree(self) -> bool:
        """Whether sequences are packed as prefix trees."""
        return self.scheduler.engine.tree

    @property
    def budget(self) -> int:
        """Token positions of a pass."""
        return self.scheduler.engine.budget

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: Progress | None = None
    ) -> EngineOutput:
        """As `Engine.run`.

        Parameters
        ----------
        inputs, points, layers, progress
            As of `Engine.run`.
        """
        sequences, listed = as_lists(inputs, points)
        return as_arrays(self.scheduler.read(self.ticket, sequences, listed, layers, progress), points)


def _with_alike_prompts_first(jobs: list[Job]) -> list[Job]:
    """The first job, then those whose next prompts share most tokens with its own: a pass computes these once."""
    if len(jobs) < 3:
        return jobs
    head, *rest = jobs
    first = head.sequences[head.order[head.place]]
    return [head, *sorted(rest, key=lambda job: -_shared(first, job.sequences[job.order[job.place]]))]


def _length(sequence: Any) -> int:
    return (
        len(sequence[0]) + len(sequence[1]) if sequence and isinstance(sequence[0], tuple) else len(sequence)
    )


def _shared(first: Any, second: Any) -> int:
    """The tokens that two sequences share; those of encoder-decoder models share none."""
    return 0 if first and isinstance(first[0], tuple) else shared_prefix(first, second)
