"""Errors that concern one task of many: they are recorded, and the other tasks go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ccrank.errors import CcrankError

RECOVERABLE_ERRORS = (CcrankError, ArithmeticError, ValueError, RuntimeError)
"""Bad input and numerical failure (numpy's and torch's included). Anything else is a bug and ends the run."""

Member = TypeVar("Member")
Result = TypeVar("Result")


def reason_of(error: BaseException) -> str:
    """One line for the list of failures."""
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, CcrankError) else f"{type(error).__name__}: {text}"


def isolate_failures(
    members: Sequence[Member],
    work: Callable[[Sequence[Member]], list[Result]],
    failures: dict[Member, str],
    *,
    pooled: bool = False,
) -> list[Result]:
    """Work on all members together; if that fails, find those that fail alone and work on the rest together.

    Parameters
    ----------
    members
        What to work on, such as indices of tasks.
    work
        Gives one result for each member that it is given.
    failures
        Filled with the reason for each member that failed.
    pooled
        The work fits one model to all members, so its failure says nothing about a single one: all of them fail.
    """
    if not members:
        return []
    try:
        return work(members)
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
        except RECOVERABLE_ERRORS as error:
            failures[member] = reason_of(error)
    if len(good) == len(members):  # each succeeds alone, but not together
        failures.update(dict.fromkeys(members, reason))
        return []
    return isolate_failures(good, work, failures, pooled=pooled)
