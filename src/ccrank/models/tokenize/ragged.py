"""Many token sequences in one array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """n sequences of different lengths, one after another."""

    flat: np.ndarray  # (total,) int32, all tokens
    starts: np.ndarray  # (n + 1,) where each sequence starts in `flat`; the last entry is the total

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        """From lists or tuples of token ids.

        >>> list(Ragged.of([(5, 6), (), (7,)]).lengths)
        [2, 0, 1]
        """
        rows = list(rows)
        starts = starts_of(np.fromiter(map(len, rows), np.int64, len(rows)))
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, int(starts[-1])), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.flat[self.starts[index] : self.starts[index + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        """(n,) the length of each sequence."""
        return np.diff(self.starts)

    def take(self, indices: np.ndarray) -> Ragged:
        """The sequences with these indices, in this order."""
        lengths = self.lengths[indices]
        return Ragged(self.flat[ranges(self.starts[:-1][indices], lengths)], starts_of(lengths))

    def keys(self) -> list[bytes]:
        """Each sequence as bytes; they compare as the sequences do."""
        data = self.flat.astype(">u4").tobytes()
        edges = (4 * self.starts).tolist()
        return [data[start:end] for start, end in pairwise(edges)]

    def followed_by(self, tails: Ragged) -> Ragged:
        """Each sequence with the first tail appended, then each with the second, and so on.

        >>> [row.tolist() for row in Ragged.of([(5, 6), (7,)]).followed_by(Ragged.of([(), (8, 9)]))]
        [[5, 6], [7], [5, 6, 8, 9], [7, 8, 9]]
        """
        if len(tails) == 1 and not len(tails.flat):
            return self
        heads = np.tile(np.arange(len(self)), len(tails))
        return side_by_side((self, heads), (tails, np.repeat(np.arange(len(tails)), len(self))))

    def padded(self) -> np.ndarray:
        """(n, longest) int64, 0 behind the end of each sequence."""
        lengths = self.lengths
        table = np.zeros((len(self), int(lengths.max(initial=0))), np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = self.flat
        return table


def side_by_side(*columns: tuple[Ragged, np.ndarray]) -> Ragged:
    """Row i is the concatenation of the sequences that index i of each column names.

    >>> few, more = Ragged.of([(5, 6), (7,)]), Ragged.of([(8,)])
    >>> [row.tolist() for row in side_by_side((few, np.array([1, 0])), (more, np.array([0, 0])))]
    [[7, 8], [5, 6, 8]]
    """
    lengths = [ragged.lengths[indices] for ragged, indices in columns]
    starts = starts_of(np.sum(lengths, axis=0))
    flat, start = np.empty(int(starts[-1]), np.int32), starts[:-1]
    for (ragged, indices), length in zip(columns, lengths, strict=True):
        flat[ranges(start, length)] = ragged.flat[ranges(ragged.starts[:-1][indices], length)]
        start = start + length
    return Ragged(flat, starts)


def common_prefix(rows: Sequence[Sequence[object]]) -> int:
    """How many leading tokens all rows share."""
    first = list(rows[0])
    if all(list(row[: len(first)]) == first for row in rows):
        return len(first)  # the usual case: an answer changes no token of its prompt
    for count, column in enumerate(zip(*rows, strict=False)):
        if any(token != column[0] for token in column):
            return count
    return min(map(len, rows))


def joined(parts: Sequence[Ragged]) -> Ragged:
    """All sequences of several batches."""
    if len(parts) == 1:
        return parts[0]
    lengths = [part.lengths for part in parts]
    return Ragged(np.concatenate([part.flat for part in parts]), starts_of(np.concatenate(lengths)))


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """(n + 1,) running totals from 0."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The integers start, start + 1, … of each range, one range after another.

    >>> ranges(np.array([4, 9]), np.array([2, 3]))
    array([ 4,  5,  9, 10, 11])
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    integers: np.ndarray = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return integers


def distinct_numbers(numbers: np.ndarray) -> np.ndarray:
    """The distinct values of small integers that are not negative, in order; much faster than sorting them.

    >>> distinct_numbers(np.array([3, 0, 3]))
    array([0, 3])
    """
    return np.flatnonzero(np.bincount(numbers))
