"""Running requests in threads: who is let in, who waits, and how work ends early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from starlette.requests import Request

from ccrank.server.responses import RETRY_AFTER, RequestError
from ccrank.server.settings import ServerSettings
from ccrank.server.work.progress_events import Reports
from ccrank.server.work.request_cancellation import Ticket, TimedOut
from ccrank.util.cancellation import Stopped

T = TypeVar("T")
EVENT_SECONDS = 0.1
"""The least time between two progress events."""
PREPARE_THREADS = 4
"""Requests that are parsed and checked at the same time; bounds the memory that this takes."""
MAX_OVERDUE_SECONDS = 60.0
"""Work that must end does so at its next check, seconds later at most; after this time its thread hangs."""


class Workers:
    """Threads that work on requests, and the queue before them.

    Parameters
    ----------
    settings
        How many requests are worked on, how many wait, and for how long.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.tickets: set[Ticket] = set()
        """Requests that are worked on or wait; changed in the event loop only."""
        self._drained_at: float | None = None
        # A forward pass uses all cores; what methods compute besides is small, and slower on several threads.
        self._threads = ThreadPoolExecutor(
            settings.concurrency, "ccrank-worker", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._prepare_threads = ThreadPoolExecutor(PREPARE_THREADS, "ccrank-prepare")

    @property
    def active(self) -> int:
        """Requests that are worked on."""
        return min(len(self.tickets), self.settings.concurrency)

    @property
    def waiting(self) -> int:
        """Requests that wait for a thread."""
        return len(self.tickets) - self.active

    @property
    def full(self) -> bool:
        """Whether a further request is refused."""
        return len(self.tickets) >= self.settings.concurrency + self.settings.queue

    @property
    def stuck(self) -> bool:
        """Whether a thread has died, or does not end work that must end, as one that waits for a lock for ever."""
        alive = all(thread.is_alive() for thread in [*self._threads._threads])
        return not alive or any(ticket.overdue > MAX_OVERDUE_SECONDS for ticket in [*self.tickets])

    def drain(self, seconds: float) -> None:
        """Cancel all work that has not ended in so many seconds; called when the server is about to stop."""
        self._drained_at = time.monotonic() + seconds
        for ticket in [*self.tickets]:
            ticket.cancel(self._drained_at)

    def check_room(self) -> None:
        """Refuse a request if too many wait already."""
        if self.full:
            message = f"{len(self.tickets)} requests are waiting; try again later"
            raise RequestError(429, "too_many_requests", message, RETRY_AFTER)

    async def prepare(self, work: Callable[[], T]) -> T:
        """The result of `work`, in a thread: what a request is checked for, and whatever else grows with its body."""
        return await asyncio.get_running_loop().run_in_executor(self._prepare_threads, work)

    async def run(self, request: Request, work: Callable[[Ticket], T]) -> T:
        """The result of `work`, in a thread; a client that leaves, or the deadline, ends it."""
        self.check_room()
        ticket = Ticket(self.settings.timeout)
        watch = asyncio.ensure_future(_cancel_when_gone(request, ticket))
        try:
            return await self._start(ticket, work)
        except asyncio.CancelledError:
            # The server cancels requests that are not finished when its time to drain is over.
            raise _stopped() from None
        finally:
            watch.cancel()
            ticket.cancel()

    async def stream(self, work: Callable[[Ticket, Reports], T]) -> AsyncGenerator[tuple[str, Any], None]:
        """Events of `work`: ("progress", {"done": tokens, "total": tokens or None}), a few in a second, then ("result",
        what it returned).

        Where the work reports scores while it reads, ("partial", scores) as well: the latest ones. Closing the
        iterator, as a client does that leaves, ends the work.
        """
        ticket = Ticket(self.settings.timeout)
        reports = Reports()
        shown, scores = -1, None
        future = asyncio.ensure_future(self._start(ticket, lambda own: work(own, reports)))
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may interest nobody
        try:
            while not future.done():
                if reports.tokens != shown:
                    shown = reports.tokens
                    yield "progress", reports.progress()
                if reports.scores is not scores:
                    scores = reports.scores
                    yield "partial", scores
                await asyncio.wait([future], timeout=EVENT_SECONDS)
                if not future.done() and (reason := ticket.reason_to_stop()) is not None:
                    raise self._refusal(
                        reason
                    )  # at once, so that the client hears of it before the server closes
            yield "result", await future
        finally:
            ticket.cancel()

    async def _start(self, ticket: Ticket, work: Callable[[Ticket], T]) -> T:
        """Run the work in a thread. Its place is taken until the thread is done, whatever becomes of the client."""
        loop = asyncio.get_running_loop()
        self.tickets.add(ticket)
        if self._drained_at is not None:
            ticket.cancel(self._drained_at)
        running = loop.run_in_executor(self._threads, lambda: ticket.run(lambda: work(ticket)))
        running.add_done_callback(lambda _: self.tickets.discard(ticket))
        try:
            return await asyncio.shield(running)
        except Stopped as reason:
            raise self._refusal(type(reason)) from None

    def _refusal(self, reason: type[Stopped]) -> RequestError:
        if reason is not TimedOut:
            return _stopped()
        message = (
            f"the ranking took more than {self.settings.timeout:g} seconds and was stopped; send fewer items"
        )
        return RequestError(504, "timed_out", message)

    def stop(self) -> None:
        """Cancel all work and end the threads."""
        for ticket in [*self.tickets]:
            ticket.cancel()
        self._prepare_threads.shutdown(wait=True, cancel_futures=True)
        self._threads.shutdown(wait=True, cancel_futures=True)


def _stopped() -> RequestError:
    return RequestError(503, "stopped", "the server is stopping; try again later", RETRY_AFTER)


async def _cancel_when_gone(request: Request, ticket: Ticket) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
