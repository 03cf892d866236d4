"""Short, printable forms of a user's text, for messages, tables and figures."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

REPLACEMENT = "\ufffd"


def shortened(text: str, most: int = 60, *, keep_end: bool = False, ellipsis: str = "…") -> str:
    """A text cut to at most `most` characters.

    >>> shortened("the quick brown fox", 10), shortened("models/tiny-llama", 10, keep_end=True)
    ('the quick…', '…iny-llama')
    """
    if len(text) <= most:
        return text
    kept = most - len(ellipsis)
    return ellipsis + text[len(text) - kept :] if keep_end else text[:kept] + ellipsis


def one_line(text: str, most: int = 80, *, keep_end: bool = False) -> str:
    """A text on one line: white space collapsed, control characters replaced, cut if long."""
    folded = " ".join(text.split())
    printable = "".join(REPLACEMENT if unicodedata.category(char) == "Cc" else char for char in folded)
    return shortened(printable, most, keep_end=keep_end)


def quoted(value: object, most: int = 60) -> str:
    """The repr of a value, cut if long, for error messages."""
    return shortened(repr(value), most, ellipsis="...")


def encodable(text: str) -> str:
    """A text that can be encoded as UTF-8: lone surrogates, which JSON allows, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name, with a space at its end; empty if no known name is similar.

    >>> did_you_mean("scalradj", ["scalaradj", "reviews"])
    "did you mean 'scalaradj'? "
    """
    folded = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), folded, n=1)
    return f"did you mean {folded[close[0]]!r}? " if close else ""


def p_text(value: float) -> str:
    """A p-value, never as 0.

    >>> p_text(0.00001), p_text(0.0312), p_text(0.4)
    ('< 0.001', '0.031', '0.40')
    """
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


@dataclass(frozen=True)
class Column:
    """A column of a table that fits its terminal."""

    title: str
    number: bool = False
    """Right-aligned."""
    drop: int = 0
    """On a narrow terminal, columns with the largest value are dropped first; 0 is never dropped."""
    most: int | None = None
    """Cells are cut to this width, with an ellipsis."""
