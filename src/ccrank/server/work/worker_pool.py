"""Running requests in threads: admission, waiting, and how work ends early.

A ticket is a flag that the work checks: the scheduler between two passes, and every long loop of a method through
`ccrank.util.cancellation.check`. Nothing is interrupted from outside, so that no lock can be left behind.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import torch
from starlette.requests import Request

from ccrank.server.responses import RETRY_AFTER, RequestError
from ccrank.server.settings import ServerSettings
from ccrank.util.cancellation import Stopped, checked_by

T = TypeVar("T")
EVENT_SECONDS = 0.1
"""The least time between two progress events."""
PREPARE_THREADS = 4
"""Requests that are parsed and checked at the same time; bounds the memory that this takes."""
MAX_OVERDUE_SECONDS = 60.0
"""Work that must end does so at its next check, seconds later at most; after this time its thread hangs."""


class Cancelled(Stopped):
    """The client is gone, or the server stops."""


class TimedOut(Stopped):
    """The deadline has passed."""


class Ticket:
    """Permission to work on one request, until its deadline or until it is cancelled; and what the work reports, which
    the event loop polls."""

    def __init__(self, seconds: float, streamed: bool = False) -> None:
        self.deadline = time.monotonic() + seconds
        self.streamed = streamed
        """Whether reports are wanted."""
        self.tokens = 0
        """Tokens read so far."""
        self.total: int | None = None
        """About how many will be read, where that is known."""
        self.scores: Mapping[str, float] | None = None
        """Scores of the items read so far, where they were asked for."""
        self.begun = False
        """Whether a thread works on it, or did."""
        self.cancelled_at = math.inf

    def progress(self, tokens: int) -> None:
        self.tokens += tokens

    def partial(self, scores: Mapping[str, float]) -> None:
        self.scores = scores

    def cancel(self, at: float | None = None) -> None:
        """Stop the work at its first check from now on, or from a later time on."""
        self.cancelled_at = min(self.cancelled_at, time.monotonic() if at is None else at)

    def reason_to_stop(self) -> type[Stopped] | None:
        """Why the work must stop; None if it may go on."""
        now = time.monotonic()
        if now >= self.cancelled_at:
            return Cancelled
        return TimedOut if now > self.deadline else None

    def check(self) -> None:
        """Raise `Stopped` if the work must stop."""
        if (reason := self.reason_to_stop()) is not None:
            raise reason

    def run(self, work: Callable[[], T]) -> T:
        """Do the work in this thread, until it is done or a check finds that it must stop."""
        self.check()
        self.begun = True
        with checked_by(self.check):
            return work()


Work: TypeAlias = Callable[[Ticket], T]
"""What a checked request asks for, in a thread."""


class Workers:
    """Threads that work on requests, and the queue before them."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.tickets: set[Ticket] = set()
        """Requests that are worked on or wait; changed in the event loop only."""
        self._drained_at = math.inf
        # A forward pass uses all cores; what methods compute besides is small, and slower on several threads.
        self._threads = ThreadPoolExecutor(
            settings.concurrency, "ccrank-worker", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._prepare_threads = ThreadPoolExecutor(PREPARE_THREADS, "ccrank-prepare")

    @property
    def full(self) -> bool:
        """Whether a further request is refused."""
        return len(self.tickets) >= self.settings.concurrency + self.settings.queue

    @property
    def stuck(self) -> bool:
        """Whether a thread has died, or goes on with work that must end, such as one that waits for a lock for ever."""
        alive = all(thread.is_alive() for thread in [*self._threads._threads])
        most = time.monotonic() - MAX_OVERDUE_SECONDS
        return not alive or any(
            ticket.begun and min(ticket.cancelled_at, ticket.deadline) < most for ticket in [*self.tickets]
        )

    def drain(self, seconds: float) -> None:
        """Cancel all work that takes longer than this; called when the server is about to stop."""
        self._drained_at = time.monotonic() + seconds
        for ticket in [*self.tickets]:
            ticket.cancel(self._drained_at)

    def check_room(self) -> None:
        """Refuse a request if too many wait already."""
        if self.full:
            message = f"{len(self.tickets)} requests are waiting; try again later"
            raise RequestError(429, "too_many_requests", message, RETRY_AFTER)

    async def prepare(self, work: Callable[[], T]) -> T:
        """The result of `work` in a thread, for checks and other steps whose time grows with the body."""
        return await asyncio.get_running_loop().run_in_executor(self._prepare_threads, work)

    async def run(self, request: Request, work: Work[T]) -> T:
        """The result of `work`, in a thread; a client that leaves, or the deadline, ends it."""
        ticket = Ticket(self.settings.timeout)
        watch = asyncio.ensure_future(_cancel_when_gone(request, ticket))
        try:
            return await self._start(ticket, work)
        except asyncio.CancelledError:
            # The server cancels requests that are not finished when its time to drain is over.
            raise self._refusal(Cancelled) from None
        finally:
            watch.cancel()
            ticket.cancel()

    async def stream(self, work: Work[T]) -> AsyncGenerator[tuple[str, Any], None]:
        """Events of `work`: ("progress", {"done": tokens, "total": tokens or None}), a few in a second, then ("result",
        what it returned).

        Where the work reports scores while it reads, ("partial", scores) as well: the latest ones. Closing the
        iterator, as a client does that leaves, ends the work.
        """
        ticket = Ticket(self.settings.timeout, streamed=True)
        shown, scores = -1, None
        future = asyncio.ensure_future(self._start(ticket, work))
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may never be awaited
        try:
            while not future.done():
                if ticket.tokens != shown:
                    shown = ticket.tokens
                    total = None if ticket.total is None else max(ticket.total, shown)
                    yield "progress", {"done": shown, "total": total}
                if ticket.scores is not scores:
                    scores = ticket.scores
                    yield "partial", scores
                await asyncio.wait([future], timeout=EVENT_SECONDS)
                if not future.done() and (reason := ticket.reason_to_stop()) is not None:
                    # At once, so that the client hears of it before the server closes.
                    raise self._refusal(reason)
            yield "result", await future
        finally:
            ticket.cancel()

    async def _start(self, ticket: Ticket, work: Work[T]) -> T:
        """Run the work in a thread. The request is active until its thread is done, even if its client has left."""
        self.tickets.add(ticket)
        ticket.cancel(self._drained_at)
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, lambda: ticket.run(lambda: work(ticket)))
        running.add_done_callback(lambda _: self.tickets.discard(ticket))
        try:
            return await asyncio.shield(running)
        except Stopped as reason:
            raise self._refusal(type(reason)) from None

    def _refusal(self, reason: type[Stopped]) -> RequestError:
        if reason is TimedOut:
            took = f"the ranking took more than {self.settings.timeout:g} seconds"
            return RequestError(504, "timed_out", f"{took} and was stopped; send fewer items")
        return RequestError(503, "stopped", "the server is stopping; try again later", RETRY_AFTER)

    def stop(self) -> None:
        """Cancel all work and end the threads."""
        self.drain(0.0)
        self._prepare_threads.shutdown(wait=True, cancel_futures=True)
        self._threads.shutdown(wait=True, cancel_futures=True)


async def _cancel_when_gone(request: Request, ticket: Ticket) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
