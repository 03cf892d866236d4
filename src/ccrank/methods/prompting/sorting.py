"""Ranking long lists with few comparisons: a batched quicksort, and random opponents.

Quicksort is used instead of merge sort because of the number of rounds: every item is compared with its group's pivot
in one batch, so a list takes O(log N) rounds, while merges in lockstep need only N log2 N comparisons but O(N) rounds.
It also tolerates inconsistent answers: on any tournament, transitive or not, random pivots need O(N log N) comparisons
in expectation (Ailon & Mohri 2008), about 1.39 N log2 N, and the order contradicts in expectation at most 3 times as
many pairs as the best one (Ailon, Charikar & Newman 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccrank.errors import CcrankError
from ccrank.metrics.rankings import order_to_scores
from ccrank.util.cancellation import check

Compare = Callable[[list[tuple[int, int]]], ArrayLike]
"""Maps ordered pairs (first, second) of item indices to the log-odds that the first is higher."""


@dataclass(frozen=True, slots=True)
class SortResult:
    """The order and all comparisons; `bradley_terry_pairs` computes finer scores from them."""

    order: tuple[int, ...]
    """Item indices, highest first."""
    scores: NDArray[np.float64]
    """(N,): N−1 for the first down to 0 for the last."""
    pairs: NDArray[np.int64]
    """(M, 2): the compared ordered pairs, each at most once."""
    margins: NDArray[np.float64]
    """(M,): their margins."""
    rounds: int
    """The number of sequential batches."""

    @property
    def comparisons(self) -> int:
        """M, the number of ordered pairs compared."""
        return len(self.margins)


def quick_sort(n_items: int, compare: Compare, generator: np.random.Generator) -> SortResult:
    """Sort 0..n_items−1, highest first; all groups of a level are split by their pivots in one call of `compare`.

    Each pair is presented in a random order, so that a preference for the first position splits a group evenly instead
    of moving all of it to one side. A margin of 0 is decided at random. For any answers, the result is a permutation.
    """
    if n_items < 1:
        raise CcrankError(f"sorting needs at least 1 item, got {n_items}")
    items = np.arange(n_items)  # in the current order
    # [position]: 0 is the highest group; groups of one item are done.
    group = np.zeros(n_items, dtype=np.int64)
    asked: list[NDArray[np.int64]] = []
    answered: list[NDArray[np.float64]] = []
    while group[-1] < n_items - 1:
        check()
        sizes = np.bincount(group)
        pivots = np.cumsum(sizes) - sizes + generator.integers(sizes)  # [group]: the pivot's position
        others = np.setdiff1d(np.arange(n_items), pivots)
        pairs = np.stack([items[others], items[pivots[group[others]]]], axis=1)
        flipped = generator.random(len(pairs)) < 0.5
        pairs[flipped] = pairs[flipped, ::-1]
        margins = np.asarray(compare([(first, second) for first, second in pairs.tolist()]), dtype=float)
        if margins.shape != (len(pairs),) or np.isnan(margins).any():
            raise CcrankError(
                f"compare must return one number for each of {len(pairs)} pairs, got shape {margins.shape} "
                f"with {int(np.isnan(margins).sum())} NaN"
            )
        asked.append(pairs)
        answered.append(margins)
        net = np.where(flipped, -margins, margins)
        higher = np.where(net == 0, generator.random(len(net)) < 0.5, net > 0)
        # Each group is split into the items above its pivot, the pivot, and the items below.
        part = 3 * group + 1
        part[others] += np.where(higher, -1, 1)
        order = np.argsort(part, kind="stable")
        items = items[order]
        group = np.unique(part[order], return_inverse=True)[1]
    return SortResult(
        order=tuple(items.tolist()),
        scores=order_to_scores(items),
        pairs=np.concatenate(asked) if asked else np.empty((0, 2), dtype=np.int64),
        margins=np.concatenate(answered) if answered else np.empty(0),
        rounds=len(asked),
    )


def random_opponents(n_items: int, opponents: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Ordered pairs (first, second) in which every item has the same number of opponents, for Bradley–Terry.

    The items are placed on a ring in random order, and each is paired with those at distance 1 and at further random
    distances ahead: a connected graph in which each item is first as often as second, and no pair occurs twice. Each
    item has exactly `opponents` opponents, or one more if both N and `opponents` are odd (no such graph exists), at
    most N − 1. For an odd number, the last opponent is the opposite item, presented first or second at random.
    """
    if n_items < 2:
        raise CcrankError(f"opponents need at least 2 items, got {n_items}")
    if opponents < 1 or (opponents == 1 and n_items > 2):
        raise CcrankError(f"{opponents} opponents per item leave {n_items} items unconnected; use at least 2")
    wanted = min(opponents, n_items - 1)
    if n_items % 2 == 1 and wanted % 2 == 1:
        wanted += 1
    ring = generator.permutation(n_items)
    further = generator.permutation(np.arange(2, (n_items - 1) // 2 + 1))
    distances = [1, *further.tolist()][: wanted // 2]
    pairs = [np.stack([ring, np.roll(ring, -distance)], axis=1) for distance in distances]
    if wanted % 2 == 1:
        half = n_items // 2
        opposite = np.stack([ring[:half], ring[half:]], axis=1)
        pairs.append(np.where(generator.random((half, 1)) < 0.5, opposite, opposite[:, ::-1]))
    return [(int(first), int(second)) for first, second in np.concatenate(pairs)]
