"""What may go wrong with one task without the rest of a study having to stop."""

from __future__ import annotations

from ccrank.errors import CcrankError

TROUBLE = (CcrankError, ArithmeticError, ValueError, RuntimeError)
"""Bad input, numerical failure (numpy's and torch's included). Anything else is a bug and ends the run."""


def reason_of(error: BaseException) -> str:
    """One line for the list of failures."""
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, CcrankError) else f"{type(error).__name__}: {text}"
