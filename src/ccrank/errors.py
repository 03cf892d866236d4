"""Errors that a user can fix, warnings, optional packages that are missing, and tasks that fail alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Member = TypeVar("Member")
Output = TypeVar("Output")


class CcrankError(Exception):
    """An error that the user can fix: the message contains the offending value and the remedy."""


def check_kind(name: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raise an error unless a value is of a kind."""
    if not isinstance(value, kinds):
        raise CcrankError(f"{name} must be {wanted}, not {type(value).__name__}")


class UnavailableError(CcrankError):
    """A model behind a server cannot be read at present. No item and no task is at fault, so others fail likewise."""


class CcrankWarning(UserWarning):
    """Something to know before relying on a ranking; the message says what to do about it."""


class ModelWarning(CcrankWarning):
    """A model reads plain text far worse than a language model should."""


@contextmanager
def needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Raise an error with the install line if a package that is imported within the context is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "ccrank":
            raise
        raise CcrankError(
            f"{purpose} needs the package {error.name.partition('.')[0]}: {install_line(extra)}"
        ) from None


def install_line(extra: str) -> str:
    """The command that installs an extra: from a clone, until there is a release on a package index."""
    return f"pip install '.[{extra}]' in a clone of ccrank"


RECOVERABLE_ERRORS = (CcrankError, ArithmeticError, ValueError, RuntimeError)
"""Bad input and numerical failure, in numpy and torch too. Any other exception is a bug and ends the
run."""


def reason_of(error: BaseException) -> str:
    """The reason of a failure on one line."""
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, CcrankError) else f"{type(error).__name__}: {text}"


def isolate_failures(
    members: Sequence[Member],
    work: Callable[[Sequence[Member]], list[Output]],
    failures: dict[Member, str],
    *,
    pooled: bool = False,
) -> list[Output]:
    """Process all members together; if that fails, find which fail alone and process the rest together.

    An `UnavailableError` is raised: no member causes it.
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
