"""Arranging token sequences in rows, as prefix trees or padded, and rows in batches. Pure arrays, no model.

A prefix tree has each distinct prefix of many sequences once. Sequences in lexicographic order visit their prefix tree
in preorder, so packing needs no tree object: each sequence adds the tokens after the prefix that it shares with the
previous one. In preorder the descendants of a node follow it directly, so `ends` (one past a node's last descendant)
determines the tree: node j is an ancestor of i, or i itself, if and only if j ≤ i < ends[j]. That is the attention
mask. A row may contain several trees (a forest).

Everything is computed for all sequences at once: S sequences in order, `shared[k]` the tokens that sequence k shares
with the one before it. The nodes that sequence k adds are its run: depths shared[k] to its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ccrank.models.tokenize.ragged import Ragged, distinct_numbers, ranges, starts_of

BLOCK = 1 << 20  # tokens that are compared at once when prefixes are counted: bounds memory


class Sorted:
    """Token sequences in lexicographic order."""

    def __init__(self, tokens: Ragged) -> None:
        self.tokens = tokens

    @cached_property
    def order(self) -> np.ndarray:
        """(S,) the sequences' indices in lexicographic order; a prefix comes before its continuations."""
        keys = self.tokens.keys()
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)

    @cached_property
    def shared(self) -> np.ndarray:
        """(S,) how many leading tokens each sequence shares with the one before it in this order; 0 for the first."""
        order, lengths = self.order, self.tokens.lengths
        shared = np.zeros(len(order), np.int64)
        if len(order) < 2:
            return shared
        least = np.minimum(lengths[order[1:]], lengths[order[:-1]])
        edges = starts_of(least)
        first = 0
        while first < len(least):
            last = max(first + 1, int(np.searchsorted(edges, edges[first] + BLOCK, side="right")) - 1)
            shared[first + 1 : last + 1] = self._matches(
                order[first:last], order[first + 1 : last + 1], least[first:last]
            )
            first = last
        return shared

    def _matches(self, before: np.ndarray, after: np.ndarray, least: np.ndarray) -> np.ndarray:
        """How many of the `least` leading tokens are equal in each pair of sequences."""
        starts = self.tokens.starts
        different = (
            self.tokens.flat[ranges(starts[before], least)] != self.tokens.flat[ranges(starts[after], least)]
        )
        edges = starts_of(least)
        mismatches = np.append(np.flatnonzero(different), edges[-1])
        first = mismatches[np.searchsorted(mismatches, edges[:-1])]
        counts: np.ndarray = np.minimum(first - edges[:-1], least)
        return counts

    @property
    def distinct_tokens(self) -> int:
        """The number of nodes in the prefix tree: the tokens that must be computed at least."""
        return int(self.tokens.lengths.sum() - self.shared.sum())


ROW_TOKENS = 128
"""The length of a tree row: long enough to keep matrix products busy, short enough that attention stays cheap."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One forward pass: B rows of T positions. In `ends` padding is its own only descendant."""

    rows: np.ndarray  # (B,) the rows' indices in the layout
    tokens: np.ndarray  # (B, T) token ids, 0 where a row is padded
    positions: np.ndarray  # (B, T) position id of each token
    lengths: np.ndarray  # (B,) positions in use
    ends: np.ndarray | None = None  # (B, T) one past each node's last descendant; None without trees

    def lengthened(self, length: int) -> Batch:
        """The same tree rows with padding up to a length."""
        extra = length - self.tokens.shape[1]
        if extra <= 0 or self.ends is None:
            return self
        wider = ((0, 0), (0, extra))
        ends = np.broadcast_to(np.arange(length) + 1, (len(self.tokens), length)).copy()
        ends[:, : self.ends.shape[1]] = self.ends
        return Batch(self.rows, np.pad(self.tokens, wider), np.pad(self.positions, wider), self.lengths, ends)


@dataclass(frozen=True, eq=False)
class Layout:
    """S sequences in R rows: here each row is one sequence."""

    tokens: Ragged  # the token ids of each row
    row_of: np.ndarray  # (S,) the row of each sequence

    def columns(self, sequences: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The column in its row of each position of each sequence."""
        return positions

    def batches(self, budget: int, most_rows: int | None = None) -> Iterator[Batch]:
        """Rows of similar length in batches of at most `budget` positions, unless one row alone is longer."""
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
        tokens = chosen.padded()
        return Batch(rows, tokens, np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape), chosen.lengths)


@dataclass(frozen=True, eq=False)
class Forest(Layout):
    """Rows of nodes; a row is a forest of token prefixes in preorder."""

    depths: np.ndarray  # (nodes,) distance from the root: the token's position id
    ends: np.ndarray  # (nodes,) one past the last descendant, counted from the start of the row
    _rank: np.ndarray  # (S,) each sequence's rank in lexicographic order
    _shared: np.ndarray  # (S,) in order: the depth at which each run starts, 0 for the first of a row
    _runs: np.ndarray  # (S,) in order: the index of each run's first node, counted from the start of the row

    def columns(self, sequences: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The column in its row of the node at each position of each sequence."""
        # The node belongs to the last run, up to the sequence's own, that starts at or above its depth.
        ranks = self._rank[sequences]
        run = ranks.copy()
        inherited = np.flatnonzero(positions < self._shared[ranks])
        for indices, starting in _by_level(self._shared, positions[inherited]):
            chosen = inherited[indices]
            run[chosen] = starting[np.searchsorted(starting, ranks[chosen], side="right") - 1]
        columns: np.ndarray = self._runs[run] + positions - self._shared[run]
        return columns

    def _batch(self, rows: np.ndarray) -> Batch:
        padded = super()._batch(rows)
        columns = padded.positions
        used = columns < padded.lengths[:, None]
        nodes = ranges(self.tokens.starts[:-1][rows], padded.lengths)
        positions, ends = np.zeros_like(columns), columns + 1
        positions[used] = self.depths[nodes]
        ends[used] = self.ends[nodes]
        return replace(padded, positions=positions, ends=ends)


def pack(ordered: Sorted, row_tokens: int, most_tokens: int | None = None) -> Forest:
    """Rows of about `row_tokens` nodes that contain every sequence once.

    A row ends when it is full. To avoid recomputing a long prefix, the row continues to grow while the next sequence
    shares more than a quarter of a row with the last one: up to `most_tokens`, or up to twice the shared prefix where
    that is more. A single sequence longer than these limits is a row of its own.
    """
    order = ordered.order
    lengths = ordered.tokens.lengths[order]
    first = _row_starts(lengths, ordered.shared, row_tokens, most_tokens)
    shared = np.where(first, 0, ordered.shared)
    added = lengths - shared
    row = np.cumsum(first) - 1
    runs = starts_of(added)
    row_edges = np.append(runs[:-1][first], runs[-1])
    flat = ordered.tokens.flat[ranges(ordered.tokens.starts[:-1][order] + shared, added)]
    depths = ranges(shared, added)
    ends = _ends(shared, runs, depths, row_edges)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    row_of = np.empty_like(order)
    row_of[order] = row
    offsets = row_edges[row] if len(row) else row
    return Forest(Ragged(flat, row_edges), row_of, depths, ends, rank, shared, runs[:-1] - offsets)


def _row_starts(
    lengths: np.ndarray, shared: np.ndarray, row_tokens: int, most_tokens: int | None
) -> np.ndarray:
    """(S,) whether each sequence, in order, starts a new row."""
    most = max(row_tokens, most_tokens or row_tokens)
    first = np.zeros(len(lengths), bool)
    size = 0
    for index, (length, common) in enumerate(zip(lengths.tolist(), shared.tolist(), strict=True)):
        limit = most if 4 * common > row_tokens else row_tokens
        # Beyond the first full row, add at least as many new nodes as the repeated prefix has before starting
        # a new row.
        if not index or size + length - common > max(limit, 2 * common):
            first[index] = True
            size = length
        else:
            size += length - common
    return first


def _ends(shared: np.ndarray, runs: np.ndarray, depths: np.ndarray, row_edges: np.ndarray) -> np.ndarray:
    """Where the next run starts at or above each node's depth, counted from the start of its row."""
    ends: np.ndarray = np.empty_like(depths)
    for nodes, starting in _by_level(shared, depths):
        # A row starts at depth 0, so no subtree extends beyond its row.
        following = np.append(runs[starting], runs[-1])
        ends[nodes] = following[np.searchsorted(following[:-1], nodes, side="right")]
    sizes = np.diff(row_edges)
    ends -= np.repeat(row_edges[:-1], sizes)
    return ends


def _by_level(shared: np.ndarray, depths: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Groups of depths above which the same runs start: the indices of each group, and these runs in order."""
    levels = distinct_numbers(shared)
    level = np.searchsorted(levels, depths, side="right") - 1
    by_level = np.argsort(level, kind="stable")
    edges = np.searchsorted(level[by_level], np.arange(len(levels) + 1))
    return [
        (by_level[edges[index] : edges[index + 1]], np.flatnonzero(shared <= levels[index]))
        for index in range(len(levels))
        if edges[index] < edges[index + 1]
    ]
