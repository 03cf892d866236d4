"""Tokens of single words, for tokenizers whose tokens do not cross the blank between two words.

Nearly all tokenizers split a text before each blank that separates two words. The tokens of a text are then those of
its words, one after another, and most words of many prompts are the same. Whether this holds is decided from the
tokenizer itself: no token contains a blank behind another character, and a sample text has the tokens of its words.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ccrank.models.tokenize.ragged import Ragged, ranges, starts_of

MAX_WORDS = 1 << 16
"""Words that are remembered; beyond that all are forgotten."""

_CUT = re.compile(r"(?<=\S) (?=\S)")
# A blank behind another character, in any of the ways white space is written in vocabularies.
_CROSSING = re.compile(r"[^\sĠ▁Ċĉč][ Ġ▁]")
_SAMPLE = "On a scale, the (size) of the 12 Old \"Towns\" isn't 3.5 – naïve? Yes\n\nNo: x_y/z A's"
_FIRST, _NEXT = "\x01", "\x00"
"""Mark the first word of a text, and separate words; texts with these characters are split one by one."""


def split_words(text: str) -> list[str]:
    """A text cut before each single blank between two other characters.

    >>> split_words("a  b c\\n d")
    ['a  b', ' c\\n d']
    """
    edges = [0, *(match.start() for match in _CUT.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def marked_words(texts: Sequence[str]) -> list[str]:
    """The words of all texts, one text after another; the first one of each text follows a mark. A blank at the start
    of a text may follow a mark that is a word of its own.
    """
    joined = _FIRST + _FIRST.join(texts)
    plain = _NEXT not in joined and joined.count(_FIRST) == len(texts)
    # Are single blanks between other characters, or at the start of a text, its only white space?
    if plain and f" {_FIRST}" not in joined and " ".join(joined.split()) == joined:
        return joined.replace(_FIRST, _NEXT + _FIRST).replace(" ", f"{_NEXT} ").split(_NEXT)[1:]
    marked: list[str] = []
    for text in texts:
        first, *others = split_words(text)
        marked += (_FIRST + first, *others)
    return marked


class _Table:
    """The tokens of numbered words, in arrays that grow."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        """Word → number; a word that starts a text has a mark."""
        self.flat = np.empty(1 << 10, np.int32)
        """All tokens, word after word."""
        self.starts = np.zeros(1 << 8, np.int64)
        """Where the tokens of each word start; one entry more than there are words."""
        self.last = np.empty(1 << 8, np.int32)
        """The last token that covers a word's last character; -1 if none does."""
        self.first = np.empty(1 << 8, bool)
        """Whether the word starts a text."""

    def add(self, words: Sequence[str], encoded: Sequence[Any]) -> None:
        """Number these words."""
        tokens, count = Ragged.of([one.ids for one in encoded]), len(self.numbers)
        used, end = int(self.starts[count]), count + len(words)
        self.flat = _room(self.flat, used + len(tokens.flat))
        self.starts, self.last, self.first = (
            _room(one, end + 1) for one in (self.starts, self.last, self.first)
        )
        self.flat[used : used + len(tokens.flat)] = tokens.flat
        self.starts[count + 1 : end + 1] = used + tokens.starts[1:]
        self.first[count:end] = [word[:1] == _FIRST for word in words]
        self.last[count:end] = [
            _last_at(one.offsets, len(word.removeprefix(_FIRST)))
            for word, one in zip(words, encoded, strict=True)
        ]
        # Last, since another thread that finds a number reads its tokens.
        self.numbers.update(zip(words, range(count, end), strict=True))


def _room(array: np.ndarray, size: int) -> np.ndarray:
    """The array, or a longer copy of it."""
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


def _last_at(offsets: Sequence[tuple[int, int]], end: int) -> int:
    """The last token with characters, if it ends at `end`; else -1."""
    for index in range(len(offsets) - 1, -1, -1):
        start, stop = offsets[index]
        if stop > start:
            return index if stop == end else -1
    return -1


class WordTokens:
    """Remembers the tokens of words by a tokenizer of `transformers`."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._table = _Table()
        self._learning = threading.Lock()

    @cached_property
    def separable(self) -> bool:
        """Whether the tokens of any text are the concatenated tokens of its words."""
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
        whole = self.tokenizer(_SAMPLE, add_special_tokens=False)["input_ids"]
        return list(self.rows([_SAMPLE])[0].flat) == list(whole)

    def rows(self, texts: Sequence[str]) -> tuple[Ragged, np.ndarray]:
        """The tokens of each text, and (texts,) the last token that covers its last character, -1 if none does."""
        if not texts:
            return Ragged.of([]), np.zeros(0, np.int64)
        words = marked_words(texts)
        table = self._table
        found: list[Any] = list(map(table.numbers.get, words))
        if None in found:
            table = self._learned(words)
            found = list(map(table.numbers.__getitem__, words))
        numbers = np.array(found, np.int64)
        starts = table.starts[numbers]
        lengths = table.starts[numbers + 1] - starts
        first = np.flatnonzero(table.first[numbers])
        sizes = np.add.reduceat(lengths, first)
        final = np.append(first[1:], len(numbers)) - 1  # the last word of each text
        last = table.last[numbers[final]]
        tokens = Ragged(table.flat[ranges(starts, lengths)], starts_of(sizes))
        return tokens, np.where(last < 0, -1, sizes - lengths[final] + last)

    def _learned(self, words: Sequence[str]) -> _Table:
        """A table with all of these words."""
        with self._learning:
            if len(self._table.numbers) > MAX_WORDS:
                # A new table: another thread may be reading the old one.
                self._table = _Table()
            table = self._table
            missing = [word for word in dict.fromkeys(words) if word not in table.numbers]
            table.add(missing, self.encode([word.removeprefix(_FIRST) for word in missing]))
            return table

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """The texts as `tokenizers` encodes them, without special tokens."""
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
