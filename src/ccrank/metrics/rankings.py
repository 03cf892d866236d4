"""Consensus of several orders (Borda's mean rank, Kemeny's median order), and how far the orders agree.

Rankings are (R, N): R orders, each of which lists the indices of N items, highest first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccrank.errors import CcrankError

MAX_KEMENY_ITEMS = 16
"""Largest strongly connected group that Kemeny's order is exact for, in 2ⁿ n time and memory (0.05 s, 26 MB)."""


@dataclass(frozen=True, slots=True)
class KemenyOrder:
    """An order that contradicts the preferences as little as possible."""

    order: tuple[int, ...]
    """Item indices, highest first."""
    cost: float
    """Σ of preferences[j, i] over all i placed above j: the weight of contradicted preferences."""
    exact: bool
    """Whether the order is optimal; otherwise it is optimal with respect to moving a single item."""


def order_to_scores(order: ArrayLike) -> NDArray[np.float64]:
    """Scores of an order of item indices: N−1 for the first down to 0 for the last.

    >>> order_to_scores([2, 0, 1]).tolist()
    [1.0, 0.0, 2.0]
    """
    return borda_rankings(np.asarray(order)[None])


def borda_rankings(rankings: ArrayLike) -> NDArray[np.float64]:
    """Borda: the mean over R orders of the number of items placed below. (R, N) → (N,)."""
    orders = _checked_rankings(rankings)
    places = np.argsort(orders, axis=1)  # the inverse of each permutation: [r, i] = position of item i
    return np.asarray(orders.shape[1] - 1 - places.mean(axis=0))


def kemeny_rankings(rankings: ArrayLike) -> KemenyOrder:
    """The order with the fewest disagreements with R orders, summed over orders and pairs."""
    return kemeny_preferences(_votes(rankings))


def _votes(rankings: ArrayLike) -> NDArray[np.float64]:
    """(N, N): [i, j] = the number of the R orders that place i above j."""
    places = np.argsort(_checked_rankings(rankings), axis=1)
    return np.asarray((places[:, :, None] < places[:, None, :]).sum(axis=0), dtype=float)


def kemeny_preferences(preferences: ArrayLike) -> KemenyOrder:
    """The order of least cost Σ_{i above j} preferences[j, i] (Kemeny; linear ordering problem).

    If by majority all items of one group beat all of another, the groups are in that order in every optimum (Truchon's
    extended Condorcet criterion), so each strongly connected group is ordered separately: exactly by dynamic
    programming up to `MAX_KEMENY_ITEMS` items, else by insertion moves starting from Borda's order. Ties in cost are
    broken towards Borda's order where the search can do so.

    Shapes: preferences (N, N).
    """
    weights = np.nan_to_num(np.array(preferences, dtype=float))
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or len(weights) == 0:
        raise CcrankError(f"preferences must be a square matrix, got shape {weights.shape}")
    np.fill_diagonal(weights, 0)
    lead = weights - weights.T
    at_least_even = lead >= 0
    from scipy.sparse import csgraph  # imported where it is used, since most rankings need none

    n_groups, group = csgraph.connected_components(at_least_even, directed=True, connection="strong")
    # Every item of a higher group beats more items than any item of a lower one.
    beaten = at_least_even.sum(axis=1)
    groups = sorted(
        (np.flatnonzero(group == g) for g in range(n_groups)), key=lambda members: -int(beaten[members[0]])
    )
    order: list[int] = []
    exact = True
    for members in groups:
        # Borda's order first: it breaks ties in cost, and the local search starts from it.
        borda = members[np.argsort(-lead[np.ix_(members, members)].sum(axis=1), kind="stable")]
        inner = lead[np.ix_(borda, borda)]
        small = len(borda) <= MAX_KEMENY_ITEMS
        exact &= small
        order.extend(borda[_best_order(inner) if small else _insertion_order(inner)].tolist())
    placed = weights[np.ix_(order, order)]
    return KemenyOrder(tuple(order), float(np.tril(placed, -1).sum()), exact)


def kendall_w(rankings: ArrayLike) -> float:
    """Kendall's coefficient of concordance of R orders of N items: 12 S / (R² (N³ − N)), from 1/R by chance to 1.

    S = Σ_i (rank sum of i − mean rank sum)².
    """
    orders = _checked_rankings(rankings)
    n_rankings, n_items = orders.shape
    if n_items < 2:
        raise CcrankError("agreement of rankings needs at least 2 items, got 1")
    sums = np.argsort(orders, axis=1).sum(axis=0)
    spread = float(((sums - sums.mean()) ** 2).sum())
    return float(12 * spread / (n_rankings**2 * (n_items**3 - n_items)))


def mean_pairwise_tau(rankings: ArrayLike) -> float:
    """Mean Kendall's τ over all pairs of R ≥ 2 orders: 0 by chance, 1 if all are equal.

    With V[i, j] the number of orders that place i above j minus those that do not, it is
    (Σ_{i<j} V[i, j]² − R P) / (R (R − 1) P), P = N(N − 1)/2.
    """
    orders = _checked_rankings(rankings)
    n_rankings, n_items = orders.shape
    if n_rankings < 2 or n_items < 2:
        raise CcrankError(f"agreement needs at least 2 rankings of 2 items, got {n_rankings} of {n_items}")
    above = _votes(orders)
    pairs = n_items * (n_items - 1) // 2
    squares = float(((above - above.T) ** 2).sum()) / 2
    return float((squares - n_rankings * pairs) / (n_rankings * (n_rankings - 1) * pairs))


def _best_order(lead: NDArray[np.float64]) -> NDArray[np.int64]:
    """The order maximising Σ_{i above j} lead[i, j], by dynamic programming over the sets of items on top."""
    n = len(lead)
    # before[S, j] = Σ_{i ∈ S} lead[i, j]: gain of placing j directly below the set S. Computed by doubling.
    before = np.zeros((1, n))
    for i in range(n):
        before = np.concatenate([before, before + lead[i]])
    sets = np.arange(2**n)
    members = (sets[:, None] >> np.arange(n)) & 1
    sizes = members.sum(axis=1)
    best = np.zeros(2**n)
    last = np.zeros(2**n, dtype=np.int64)
    for size in range(1, n + 1):
        layer = sets[sizes == size]
        # [set, item]: the set without the item; ignored below where the item is not a member.
        without = layer[:, None] & ~(1 << np.arange(n))
        gain = np.where(members[layer] == 1, best[without] + before[without, np.arange(n)], -np.inf)
        # Of equal choices the latest is placed last, so that ties follow Borda's order, which is the input order.
        last[layer] = n - 1 - gain[:, ::-1].argmax(axis=1)
        best[layer] = gain.max(axis=1)
    order = []
    remaining = 2**n - 1
    while remaining:
        order.append(int(last[remaining]))
        remaining ^= 1 << order[-1]
    return np.array(order[::-1])


def _insertion_order(lead: NDArray[np.float64]) -> NDArray[np.int64]:
    """A local optimum: starting from the given order, items move to their best position until no move improves it."""
    order = np.arange(len(lead))
    smallest_gain = 1e-12 * np.abs(lead).sum()
    moved = True
    while moved:
        moved = False
        for item in range(len(lead)):
            rest = order[order != item]
            # value[p] of position p: the leads of the items above over it, and its leads over those below.
            ahead = np.concatenate([[0.0], np.cumsum(lead[rest, item])])
            value = 2 * ahead - ahead[-1]
            here = int(np.flatnonzero(order == item)[0])
            target = int(value.argmax())
            if value[target] > value[here] + smallest_gain:
                order = np.insert(rest, target, item)
                moved = True
    return order


def _checked_rankings(rankings: ArrayLike) -> NDArray[np.int64]:
    """(R, N) orders, each a permutation of 0..N−1."""
    try:
        orders = np.asarray(rankings)
    except ValueError:
        raise CcrankError("rankings must all order the same items: their lengths differ") from None
    if orders.ndim != 2 or orders.size == 0:
        raise CcrankError(f"rankings must be R orders of N items, got shape {orders.shape}")
    wrong = (np.sort(orders, axis=1) != np.arange(orders.shape[1])).any(axis=1)
    if wrong.any():
        raise CcrankError(
            f"ranking {int(wrong.argmax()) + 1} is not an order of the items 0..{orders.shape[1] - 1}: "
            f"{orders[wrong.argmax()].tolist()}"
        )
    return orders.astype(np.int64)
