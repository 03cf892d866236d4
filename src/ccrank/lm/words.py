"""Tokens of single words, for tokenizers whose tokens do not cross the blank between two words.

Nearly all tokenizers split a text before each blank that separates two words. The tokens of a text are then those of
its words, one after another, and most words of many prompts are the same. Whether this holds is decided from the
tokenizer itself: no token contains a blank behind another character, and a sample text has the tokens of its words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

MOST_WORDS = 1 << 17
"""Words that are remembered; beyond that all are forgotten."""

_CUT = re.compile(r"(?<=\S) (?=\S)")
# A blank behind another character, in any of the ways white space is written in vocabularies.
_CROSSING = re.compile(r"[^\sĠ▁Ċĉč][ Ġ▁]")
_SAMPLE = "On a scale, the (size) of the 12 Old \"Towns\" isn't 3.5 – naïve? Yes\n\nNo: x_y/z A's"

Tokens = tuple[list[int], Sequence[tuple[int, int]]]
"""The ids of a word's tokens and the characters (start, end) that each covers."""


def split_words(text: str) -> list[str]:
    """A text cut before each single blank between two other characters.

    >>> split_words("a  b c\\n d")
    ['a  b', ' c\\n d']
    """
    parts = text.split(" ")
    leading = not parts[0]
    if text.split() == (parts[1:] if leading else parts):  # single blanks are its only white space
        return (
            [f" {part}" for part in parts[1:]] if leading else [parts[0], *(f" {part}" for part in parts[1:])]
        )
    edges = [0, *(found.start() for found in _CUT.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


class WordTokens:
    """Remembers the tokens of words.

    Parameters
    ----------
    tokenizer
        A tokenizer of `transformers`.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._known: dict[str, Tokens] = {}

    @cached_property
    def separable(self) -> bool:
        """Whether the tokens of any text are those of its words, one after another."""
        if not getattr(self.tokenizer, "is_fast", False):
            return False
        added = self.tokenizer.added_tokens_decoder.values()
        # Such a token takes the blanks behind it, which belong to the next word.
        if any(token.rstrip or " " in token.content.strip() for token in added):
            return False
        names = {str(token) for token in added}
        if any(
            _CROSSING.search(token)
            for token in self.tokenizer.backend_tokenizer.get_vocab()
            if token not in names
        ):
            return False
        words = split_words(_SAMPLE)
        known = self.learn(words)
        whole = self.tokenizer(_SAMPLE, add_special_tokens=False)["input_ids"]
        return [token for word in words for token in known[word][0]] == list(whole)

    def learn(self, words: Iterable[str]) -> dict[str, Tokens]:
        """The tokens of these words, and maybe of others.

        Parameters
        ----------
        words
            The words, each with the blank before it.
        """
        known = self._known
        if len(known) > MOST_WORDS:
            # A new dictionary: another thread may be reading the old one.
            known = self._known = {}
        missing = [word for word in dict.fromkeys(words) if word not in known]
        for word, found in zip(missing, self.encode(missing), strict=True):
            known[word] = (found.ids, found.offsets)
        return known

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """The texts as `tokenizers` encodes them, without special tokens.

        Parameters
        ----------
        texts
            Any texts.
        """
        if not texts:
            return []
        backend = self.tokenizer.backend_tokenizer
        # The library above may have left these set; changing them for no reason would disturb other threads.
        if backend.padding is not None:
            backend.no_padding()
        if backend.truncation is not None:
            backend.no_truncation()
        encoded: list[Any] = backend.encode_batch(list(texts), add_special_tokens=False)
        return encoded
