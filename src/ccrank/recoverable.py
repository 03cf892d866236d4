"""Errors that concern one task of many: they are recorded, and the other tasks continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ccrank.errors import CcrankError, UnavailableError

RECOVERABLE_ERRORS = (CcrankError, ArithmeticError, ValueError, RuntimeError)
"""Bad input and numerical failure (including those of numpy and torch). Any other exception is a bug and ends the
run."""

Member = TypeVar("Member")
Result = TypeVar("Result")


def reason_of(error: BaseException) -> str:
    """The reason of a failure on one line."""
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, CcrankError) else f"{type(error).__name__}: {text}"


def isolate_failures(
    members: Sequence[Member],
    work: Callable[[Sequence[Member]], list[Result]],
    failures: dict[Member, str],
    *,
    pooled: bool = False,
) -> list[Result]:
    """Process all members together; if that fails, find those that fail individually and process the rest together.

    A model that cannot be read at all is no member's fault: that error is raised.

    Parameters
    ----------
    members
        The members to process, such as indices of tasks.
    work
        Returns one result per member.
    failures
        Filled with the reason for each member that failed.
    pooled
        The work fits one model to all members, so a failure cannot be attributed to one of them: all fail.
    """
    if not members:
        return []
    try:
        return work(members)
    except UnavailableError:
        raise
    except RECOVERABLE_ERRORS as error:
        reason = reason_of(error)
    if pooled or len(members) == 1:
        failures.update(dict.fromkeys(members, reason))
        return []
    good = []
    for member in members:
        try:
            work([member])
            good.append(member)
        except UnavailableError:
            raise
        except RECOVERABLE_ERRORS as error:
            failures[member] = reason_of(error)
    if len(good) == len(members):  # each succeeds individually, but not together
        failures.update(dict.fromkeys(members, reason))
        return []
    return isolate_failures(good, work, failures, pooled=pooled)
