"""Running requests in threads: who is let in, who waits, and how work ends early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import torch
from starlette.requests import Request

from ccrank.server.replies import RequestError
from ccrank.server.scheduler import Cancelled, Ticket, TimedOut
from ccrank.server.settings import ServerSettings

T = TypeVar("T")


class Reports:
    """What a thread says of its work; the event loop looks at it from time to time."""

    def __init__(self) -> None:
        self.tokens = 0
        """Tokens read so far."""
        self.scores: Mapping[str, float] | None = None
        """Scores of the items read so far, where they were asked for."""

    def __call__(self, tokens: int) -> None:
        self.tokens += tokens

    def partial(self, scores: Mapping[str, float]) -> None:
        """Take the scores so far.

        Parameters
        ----------
        scores
            By item.
        """
        self.scores = scores


class Workers:
    """Threads that work on requests, and the queue before them.

    Parameters
    ----------
    settings
        How many requests are worked on, how many wait, and for how long.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.active = 0
        """Requests that are worked on or wait; changed in the event loop only."""
        self.tickets: set[Ticket] = set()
        # A forward pass uses all cores; what methods compute besides is small, and slower on several threads.
        self._threads = ThreadPoolExecutor(
            settings.concurrency, "ccrank-worker", initializer=torch.set_num_threads, initargs=(1,)
        )

    @property
    def waiting(self) -> int:
        """Requests that wait for a thread."""
        return max(0, self.active - self.settings.concurrency)

    def admit(self) -> Ticket:
        """Let a request in; it must be handed to `run` or `stream`."""
        if self.active >= self.settings.concurrency + self.settings.queue:
            raise RequestError(
                429, "too_many_requests", f"{self.active} requests are waiting; try again later", 5
            )
        self.active += 1
        ticket = Ticket(self.settings.timeout)
        self.tickets.add(ticket)
        return ticket

    def release(self, ticket: Ticket) -> None:
        """A request that was let in is over.

        Parameters
        ----------
        ticket
            Its ticket.
        """
        self.active -= 1
        self.tickets.discard(ticket)

    async def run(self, request: Request, work: Callable[[Ticket], T]) -> T:
        """The result of `work`, in a thread; a client that leaves, or the deadline, ends it.

        Parameters
        ----------
        request
            The request, whose body has been read.
        work
            Given the request's ticket.
        """
        ticket = self.admit()
        watch = asyncio.ensure_future(_gone(request, ticket))
        try:
            return await self._in_thread(ticket, work)
        finally:
            ticket.cancel()
            watch.cancel()
            self.release(ticket)

    async def stream(self, work: Callable[[Ticket, Reports], T]) -> AsyncIterator[tuple[str, Any]]:
        """Events of `work`: ("progress", tokens so far), at most ten in a second, then ("result", what it returned).

        Where the work reports scores while it reads, ("partial", scores) as well: the latest ones.

        Closing the iterator ends the work.

        Parameters
        ----------
        work
            Given the request's ticket and a function that takes progress.
        """
        ticket = self.admit()
        try:
            reports = Reports()
            future = asyncio.ensure_future(self._in_thread(ticket, lambda own: work(own, reports)))
            shown, scores = -1, None
            while not future.done():
                if reports.tokens != shown:
                    shown = reports.tokens
                    yield "progress", shown
                if reports.scores is not scores:
                    scores = reports.scores
                    yield "partial", scores
                await asyncio.wait([future], timeout=0.1)
            yield "result", await future
        finally:
            ticket.cancel()
            self.release(ticket)

    async def _in_thread(self, ticket: Ticket, work: Callable[[Ticket], T]) -> T:
        def guarded() -> T:
            ticket.check()
            return work(ticket)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)
        except TimedOut:
            seconds = f"{self.settings.timeout:g}"
            raise RequestError(
                504, "timed_out", f"the ranking took more than {seconds} seconds; send fewer items", None
            ) from None
        except Cancelled:
            raise RequestError(503, "stopped", "the server is stopping; try again later", 5) from None

    def stop(self) -> None:
        """Cancel all work and end the threads."""
        for ticket in [*self.tickets]:
            ticket.cancel()
        self._threads.shutdown(wait=True, cancel_futures=True)


async def _gone(request: Request, ticket: Ticket) -> None:
    """Cancel the work when the client closes the connection."""
    with suppress(asyncio.CancelledError):
        while (await request.receive())["type"] != "http.disconnect":
            pass
        ticket.cancel()
