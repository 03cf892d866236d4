"""Cutting a long document into overlapping passages. Pure text: tokens are counted by a function that is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate

CountTokens = Callable[[Sequence[str]], list[int]]
"""Texts → the number of tokens of each."""

OVERLAP = 0.25
"""The share of a passage that the next one repeats, so that what a cut divides is whole in one of the two."""
_WORD = re.compile(r"\s*(?:[!-\u058f]{1,24}|[^\s!-\u058f]{1,4})")
"""A word with the white space before it; what has no white space, such as Chinese, is cut by characters."""
_BLANKS = re.compile(r"\s{3,}")


def passages(text: str, most_tokens: int, count: CountTokens) -> list[str]:
    """Passages of at most `most_tokens` tokens that cover the text; the text itself if it is short enough.

    Parameters
    ----------
    text
        A document.
    most_tokens
        The most tokens of a passage.
    count
        Counts the tokens of texts.

    >>> passages("one two three four five six seven", 4, lambda texts: [len(text.split()) for text in texts])
    ['one two three four', 'four five six seven']
    """
    text = text.strip()
    # No tokenizer makes more tokens than bytes, so most texts need no counting.
    if len(text.encode("utf-8")) <= most_tokens or count([text])[0] <= most_tokens:
        return [text]
    words = [match.group() for match in _WORD.finditer(_BLANKS.sub("\n\n", text))]
    ends = list(accumulate(count(words)))  # tokens up to the end of each word
    found: list[str] = []
    start = 0
    while True:
        begin = ends[start - 1] if start else 0
        stop = start + 1
        while stop < len(words) and ends[stop] - begin <= most_tokens:
            stop += 1
        found.append("".join(words[start:stop]).strip())
        if stop == len(words):
            return found
        keep_from = ends[stop - 1] - OVERLAP * most_tokens
        start += 1
        while start < stop and ends[start - 1] < keep_from:
            start += 1
