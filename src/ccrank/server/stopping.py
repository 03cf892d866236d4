"""Stopping the work of one request, wherever it is.

A forward pass is not interrupted: the scheduler drops a stopped request between two passes. Other work of a method,
such as fitting a probe, is Python code in a thread; an exception is raised there between two instructions.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stopped(BaseException):
    """The request is over: its client is gone, its time is up, or the server stops.

    Not an `Exception`, so that no method takes it for a failure of one of its tasks.
    """


class Cancelled(Stopped):
    """The client is gone, or the server stops."""


class TimedOut(Stopped):
    """The deadline has passed."""


class Ticket:
    """One request's right to be worked on: it ends at the deadline, or when it is cancelled.

    Parameters
    ----------
    seconds
        The time until the deadline.
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self._cancelled = False
        self._thread: int | None = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Stop the work at the next opportunity."""
        self._cancelled = True
        self.interrupt()

    def reason_to_stop(self) -> type[Stopped] | None:
        """Why the work must stop; None if it may go on."""
        if self._cancelled:
            return Cancelled
        return TimedOut if time.monotonic() > self.deadline else None

    def check(self) -> None:
        """Raise `Stopped` if the work must stop."""
        if (reason := self.reason_to_stop()) is not None:
            raise reason

    def interrupt(self) -> None:
        """Raise the reason to stop, if there is one, in the thread that works on the request."""
        reason = self.reason_to_stop()
        with self._lock:
            if self._thread is not None and reason is not None:
                _raise_in(self._thread, reason)

    def run(self, work: Callable[[], T]) -> T:
        """Do the work in this thread, until it is done or must stop.

        Parameters
        ----------
        work
            What to do.
        """
        try:
            with self._lock:
                # Under the lock: whoever stops the work at this moment is either noticed here or knows the thread.
                self.check()
                self._thread = threading.get_ident()
            return work()
        finally:
            # First, since an exception may still be raised here: no later one must meet this thread's next request,
            # nor one that was asked for and not yet raised.
            self._thread = None
            with self._lock:
                _raise_in(threading.get_ident(), None)


def _raise_in(thread: int, reason: type[Stopped] | None) -> None:
    """Raise an exception in another thread before its next instruction; None takes back one that is pending."""
    what = None if reason is None else ctypes.py_object(reason)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
