"""Many token sequences in one array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """n sequences of different lengths, one after another."""

    flat: np.ndarray
    """(total,) int32, all tokens."""
    starts: np.ndarray
    """(n + 1,) where each sequence starts in `flat`; the last entry is the total."""

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
        own, more = np.tile(self.lengths, len(tails)), np.repeat(tails.lengths, len(self))
        starts = starts_of(own + more)
        flat = np.empty(int(starts[-1]), np.int32)
        flat[ranges(starts[:-1], own)] = np.tile(self.flat, len(tails))
        flat[ranges(starts[1:] - more, more)] = tails.flat[
            ranges(np.repeat(tails.starts[:-1], len(self)), more)
        ]
        return Ragged(flat, starts)

    def padded(self) -> np.ndarray:
        """(n, longest) int64, 0 behind the end of each sequence."""
        lengths = self.lengths
        table = np.zeros((len(self), int(lengths.max(initial=0))), np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = self.flat
        return table


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
