"""Arranging token sequences in a batch, as prefix trees or padded. Pure arrays, no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ccrank.lm.tree import Packed, Tokens, pack

ROW_TOKENS = 256
"""The length of a tree row: long enough to keep matrix products busy, short enough that attention stays cheap."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One forward pass: B rows of T positions."""

    tokens: np.ndarray
    """(B, T) token ids, 0 where a row is padded."""
    positions: np.ndarray
    """(B, T) position id of each token."""
    lengths: np.ndarray
    """(B,) positions in use."""
    members: tuple[int, ...]
    """The sequences in this batch, as indices into the list that was laid out."""
    places: tuple[np.ndarray, ...]
    """For each member the flat index (row · T + column) of each of its tokens."""
    trees: tuple[Packed, ...] = ()
    """The tree of each row; empty where each row is one sequence."""

    def visible(self) -> np.ndarray:
        """(B, T, T) which keys (last axis) each query may attend to in a tree layout; padding attends to itself
        only."""
        rows, length = self.tokens.shape
        seen = np.zeros((rows, length, length), dtype=bool)
        for row, tree in enumerate(self.trees):
            seen[row, : len(tree), : len(tree)] = tree.mask()
        seen[:, np.arange(length), np.arange(length)] = True
        return seen


def tree_layouts(sequences: Sequence[Tokens], budget: int, one_row: bool = False) -> Iterator[Layout]:
    """Prefix trees in batches of at most `budget` positions, unless one row alone is longer (see `pack`)."""
    rows = pack(sequences, min(ROW_TOKENS, budget), budget)
    if one_row:
        yield from (_tree_layout([row]) for row in rows)
        return
    # Rows of similar length share a batch; a window of them keeps memory bounded for any number of sequences.
    for window in _windows(rows, 64):
        for group in _groups(sorted(window, key=len), budget):
            yield _tree_layout(group)


def padded_layouts(
    sequences: Sequence[Tokens], budget: int, most_rows: int | None = None
) -> Iterator[Layout]:
    """Sequences of similar length, padded on the right, in batches of at most `budget` positions."""
    order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))
    group: list[int] = []
    for index in order:
        full = (len(group) + 1) * len(sequences[index]) > budget or len(group) == most_rows
        if group and full:
            yield _padded_layout(sequences, group)
            group = []
        group.append(index)
    if group:
        yield _padded_layout(sequences, group)


def _tree_layout(rows: Sequence[Packed]) -> Layout:
    length = max(map(len, rows))
    tokens = np.zeros((len(rows), length), dtype=np.int64)
    positions = np.zeros_like(tokens)
    members: list[int] = []
    places: list[np.ndarray] = []
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row.tokens
        positions[index, : len(row)] = row.depths
        members.extend(row.members)
        places.extend(nodes + index * length for nodes in row.nodes)
    lengths = np.asarray([len(row) for row in rows])
    return Layout(tokens, positions, lengths, tuple(members), tuple(places), tuple(rows))


def _padded_layout(sequences: Sequence[Tokens], members: Sequence[int]) -> Layout:
    lengths = np.asarray([len(sequences[index]) for index in members])
    length = int(lengths.max())
    tokens = np.zeros((len(members), length), dtype=np.int64)
    positions = np.broadcast_to(np.arange(length), tokens.shape).copy()
    places = []
    for row, index in enumerate(members):
        tokens[row, : lengths[row]] = sequences[index]
        places.append(np.arange(lengths[row]) + row * length)
    return Layout(tokens, positions, lengths, tuple(members), tuple(places))


def _windows(rows: Iterator[Packed], size: int) -> Iterator[list[Packed]]:
    window: list[Packed] = []
    for row in rows:
        window.append(row)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def _groups(rows: Sequence[Packed], budget: int) -> Iterator[list[Packed]]:
    """Rows in ascending length, cut so that rows × longest stays within the budget."""
    group: list[Packed] = []
    for row in rows:
        if group and (len(group) + 1) * len(row) > budget:
            yield group
            group = []
        group.append(row)
    if group:
        yield group
