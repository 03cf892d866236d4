"""Scores from pairwise answers or from several orders, and how consistent the answers and the orders are.

Margins are an (N, N) matrix: entry [i, j] is the log-odds that i is higher than j when presented in the order (i, j),
NaN if not compared; the diagonal is ignored. Pairs are (M, 2) item indices with (M,) margins. Rankings are (R, N): R
orders, each of which lists the indices of N items, highest first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float64]

MAX_NEWTON_STEPS = 1000
MAX_KEMENY_ITEMS = 16
"""Largest strongly connected group that Kemeny's order is exact for, in 2ⁿ n time and memory (0.05 s, 26 MB)."""


def margins_of_pairs(n_items: int, pairs: ArrayLike, margins: ArrayLike) -> Floats:
    """The (N, N) matrix of a list of M comparisons; NaN for pairs that are not in the list."""
    matrix = np.full((n_items, n_items), np.nan)
    first, second = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    matrix[first, second] = np.asarray(margins, dtype=float)
    return matrix


def wins_margins(margins: ArrayLike) -> Floats:
    """Points over all ordered comparisons, ties broken by summed logits: the paper's rule, after Qin et al. (2023).

    A margin [i, j] > 0 is a point for i, < 0 a point for j, = 0 half a point for each. Items of equal points are
    ordered by Σ_j (m[i, j] − m[j, i]): a tie-break < ¼ is added to the points. Items equal in both stay tied.
    """
    answers = _off_diagonal(margins)
    won = (1 + np.sign(answers)) / 2
    points = np.nansum(won, axis=1) + np.nansum(1 - won, axis=0)
    # Exactly rounded sums do not depend on the order of the items. Huge margins are scaled to avoid overflow.
    known = np.nan_to_num(answers)
    known *= 2.0**-64 if np.abs(known).max() > 1e290 else 1.0
    sums = [math.fsum((*known[i], *-known[:, i])) for i in range(len(known))]
    levels, level = np.unique(sums, return_inverse=True)
    # The rank of a sum, not the sum itself: no squashing function keeps all floats distinct.
    return np.asarray(points + level / (4 * len(levels)))


def mean_margins(margins: ArrayLike) -> Floats:
    """Mean over opponents of the margin averaged over the compared orders: mean_j (m[i, j] − m[j, i]) / 2. An item that
    was never compared scores 0."""
    net = net_margins(margins)
    opponents = (~np.isnan(net)).sum(axis=1)
    return np.asarray(np.nansum(net, axis=1) / np.maximum(opponents, 1))


def bradley_terry(
    n_items: int, pairs: ArrayLike, margins: ArrayLike, prior: float = 0.1
) -> tuple[Floats, float]:
    """Bradley–Terry on a list of M comparisons, by Newton's method: scores (N,) of mean 0, in log-odds, and the
    advantage of the item presented first, b.

    P(i beats j | i first) = σ(s_i − s_j + b). Minimises

        Σ_m [softplus(z_m) − y_m z_m] + prior/2 (Σ_i s_i² + b²),   z_m = s_first − s_second + b,   y = σ(margin)

    The prior keeps the score of an unbeaten item finite and makes unconnected components comparable.
    """
    from scipy import sparse  # imported where it is used, since most rankings fit no such model

    asked = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    outcomes = special.expit(np.asarray(margins, dtype=float).reshape(-1))
    # Row m of the design: +1 at the first item, −1 at the second, and 1 in the last column.
    rows = np.tile(np.arange(len(asked)), 3)
    columns = np.concatenate([asked[:, 0], asked[:, 1], np.full(len(asked), n_items)])
    values = np.repeat([1.0, -1.0, 1.0], len(asked))
    design = sparse.csr_array((values, (rows, columns)), shape=(len(asked), n_items + 1))
    weights = _fit_logistic(design, outcomes, prior)
    return weights[:-1] - weights[:-1].mean(), float(weights[-1])


def _fit_logistic(design: sparse.csr_array, outcomes: Floats, prior: float) -> Floats:
    """argmin_w Σ softplus(Xw) − y·Xw + prior/2 |w|², by Newton's method with products of the sparse Hessian."""
    from scipy import optimize

    def loss_and_gradient(weights: Floats) -> tuple[float, Floats]:
        z = design @ weights
        loss = np.logaddexp(0, z).sum() - outcomes @ z + prior / 2 * weights @ weights
        return float(loss), design.T @ (special.expit(z) - outcomes) + prior * weights

    def hessian_times(weights: Floats, direction: Floats) -> Floats:
        chance = special.expit(design @ weights)
        return np.asarray(design.T @ (chance * (1 - chance) * (design @ direction)) + prior * direction)

    start = np.zeros(design.shape[1])
    tolerance = 1e-10 * (1 + len(outcomes) / len(start))  # of the gradient
    options = {"gtol": tolerance, "maxiter": MAX_NEWTON_STEPS}
    fitted = optimize.minimize(
        loss_and_gradient, start, jac=True, hessp=hessian_times, method="trust-ncg", options=options
    )
    return np.asarray(fitted.x)


def agreement_both_orders(margins: ArrayLike) -> float:
    """Share of the pairs compared in both orders whose two answers agree; a margin of 0 counts ½."""
    signs = np.sign(_off_diagonal(margins))
    product = (signs * signs.T)[np.triu_indices(len(signs), k=1)]
    product = product[~np.isnan(product)]
    return float((1 - product).mean() / 2) if len(product) else math.nan


def circular_triads(margins: ArrayLike) -> tuple[float, int]:
    """The triads in which i beats j, j beats k and k beats i, by the net margins (the mean of both orders), which no
    ranking can satisfy; and the number of complete triads, of which random answers make a quarter circular.

    With A[i, j] = 1, ½, 0 as i beats, ties, loses to j, the number is tr(A³) / 3 (each cycle counts once for each of
    its items): Kendall & Babington Smith's (1940), or with ties its expectation if each tie is a fair coin.
    """
    net = net_margins(margins)
    asked = (~np.isnan(net)).astype(float)
    beats = np.nan_to_num((1 + np.sign(net)) / 2)
    triads = round(float(np.sum((asked @ asked) * asked.T)) / 6)
    return float(np.sum((beats @ beats) * beats.T)) / 3, triads


def first_share(margins: ArrayLike) -> float:
    """Share of all answers in favour of the item presented first: ½ without bias; a margin of 0 counts ½."""
    answers = _off_diagonal(margins)
    return float((1 + np.sign(answers[~np.isnan(answers)])).mean() / 2)


def net_margins(margins: ArrayLike) -> Floats:
    """(N, N) antisymmetric: the margin of i over j averaged over the compared orders; NaN if none, and on the
    diagonal."""
    answers = _off_diagonal(margins)
    mirrored = -answers.T
    both = answers / 2 + mirrored / 2
    return np.where(np.isnan(answers), mirrored, np.where(np.isnan(mirrored), answers, both))


def _off_diagonal(margins: ArrayLike) -> Floats:
    """A new (N, N) float matrix with NaN on the diagonal."""
    answers = np.array(margins, dtype=float)
    np.fill_diagonal(answers, np.nan)
    return answers


def order_to_scores(order: ArrayLike) -> Floats:
    """Scores of an order of item indices: N−1 for the first down to 0 for the last.

    >>> order_to_scores([2, 0, 1]).tolist()
    [1.0, 0.0, 2.0]
    """
    return borda_rankings(np.asarray(order)[None])


def borda_rankings(rankings: ArrayLike) -> Floats:
    """Borda: the mean over R orders of the number of items placed below. (R, N) → (N,)."""
    places = _places(rankings)
    return np.asarray(places.shape[1] - 1 - places.mean(axis=0))


def _places(rankings: ArrayLike) -> NDArray[np.int64]:
    """The inverse of each permutation: [r, i] = position of item i."""
    return np.argsort(rankings, axis=1)


def kemeny_rankings(rankings: ArrayLike) -> NDArray[np.int64]:
    """The order with the fewest disagreements with R orders, summed over orders and pairs."""
    return kemeny_preferences(_votes(rankings))[0]


def _votes(rankings: ArrayLike) -> Floats:
    """(N, N): [i, j] = the number of the R orders that place i above j."""
    places = _places(rankings)
    return np.asarray((places[:, :, None] < places[:, None, :]).sum(axis=0), dtype=float)


def kemeny_preferences(preferences: ArrayLike) -> tuple[NDArray[np.int64], bool]:
    """The order of least cost Σ_{i above j} preferences[j, i] (Kemeny; linear ordering problem), and whether it is
    optimal; otherwise it is optimal with respect to moving a single item. preferences (N, N).

    If by majority all items of one group beat all of another, the groups are in that order in every optimum (Truchon's
    extended Condorcet criterion), so each strongly connected group is ordered separately: exactly by dynamic
    programming up to `MAX_KEMENY_ITEMS` items, else by insertion moves from Borda's order, which also breaks ties.
    """
    from scipy.sparse import csgraph  # imported where it is used, since most rankings need none

    weights = np.nan_to_num(np.array(preferences, dtype=float))
    np.fill_diagonal(weights, 0)
    lead = weights - weights.T
    at_least_even = lead >= 0
    n_groups, group = csgraph.connected_components(at_least_even, directed=True, connection="strong")
    # Every item of a higher group beats more items than any item of a lower one.
    beaten = at_least_even.sum(axis=1)
    groups = [np.flatnonzero(group == g) for g in range(n_groups)]
    order: list[int] = []
    for members in sorted(groups, key=lambda members: -int(beaten[members[0]])):
        # Borda's order first: it breaks ties in cost, and the local search starts from it.
        borda = members[np.argsort(-lead[np.ix_(members, members)].sum(axis=1), kind="stable")]
        inner = lead[np.ix_(borda, borda)]
        best_order = _best_order if len(borda) <= MAX_KEMENY_ITEMS else _insertion_order
        order.extend(borda[best_order(inner)].tolist())
    return np.array(order), max(map(len, groups)) <= MAX_KEMENY_ITEMS


def _best_order(lead: Floats) -> NDArray[np.int64]:
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


def _insertion_order(lead: Floats) -> NDArray[np.int64]:
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


def kendall_w(rankings: ArrayLike) -> float:
    """Kendall's coefficient of concordance of R orders of N items: 12 S / (R² (N³ − N)), from 1/R by chance to 1, with
    S = Σ_i (rank sum of i − mean rank sum)²."""
    places = _places(rankings)
    n_rankings, n_items = places.shape
    sums = places.sum(axis=0)
    spread = float(((sums - sums.mean()) ** 2).sum())
    return float(12 * spread / (n_rankings**2 * (n_items**3 - n_items)))


def mean_pairwise_tau(rankings: ArrayLike) -> float:
    """Mean Kendall's τ over all pairs of R ≥ 2 orders: (Σ_{i<j} V[i, j]² − R P) / (R (R − 1) P) with P = N(N − 1)/2 and
    V[i, j] the number of orders that place i above j minus those that do not."""
    n_rankings, n_items = np.shape(rankings)
    above = _votes(rankings)
    pairs = n_items * (n_items - 1) // 2
    squares = float(((above - above.T) ** 2).sum()) / 2
    return float((squares - n_rankings * pairs) / (n_rankings * (n_rankings - 1) * pairs))
