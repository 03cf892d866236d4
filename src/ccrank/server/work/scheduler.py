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

import numpy as np
import torch

from ccrank.models.engine.engine import EngineLike, InputProgress
from ccrank.models.engine.read_targets import EngineOutput, Inputs, Points
from ccrank.models.tokenize.ragged import common_prefix
from ccrank.server.work.worker_pool import Cancelled, Ticket
from ccrank.util.cancellation import POLL_SECONDS

log = logging.getLogger(__name__)

MIN_SHARE = 256
"""Minimum tokens of a job in a pass that others share: smaller parts would compute the prefixes of its prompts again,
and most jobs are smaller than this."""
MIN_STALL_SECONDS = 60.0
"""Shorter passes are never taken to hang."""
STALL_FACTOR = 10.0
"""A pass is taken to hang after this many times the duration of the longest one before it."""
MAX_JOIN_SECONDS = 10.0
"""Maximum wait for the last pass when the server stops: a pass that hangs must not keep it alive."""


class Job:
    """The inputs and points of one call of `SharedEngine.run`, and what was read so far."""

    def __init__(self, ticket: Ticket, inputs: Inputs, points: Points, layers: Sequence[int]) -> None:
        self.ticket, self.inputs, self.points, self.layers = ticket, inputs, points, tuple(layers)
        self.output = EngineOutput.empty(points)
        self.events: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        """For the waiting thread: the number of inputs just read, or the error that ended the job."""
        self.taken = 0
        """How many inputs of `order` were taken."""
        if inputs.sources is None or inputs.source_of is None:
            # In lexicographic order neighbours share prefixes.
            ordered = inputs.ordered
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
        return self.taken < len(self.order)

    def take(self, tokens: int) -> tuple[np.ndarray, int]:
        """The next inputs, at least one, of about `tokens` distinct tokens; and the number of their distinct tokens.

        Like rows of a tree, a share grows up to twice the prefix that the next share would have to compute again.
        """
        start, size = self.taken, 0
        while self.left:
            common = self._shared[self.taken] if self.taken > start else 0
            added = self._lengths[self.taken] - common
            if self.taken > start and size + added > max(tokens, 2 * common):
                break
            size += added
            self.taken += 1
        return self.order[start : self.taken], size

    def points_of(self, inputs: np.ndarray) -> tuple[np.ndarray, Points]:
        """The points of these inputs: their indices, and themselves with the inputs numbered from 0."""
        numbers = np.full(len(self.order), -1)
        numbers[inputs] = np.arange(len(inputs))
        sequence = numbers[self.points.sequence]
        indices = np.flatnonzero(sequence >= 0)
        return indices, self.points.take(indices, sequence[indices])


Shares = dict[Job, np.ndarray]
"""The inputs of each job in a pass, in ascending order."""


class Scheduler:
    """The thread that runs a model's forward passes.

    Nothing but `events` and `_new` goes from thread to thread, so that no lock can be held by what hangs.
    """

    def __init__(
        self,
        engine: EngineLike,
        threads: int | None = None,
        report: Callable[[int, int, float], None] = lambda *_: None,
    ) -> None:
        self.engine = engine
        self.threads = threads or torch.get_num_threads()
        self.report = report
        """Called after each pass with its requests, its computed tokens and its seconds."""
        self._new: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """Jobs that the thread has not seen; None ends it."""
        self._jobs: list[Job] = []
        """Jobs with inputs that no pass has taken; the thread alone changes it."""
        self._longest = 0.0
        self._pass_began: float | None = None
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._loop, args=(started,), name="ccrank-scheduler", daemon=True
        )
        self._thread.start()
        started.wait()

    @property
    def alive(self) -> bool:
        """Whether passes are run."""
        return self._thread.is_alive()

    def stalled(self, most: float) -> bool:
        """Whether a pass does not end: after ten times the longest one so far, at least a minute; after `most` before
        the first pass, and at most."""
        since, longest = self._pass_began, self._longest
        bound = min(most, max(MIN_STALL_SECONDS, STALL_FACTOR * longest)) if longest else most
        return since is not None and time.monotonic() - since > bound

    def stop(self) -> None:
        """End the thread; requests that still wait find out by themselves."""
        self._new.put(None)
        self._thread.join(MAX_JOIN_SECONDS)
        if self.alive:
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
        if job.left:
            self._new.put(job)
        done = 0
        while done < len(job.order):
            try:
                event = job.events.get(timeout=POLL_SECONDS)
            except queue.Empty:
                ticket.check()  # also in the middle of a pass: what it still reads for this job is dropped
                if not self.alive:
                    raise Cancelled from None
                continue
            if isinstance(event, BaseException):
                raise event
            done += event
            if progress is not None:
                progress(event, job.output)
        return job.output

    def _loop(self, started: threading.Event) -> None:
        # Torch takes over the process-wide number in a thread's first operation or question, and keeps it from then on.
        # Asking here keeps this thread's number when workers set theirs.
        torch.set_num_threads(self.threads)
        torch.get_num_threads()
        started.set()
        while True:
            while not self._jobs or not self._new.empty():
                job = self._new.get()
                if job is None:
                    return
                self._jobs.append(job)
            if shares := self._next_pass():
                self._run(shares)

    def _next_pass(self) -> Shares:
        """Inputs of the waiting jobs, by turns, up to the budget of a pass; jobs that must stop are dropped.

        Jobs that were served go to the back, so the first is the one that has waited longest.
        """
        jobs = [job for job in self._jobs if job.left and job.ticket.reason_to_stop() is None]
        waiting = _with_alike_prompts_first(jobs)
        served: dict[Job, list[np.ndarray]] = {}
        budget = self.engine.budget
        while waiting and budget > 0:
            quantum = max(MIN_SHARE, budget // len(waiting))
            for job in waiting:
                taken, size = job.take(min(quantum, max(budget, 1)))
                served.setdefault(job, []).append(taken)
                budget -= size
                if budget <= 0:
                    break
            waiting = [job for job in waiting if job.left]
        rest = [job for job in jobs if job not in served]
        self._jobs = [job for job in (*rest, *served) if job.left]
        return {job: np.sort(np.concatenate(parts)) for job, parts in served.items()}

    def _run(self, shares: Shares) -> None:
        """One pass. If it fails, each job is read alone, so that only the one at fault fails."""
        start = self._pass_began = time.monotonic()
        try:
            computed = self._read(shares)
        except Exception as error:
            if len(shares) > 1:
                kind = type(error).__name__
                log.warning("a pass of %d requests failed (%s); reading them one by one", len(shares), kind)
                for job, inputs in shares.items():
                    self._run({job: inputs})
            else:
                [job] = shares
                job.taken = len(job.order)
                job.events.put(error)
        else:
            # Before the requests go on, so that the metrics include the passes of every answer that was sent.
            seconds = time.monotonic() - start
            self._longest = max(self._longest, seconds)
            self.report(len(shares), computed, seconds)
            for job, inputs in shares.items():
                job.events.put(len(inputs))
        self._pass_began = None

    def _read(self, shares: Shares) -> int:
        """Run the shares as one batch and hand each job its outputs; returns the computed tokens."""
        layers = sorted({layer for job in shares for layer in job.layers})
        parts = [job.points_of(inputs) for job, inputs in shares.items()]
        read = self.engine.run(
            Inputs.joined([job.inputs.take(inputs) for job, inputs in shares.items()]),
            Points.joined([points for _, points in parts], [len(inputs) for inputs in shares.values()]),
            layers,
        ).collect()
        start, total = 0, sum(map(len, shares.values()))
        for (job, inputs), (indices, points) in zip(shares.items(), parts, strict=True):
            columns = [layers.index(layer) for layer in job.layers]
            job.output.store_part(indices, points.states, read, start, columns)
            job.output.computed += round(read.computed * len(inputs) / total)
            start += len(indices)
        return read.computed


class SharedEngine:
    """Stands in for a reader's engine: hands its work to a scheduler, on behalf of one request."""

    def __init__(self, scheduler: Scheduler, ticket: Ticket) -> None:
        self.scheduler, self.ticket = scheduler, ticket
        self.backbone, self.tree = scheduler.engine.backbone, scheduler.engine.tree

    @property
    def budget(self) -> int:
        return self.scheduler.engine.budget

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: InputProgress | None = None
    ) -> EngineOutput:
        return self.scheduler.read(self.ticket, inputs, points, layers, progress)


def _with_alike_prompts_first(jobs: list[Job]) -> list[Job]:
    """The first job, then those whose next prompts share most tokens with its own: a pass computes these once."""
    if len(jobs) < 3 or jobs[0].inputs.sources is not None:  # encoders compute no common prefix
        return jobs
    first, *following = (job.inputs.tokens[job.order[job.taken]].tolist() for job in jobs)
    shared = [common_prefix([first, tokens]) for tokens in following]
    return [jobs[0], *(jobs[1 + index] for index in np.argsort(-np.array(shared), kind="stable"))]
