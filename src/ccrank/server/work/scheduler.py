"""One forward pass for many requests.

Each request runs its method in a thread of its own, on a reader whose engine is a `SharedEngine`. What the method reads
comes here as a `Job`: inputs of the model and the points to read in them. One thread takes inputs of all waiting jobs,
by turns, up to a pass's number of tokens, and runs them as one batch of the model. So requests share passes, a request
of 10,000 items does not delay one of three, and between passes a request can be cancelled or run out of time.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ccrank.models.engine.backbone import Backbone
from ccrank.models.engine.engine import EngineLike, InputProgress
from ccrank.models.engine.layout import Sorted
from ccrank.models.engine.read_targets import EngineOutput, Inputs, Points
from ccrank.models.tokenize.ragged import ranges
from ccrank.models.tokenize.splice import common_prefix
from ccrank.server.work.worker_pool import Cancelled, Ticket
from ccrank.util.cancellation import POLL_SECONDS

log = logging.getLogger(__name__)

MIN_SHARE = 256
"""Minimum tokens of a job in a pass that others share: smaller parts would compute the prefixes of its prompts again,
and most jobs are smaller than this."""
MIN_STALL_SECONDS = 60.0
"""A shorter pass is never taken for one that hangs."""
STALL_FACTOR = 10.0
"""A pass hangs if it takes so much longer than the longest one before it."""
MAX_JOIN_SECONDS = 10.0
"""How long the end of the last pass is waited for when the server stops; a pass that hangs must not keep it alive."""


class Job:
    """The inputs and points of one call of `SharedEngine.run`, and what was read so far."""

    def __init__(self, ticket: Ticket, inputs: Inputs, points: Points, layers: Sequence[int]) -> None:
        self.ticket, self.inputs, self.points, self.layers = ticket, inputs, points, tuple(layers)
        self.output = EngineOutput.empty(points)
        self.news: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        """For the waiting thread: the number of inputs just read, or the error that ended the job."""
        self.place = 0
        """How many inputs of `order` were taken."""
        self.by_input = np.argsort(points.sequence, kind="stable")
        """Indices of the points, sorted by input."""
        self.edges = np.searchsorted(points.sequence[self.by_input], np.arange(len(inputs) + 1))
        """Where the points of each input start in `by_input`."""
        if inputs.sources is None or inputs.source_of is None:
            # In lexicographic order neighbours share prefixes.
            ordered = inputs.ordered or Sorted(inputs.tokens)
            self.order, shared, lengths = ordered.order, ordered.shared, inputs.tokens.lengths
        else:
            self.order = np.argsort(inputs.source_of, kind="stable")
            shared = np.zeros_like(self.order)
            lengths = inputs.tokens.lengths + inputs.sources.lengths[inputs.source_of]
        self._lengths: list[int] = lengths[self.order].tolist()
        self._shared: list[int] = shared.tolist()

    @property
    def left(self) -> bool:
        """Whether inputs remain to be taken."""
        return self.place < len(self.order)

    @property
    def next_tokens(self) -> list[int]:
        """The tokens of the next input."""
        tokens: list[int] = self.inputs.tokens[self.order[self.place]].tolist()
        return tokens

    def take(self, tokens: int) -> tuple[list[int], int]:
        """The next inputs, at least one, of about `tokens` distinct tokens; and the number of their distinct tokens.

        Like rows of a tree, a share grows up to twice the prefix that the next share would have to compute again.
        """
        start, size = self.place, 0
        while self.left:
            common = self._shared[self.place] if self.place > start else 0
            added = self._lengths[self.place] - common
            if self.place > start and size + added > max(tokens, 2 * common):
                break
            size += added
            self.place += 1
        return self.order[start : self.place].tolist(), size

    def points_of(self, inputs: np.ndarray) -> tuple[np.ndarray, Points]:
        """The points of these inputs: their indices, and themselves with the inputs numbered from 0."""
        counts = self.edges[inputs + 1] - self.edges[inputs]
        indices = self.by_input[ranges(self.edges[inputs], counts)]
        return indices, self.points.take(indices, np.repeat(np.arange(len(inputs)), counts))


@dataclass
class Share:
    """The inputs of one job in a pass."""

    job: Job
    inputs: list[int]


@dataclass(frozen=True)
class Pass:
    """What a pass was, for metrics."""

    requests: int
    tokens: int
    seconds: float


class Scheduler:
    """The thread that runs a model's forward passes."""

    def __init__(
        self,
        engine: EngineLike,
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
        self._longest = 0.0
        self._busy_since: float | None = None
        """When the last pass ended, or when the first job came after it; None while no job waits or is read."""
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

    def stalled(self, most: float) -> bool:
        """Whether jobs wait and no pass ends. Takes no lock, which may be what hangs.

        The bound is ten times the longest pass so far, at least a minute; `most` before the first pass, and at most.
        """
        since, longest = self._busy_since, self._longest
        bound = min(most, max(MIN_STALL_SECONDS, STALL_FACTOR * longest)) if longest else most
        return since is not None and time.monotonic() - since > bound

    def stop(self) -> None:
        """End the thread; waiting jobs are cancelled."""
        # Without the lock if that is what hangs: the process must end all the same.
        locked = self._changed.acquire(timeout=MAX_JOIN_SECONDS)
        self._stopping = True
        if locked:
            self._changed.notify()
            self._changed.release()
            self._thread.join(MAX_JOIN_SECONDS)
        if self._thread.is_alive():
            log.error("a forward pass did not end within %g s; stopping without it", MAX_JOIN_SECONDS)

    def read(
        self,
        ticket: Ticket,
        inputs: Inputs,
        points: Points,
        layers: Sequence[int],
        progress: InputProgress | None = None,
    ) -> EngineOutput:
        """Read points in passes that other requests may share; called in the request's own thread."""
        ticket.check()
        job = Job(ticket, inputs, points, layers)
        if not job.left:
            return job.output
        with self._changed:
            if self._stopping:
                raise Cancelled
            self._jobs.append(job)
            if self._busy_since is None:
                self._busy_since = time.monotonic()
            self._changed.notify()
        done = 0
        while done < len(job.order):
            try:
                news = job.news.get(timeout=POLL_SECONDS)
            except queue.Empty:
                ticket.check()  # also in the middle of a pass: what it still reads for this job is dropped
                continue
            if isinstance(news, BaseException):
                raise news
            done += news
            if progress is not None:
                progress(news, job.output)
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
                self._busy_since = time.monotonic() if self._jobs else None
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
        """Inputs of the waiting jobs, by turns, up to the budget of a pass; jobs that must stop are dropped.

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
            quantum = max(MIN_SHARE, budget // len(waiting))
            for job in waiting:
                taken, size = job.take(min(quantum, max(budget, 1)))
                shares.setdefault(id(job), Share(job, [])).inputs.extend(taken)
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
                    self._busy_since = time.monotonic()
                    self._run([share])
                return
            self._fail(shares[0].job, error)
            return
        # Before the requests are told, so that the metrics include the passes of every answer that was sent.
        seconds = time.monotonic() - start
        self._longest = max(self._longest, seconds)
        self._busy_since = time.monotonic()
        self.report(Pass(len(shares), computed, seconds))
        for share in shares:
            share.job.news.put(len(share.inputs))

    def _fail(self, job: Job, error: Exception) -> None:
        with self._changed:
            self._jobs = [waiting for waiting in self._jobs if waiting is not job]
        job.news.put(error)

    def _read(self, shares: Sequence[Share]) -> int:
        """Run the shares' inputs as one batch and hand each job its outputs; returns the computed tokens."""
        layers = sorted({layer for share in shares for layer in share.job.layers})
        numbers = [np.sort(share.inputs) for share in shares]
        parts = [share.job.points_of(inputs) for share, inputs in zip(shares, numbers, strict=True)]
        read = self.engine.run(
            Inputs.joined([share.job.inputs.take(part) for share, part in zip(shares, numbers, strict=True)]),
            Points.joined([points for _, points in parts], [len(inputs) for inputs in numbers]),
            layers,
        ).collect()
        start, total = 0, sum(map(len, numbers))
        for share, (indices, points) in zip(shares, parts, strict=True):
            output = share.job.output
            columns = [layers.index(layer) for layer in share.job.layers]
            output.store_part(indices, points.states, read, start, columns)
            output.computed += round(read.computed * len(share.inputs) / total)
            start += len(indices)
        return read.computed


class SharedEngine:
    """Stands in for a reader's engine: hands its work to a scheduler, on behalf of one request."""

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
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: InputProgress | None = None
    ) -> EngineOutput:
        """As `Engine.run`."""
        return self.scheduler.read(self.ticket, inputs, points, layers, progress)


def _with_alike_prompts_first(jobs: list[Job]) -> list[Job]:
    """The first job, then those whose next prompts share most tokens with its own: a pass computes these once."""
    if len(jobs) < 3 or jobs[0].inputs.sources is not None:  # encoders compute no common prefix
        return jobs
    head, *rest = jobs
    first = head.next_tokens
    return [head, *sorted(rest, key=lambda job: -common_prefix([first, job.next_tokens]))]
