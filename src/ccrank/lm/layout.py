"""Arranging token sequences in rows, as prefix trees or padded, and rows in batches. Pure arrays, no model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ccrank.lm.ragged import Ragged, ranges
from ccrank.lm.tree import Forest, Sorted, pack

ROW_TOKENS = 256
"""The length of a tree row: long enough to keep matrix products busy, short enough that attention stays cheap."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One forward pass: B rows of T positions."""

    rows: np.ndarray
    """(B,) the rows, as indices into those of the layout."""
    tokens: np.ndarray
    """(B, T) token ids, 0 where a row is padded."""
    positions: np.ndarray
    """(B, T) position id of each token."""
    lengths: np.ndarray
    """(B,) positions in use."""
    ends: np.ndarray | None = None
    """(B, T) one past each node's last descendant in its row; None where each row is one sequence. Padding is its own
    only descendant."""

    def lengthened(self, length: int) -> Batch:
        """The same tree rows with padding up to a length."""
        extra = length - self.tokens.shape[1]
        if extra <= 0 or self.ends is None:
            return self
        wider = ((0, 0), (0, extra))
        ends = np.broadcast_to(np.arange(length) + 1, (len(self.tokens), length)).copy()
        ends[:, : self.ends.shape[1]] = self.ends
        return Batch(self.rows, np.pad(self.tokens, wider), np.pad(self.positions, wider), self.lengths, ends)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """S sequences in R rows."""

    tokens: Ragged
    """The token ids of each row."""
    forest: Forest | None
    """The prefix trees in the rows; None where each row is one sequence."""

    @classmethod
    def trees(cls, ordered: Sorted, budget: int) -> Layout:
        """Prefix trees in rows of about `ROW_TOKENS` nodes, or of up to `budget` where prefixes are long."""
        forest = pack(ordered, min(ROW_TOKENS, budget), budget)
        return cls(forest.tokens, forest)

    @classmethod
    def padded(cls, sequences: Ragged) -> Layout:
        """One sequence in each row."""
        return cls(sequences, None)

    def row_of(self, sequences: np.ndarray) -> np.ndarray:
        """The row of each sequence."""
        return sequences if self.forest is None else self.forest.row_of[sequences]

    def columns(self, sequences: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The place in its row of each position of each sequence."""
        return positions if self.forest is None else self.forest.columns(sequences, positions)

    def batches(self, budget: int, most_rows: int | None = None) -> Iterator[Batch]:
        """Rows of similar length in batches of at most `budget` positions, unless one row alone is longer.

        Parameters
        ----------
        budget
            The maximal number of rows × longest row.
        most_rows
            The maximal number of rows; None sets no limit.
        """
        lengths = self.tokens.lengths
        order = np.argsort(lengths, kind="stable")
        start = 0
        for index, length in enumerate(lengths[order].tolist()):
            count = index - start
            if count and ((count + 1) * length > budget or count == most_rows):
                yield self._batch(order[start:index])
                start = index
        if start < len(order):
            yield self._batch(order[start:])

    def _batch(self, rows: np.ndarray) -> Batch:
        chosen = self.tokens.take(rows)
        tokens, lengths = chosen.padded(), chosen.lengths
        columns = np.arange(tokens.shape[1])
        if self.forest is None:
            return Batch(rows, tokens, np.broadcast_to(columns, tokens.shape), lengths)
        used = columns < lengths[:, None]
        places = ranges(self.tokens.starts[:-1][rows], lengths)
        positions = np.zeros_like(tokens)
        positions[used] = self.forest.depths[places]
        ends = np.broadcast_to(columns + 1, tokens.shape).copy()
        ends[used] = self.forest.ends[places]
        return Batch(rows, tokens, positions, lengths, ends)
