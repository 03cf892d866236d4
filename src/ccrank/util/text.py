"""Short, printable forms of a user's text, for messages, tables and figures."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\ufffd"


def shortened(text: str, most: int = 60, *, keep_end: bool = False, ellipsis: str = "…") -> str:
    """A text cut to at most `most` characters.

    Parameters
    ----------
    text
        The text; it is returned unchanged if it is short enough.
    most
        The number of characters to keep, including the ellipsis.
    keep_end
        Keep the end instead of the start, for example of paths.
    ellipsis
        The text that marks the cut.

    Examples
    --------
    >>> shortened("the quick brown fox", 10), shortened("models/tiny-llama", 10, keep_end=True)
    ('the quick…', '…iny-llama')
    """
    if len(text) <= most:
        return text
    kept = most - len(ellipsis)
    return ellipsis + text[len(text) - kept :] if keep_end else text[:kept] + ellipsis


def one_line(text: str, most: int = 80, *, keep_end: bool = False) -> str:
    """A text on one line: white space collapsed, control characters replaced, cut if long.

    Parameters
    ----------
    text
        Any text, such as an item.
    most
        The number of characters to keep.
    keep_end
        Keep the end instead of the start.
    """
    folded = " ".join(text.split())
    printable = "".join(REPLACEMENT if unicodedata.category(char) == "Cc" else char for char in folded)
    return shortened(printable, most, keep_end=keep_end)


def quoted(value: object, most: int = 60) -> str:
    """The repr of a value, cut if long, for error messages."""
    return shortened(repr(value), most, ellipsis="...")


def encodable(text: str) -> str:
    """A text that can be encoded as UTF-8: lone surrogates, which JSON allows, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
