"""Cooperative cancellation: long loops ask whether their work is still wanted.

The caller sets the function that is asked (`checked_by`); loops whose length grows with the input call `check`. Outside
of `checked_by`, as on the command line, `check` does nothing. No exception is ever raised from another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

_check: ContextVar[Callable[[], None] | None] = ContextVar("ccrank_check", default=None)

POLL_SECONDS = 0.25
"""How often a thread that waits looks whether its work is still wanted."""


class Stopped(BaseException):
    """The work is no longer wanted.

    Not an `Exception`, so that no method takes it for a failure of one of its tasks.
    """


@contextmanager
def checked_by(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block, and in copies of its context, `check` calls `stop`, which raises `Stopped` to end the work."""
    token = _check.set(stop)
    try:
        yield
    finally:
        _check.reset(token)


def check() -> None:
    """Raise `Stopped` if the work must end here; takes less than a microsecond."""
    stop = _check.get()
    if stop is not None:
        stop()


@contextmanager
def held(lock: Lock) -> Iterator[None]:
    """Hold a lock that other work may hold for long; while waiting for it, look whether the work must end."""
    while not lock.acquire(timeout=POLL_SECONDS):
        check()
    try:
        yield
    finally:
        lock.release()
