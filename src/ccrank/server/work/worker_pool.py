"""Running requests in threads: who is let in, who waits, and how work ends early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import torch
from starlette.requests import Request

from ccrank.server.replies import RETRY_AFTER, RequestError
from ccrank.server.settings import ServerSettings
from ccrank.server.stopping import Cancelled, Ticket, TimedOut
from ccrank.server.watching import Reports

T = TypeVar("T")
EVENT_SECONDS = 0.1
"""The least time between two progress events."""


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
        # A forward pass uses all cores; what methods compute besides is small, and slower on several threads.
        self._threads = ThreadPoolExecutor(
            settings.concurrency, "ccrank-worker", initializer=torch.set_num_threads, initargs=(1,)
        )

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

    def check_room(self) -> None:
        """Refuse a request if too many wait already."""
        if self.full:
            message = f"{len(self.tickets)} requests are waiting; try again later"
            raise RequestError(429, "too_many_requests", message, RETRY_AFTER)

    async def run(self, request: Request, work: Callable[[Ticket], T]) -> T:
        """The result of `work`, in a thread; a client that leaves, or the deadline, ends it.

        Parameters
        ----------
        request
            The request, whose body has been read.
        work
            Given the request's ticket.
        """
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

    async def stream(self, work: Callable[[Ticket, Reports], T]) -> AsyncIterator[tuple[str, Any]]:
        """Events of `work`: ("progress", tokens so far), a few in a second, then ("result", what it returned).

        Where the work reports scores while it reads, ("partial", scores) as well: the latest ones. Closing the
        iterator, as a client does that leaves, ends the work.

        Parameters
        ----------
        work
            Given the request's ticket and a function that takes progress.
        """
        ticket = Ticket(self.settings.timeout)
        reports = Reports()
        shown, scores = -1, None
        future = asyncio.ensure_future(self._start(ticket, lambda own: work(own, reports)))
        try:
            while not future.done():
                if reports.tokens != shown:
                    shown = reports.tokens
                    yield "progress", shown
                if reports.scores is not scores:
                    scores = reports.scores
                    yield "partial", scores
                await asyncio.wait([future], timeout=EVENT_SECONDS)
            yield "result", await future
        finally:
            ticket.cancel()
            with suppress(BaseException):
                await asyncio.shield(future)

    async def _start(self, ticket: Ticket, work: Callable[[Ticket], T]) -> T:
        """Run the work in a thread. Its place is taken until the thread is done, whatever becomes of the client."""
        loop = asyncio.get_running_loop()
        self.tickets.add(ticket)
        running = loop.run_in_executor(self._threads, lambda: ticket.run(lambda: work(ticket)))
        running.add_done_callback(lambda _: self.tickets.discard(ticket))
        alarm = loop.call_later(self.settings.timeout + 0.01, ticket.interrupt)
        try:
            return await asyncio.shield(running)
        except TimedOut:
            message = f"the ranking took more than {self.settings.timeout:g} seconds and was stopped; send fewer items"
            raise RequestError(504, "timed_out", message) from None
        except Cancelled:
            raise _stopped() from None
        finally:
            alarm.cancel()

    def stop(self) -> None:
        """Cancel all work and end the threads."""
        for ticket in [*self.tickets]:
            ticket.cancel()
        self._threads.shutdown(wait=True, cancel_futures=True)


def _stopped() -> RequestError:
    return RequestError(503, "stopped", "the server is stopping; try again later", RETRY_AFTER)


async def _cancel_when_gone(request: Request, ticket: Ticket) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
