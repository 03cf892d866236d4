"""Stopping the work of one request.

A ticket is a flag that the work looks at: the scheduler between two passes, and every long loop of a method through
`ccrank.util.cancellation.check`. Nothing is interrupted from outside, so that no lock can be left behind.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from ccrank.util.cancellation import Stopped, checked_by

T = TypeVar("T")


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
        self.begun = False
        """Whether a thread works on it, or did."""
        self._cancelled_at = math.inf

    def cancel(self, at: float | None = None) -> None:
        """Stop the work at its first check from now on, or from a later time on."""
        self._cancelled_at = min(self._cancelled_at, time.monotonic() if at is None else at)

    @property
    def overdue(self) -> float:
        """For how many seconds the work, if it has begun, has not ended although it must."""
        late = time.monotonic() - min(self._cancelled_at, self.deadline)
        return max(0.0, late) if self.begun else 0.0

    def reason_to_stop(self) -> type[Stopped] | None:
        """Why the work must stop; None if it may go on."""
        now = time.monotonic()
        if now >= self._cancelled_at:
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
