"""The prefix tree: each distinct prefix of many token sequences once, packed for a transformer.

Sequences in lexicographic order visit their prefix tree in preorder, so packing needs no tree object: each sequence
adds the tokens after the prefix that it shares with the previous one. In preorder the descendants of a node follow it
directly, so `ends` (one past a node's last descendant) determines the tree: node j is an ancestor of i, or i itself,
if and only if j ≤ i < ends[j]. That is the attention mask. A row may contain several trees (a forest).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """One row: a forest of token prefixes in preorder, T nodes."""

    tokens: np.ndarray
    """(T,) token ids."""
    depths: np.ndarray
    """(T,) distance from the root: the token's position id."""
    ends: np.ndarray
    """(T,) one past the last descendant."""
    members: tuple[int, ...]
    """The sequences in this row, as indices into the list that was packed."""
    nodes: tuple[np.ndarray, ...]
    """For each member the index in the row of each of its tokens."""

    def __len__(self) -> int:
        return len(self.tokens)

    def mask(self) -> np.ndarray:
        """(T, T) whether the query (row) may attend to the key (column): itself and its ancestors."""
        places = np.arange(len(self))
        return (places[None, :] <= places[:, None]) & (places[:, None] < self.ends[None, :])


def shared_prefix(first: Tokens, second: Tokens) -> int:
    """How many leading tokens two sequences share."""
    limit = min(len(first), len(second))
    for place in range(limit):
        if first[place] != second[place]:
            return place
    return limit


def distinct_tokens(sequences: Sequence[Tokens]) -> int:
    """The number of nodes in the prefix tree: the tokens that must be computed at least."""
    ordered = sorted(sequences)
    return sum(
        len(one) - (shared_prefix(ordered[place - 1], one) if place else 0)
        for place, one in enumerate(ordered)
    )


def pack(sequences: Sequence[Tokens], row_tokens: int, most_tokens: int | None = None) -> Iterator[Packed]:
    """Rows of about `row_tokens` nodes that contain every sequence once.

    A row ends when it is full. To avoid recomputing a long prefix, the row continues to grow while the next sequence
    shares more than a quarter of a row with the last one: up to `most_tokens`, or up to twice the shared prefix where
    that is more. A single sequence longer than these limits is a row of its own.
    """
    most = max(row_tokens, most_tokens or row_tokens)
    order = sorted(range(len(sequences)), key=lambda index: sequences[index])
    row: list[int] = []
    size, last = 0, -1
    for index in order:
        sequence = sequences[index]
        common = shared_prefix(sequences[last], sequence) if row else 0
        added = len(sequence) - common
        limit = most if 4 * common > row_tokens else row_tokens
        # Beyond the first full row, add at least as many new nodes as the repeated prefix has before starting
        # a new row.
        if row and size + added > max(limit, 2 * common):
            yield _pack_row(sequences, row)
            row, size, added = [], 0, len(sequence)
        row.append(index)
        size += added
        last = index
    if row:
        yield _pack_row(sequences, row)


def _pack_row(sequences: Sequence[Tokens], members: Sequence[int]) -> Packed:
    tokens: list[int] = []
    depths: list[int] = []
    ends: list[int] = []
    nodes: list[np.ndarray] = []
    path: list[int] = []  # indices in the row of the current sequence's tokens
    previous: Tokens = ()
    for index in members:
        sequence = sequences[index]
        common = shared_prefix(previous, sequence)
        for place in path[common:]:
            ends[place] = len(tokens)
        path = path[:common]
        for depth in range(common, len(sequence)):
            path.append(len(tokens))
            tokens.append(sequence[depth])
            depths.append(depth)
            ends.append(0)
        nodes.append(np.asarray(path))
        previous = sequence
    for place in path:
        ends[place] = len(tokens)
    return Packed(np.asarray(tokens), np.asarray(depths), np.asarray(ends), tuple(members), tuple(nodes))
