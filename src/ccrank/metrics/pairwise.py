"""Scores from pairwise answers (wins, mean margins, Bradley–Terry), and how consistent the answers are.

Margins are an (N, N) matrix: entry [i, j] is the log-odds that i is higher than j when presented in the order (i, j),
NaN if not compared; the diagonal is ignored. Pairs are (M, 2) item indices with (M,) margins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float64]

# Up to this size the Newton system is solved densely, beyond it by conjugate gradients on the sparse Hessian.
_MAX_DENSE_ITEMS = 500
_MAX_NEWTON_STEPS = 200


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """A fitted model P(i beats j | i first) = σ(scores[i] − scores[j] + position_bias)."""

    scores: Floats
    """(N,), mean 0, in log-odds."""
    position_bias: float
    """Log-odds advantage of the item presented first; 0 if not fitted."""


@dataclass(frozen=True, slots=True)
class CircularTriads:
    """Triads in which i beats j, j beats k and k beats i, which no ranking can satisfy."""

    observed: float
    """Their number; a tied pair counts as a fair coin, so with ties this is an expectation."""
    expected: float
    """Their expected number for random answers: a quarter of the complete triads."""
    triads: int
    """The number of complete triads: those whose three pairs were all compared."""
    coefficient: float
    """Kendall & Babington Smith's ζ = 1 − observed / maximum: 1 for a ranking. NaN if pairs are missing or N < 3."""


def wins_margins(margins: ArrayLike) -> Floats:
    """Points over all ordered comparisons, ties broken by summed logits: the paper's rule, after Qin et al. (2023).

    A margin [i, j] > 0 is a point for i, < 0 a point for j, = 0 half a point for each. Items of equal points are
    ordered by Σ_j (m[i, j] − m[j, i]); the returned scores are points + a tie-break < ¼ that gives exactly this order.
    Items equal in both stay tied.
    """
    answers = _checked_margins(margins)
    won = (1 + np.sign(answers)) / 2
    points = np.nansum(won, axis=1) + np.nansum(1 - won, axis=0)
    # Exactly rounded sums do not depend on the order of the items. Huge margins are scaled to avoid overflow.
    known = np.nan_to_num(answers)
    known *= 2.0**-64 if np.abs(known).max() > 1e290 else 1.0
    sums = [math.fsum((*known[i], *-known[:, i])) for i in range(len(known))]
    levels, level = np.unique(sums, return_inverse=True)
    # The rank of a sum, not the sum itself: no squashing function keeps all floats distinct.
    return np.asarray(points + level / (4 * len(levels)))


def margins_of_pairs(n_items: int, pairs: ArrayLike, margins: ArrayLike) -> Floats:
    """The (N, N) matrix of a list of M comparisons; NaN for pairs that are not in the list."""
    matrix = np.full((n_items, n_items), np.nan)
    first, second = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    matrix[first, second] = np.asarray(margins, dtype=float)
    return matrix


def mean_margins(margins: ArrayLike) -> Floats:
    """Mean over opponents of the margin averaged over both orders: mean_j (m[i, j] − m[j, i]) / 2.

    A pair compared in one order only counts with that order's margin. An item that was never compared scores 0.
    """
    net = net_margins(margins)
    opponents = (~np.isnan(net)).sum(axis=1)
    return np.asarray(np.nansum(net, axis=1) / np.maximum(opponents, 1))


def bradley_terry_margins(
    margins: ArrayLike, position_bias: bool = True, prior: float = 0.1, soft: bool = True
) -> BradleyTerry:
    """Penalised maximum likelihood of P(i beats j | i first) = σ(s_i − s_j + b) on a matrix of comparisons.

    See `bradley_terry_pairs` for the objective; it takes the pairs as a list.
    """
    answers = _checked_margins(margins)
    pairs = np.argwhere(~np.isnan(answers))
    values = answers[pairs[:, 0], pairs[:, 1]]
    return bradley_terry_pairs(len(answers), pairs, values, position_bias, prior, soft)


def bradley_terry_pairs(
    n_items: int,
    pairs: ArrayLike,
    margins: ArrayLike,
    position_bias: bool = True,
    prior: float = 0.1,
    soft: bool = True,
) -> BradleyTerry:
    """Bradley–Terry on a list of M comparisons, by Newton's method.

    Minimises

        Σ_m [softplus(z_m) − y_m z_m] + prior/2 (Σ_i s_i² + b²),   z_m = s_first − s_second + b,

    with y = σ(margin) if soft, else y = 1, ½, 0 by the margin's sign. The prior keeps the score of an unbeaten item
    finite and makes unconnected components comparable.
    """
    if not prior > 0:
        raise CcrankError(f"prior must be above 0, got {prior}; use a small one such as 1e-6 for almost none")
    asked = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    answers = np.asarray(margins, dtype=float).reshape(-1)
    if len(asked) != len(answers) or not np.isfinite(answers).all():
        raise CcrankError(f"each of {len(asked)} pairs needs one finite margin, got {len(answers)}")
    if len(asked) and (asked.min() < 0 or asked.max() >= n_items or (asked[:, 0] == asked[:, 1]).any()):
        raise CcrankError(f"each pair must consist of two different items of 0..{n_items - 1}")
    from scipy import sparse  # imported where it is used, since most rankings fit no such model

    outcomes = special.expit(answers) if soft else (1 + np.sign(answers)) / 2
    # Row m of the design: +1 at the first item, −1 at the second, and 1 in the last column if the bias is fitted.
    rows = np.tile(np.arange(len(asked)), 3)
    columns = np.concatenate([asked[:, 0], asked[:, 1], np.full(len(asked), n_items)])
    values = np.repeat([1.0, -1.0, float(position_bias)], len(asked))
    design = sparse.csr_array((values, (rows, columns)), shape=(len(asked), n_items + 1))
    weights = _fit_logistic(design, outcomes, prior)
    return BradleyTerry(weights[:-1] - weights[:-1].mean(), float(weights[-1]))


def agreement_both_orders(margins: ArrayLike) -> float:
    """Share of the pairs compared in both orders whose two answers agree; a margin of 0 counts ½."""
    answers = _checked_margins(margins)
    upper = np.triu_indices(len(answers), k=1)
    product = np.sign(answers[upper]) * np.sign(answers.T[upper])
    product = product[~np.isnan(product)]
    return float((1 - product).mean() / 2) if len(product) else float("nan")


def circular_triads(margins: ArrayLike) -> CircularTriads:
    """Circular triads in the tournament of the net margins (the mean of both orders).

    With A[i, j] = 1, ½, 0 as i beats, ties, loses to j, the number is tr(A³) / 3: each cycle is counted once for each
    of its three items. If all pairs were compared and none tied, it equals C(N, 3) − Σ_i w_i (w_i − 1) / 2 with w_i the
    wins of i (Kendall & Babington Smith 1940).
    """
    net = net_margins(margins)
    n_items = len(net)
    asked = (~np.isnan(net)).astype(float)
    beats = np.nan_to_num((1 + np.sign(net)) / 2)
    triads = round(float(np.sum((asked @ asked) * asked.T)) / 6)
    observed = float(np.sum((beats @ beats) * beats.T)) / 3
    complete = asked.sum() == n_items * (n_items - 1)
    coefficient = float("nan")
    if complete and n_items >= 3:
        coefficient = 1 - observed / most_circular_triads(n_items)
    return CircularTriads(observed, triads / 4, triads, coefficient)


def most_circular_triads(n_items: int) -> float:
    """The largest number of circular triads of N items: (N³ − N) / 24 for odd N, (N³ − 4N) / 24 for even N."""
    return (n_items**3 - (1 if n_items % 2 else 4) * n_items) / 24


def first_share(margins: ArrayLike) -> float:
    """Share of all answers in favour of the item presented first: ½ without bias; a margin of 0 counts ½."""
    answers = _checked_margins(margins)
    asked = answers[~np.isnan(answers)]
    if len(asked) == 0:
        raise CcrankError("no pair was compared: all margins are NaN")
    return float((1 + np.sign(asked)).mean() / 2)


def net_margins(margins: ArrayLike) -> Floats:
    """(N, N) antisymmetric: the margin of i over j averaged over the compared orders; NaN if none, and on the
    diagonal."""
    answers = _checked_margins(margins)
    mirrored = -answers.T
    both = answers / 2 + mirrored / 2
    return np.where(np.isnan(answers), mirrored, np.where(np.isnan(mirrored), answers, both))


def _checked_margins(margins: ArrayLike) -> Floats:
    """A new (N, N) float matrix with NaN on the diagonal."""
    answers = np.array(margins, dtype=float)
    if answers.ndim != 2 or answers.shape[0] != answers.shape[1] or len(answers) < 2:
        raise CcrankError(f"margins must be a square matrix over at least 2 items, got shape {answers.shape}")
    np.fill_diagonal(answers, np.nan)
    if np.isinf(answers).any():
        first, second = np.argwhere(np.isinf(answers))[0]
        raise CcrankError(
            f"the margin of item {first + 1} over item {second + 1} is infinite; bound the log-odds of answers"
        )
    return answers


def _fit_logistic(design: sparse.csr_array, outcomes: Floats, prior: float) -> Floats:
    """argmin_w Σ softplus(Xw) − y·Xw + prior/2 |w|², by Newton steps that are halved until the objective decreases."""

    def objective(weights: Floats) -> float:
        z = design @ weights
        return float(np.logaddexp(0, z).sum() - outcomes @ z + prior / 2 * weights @ weights)

    weights = np.zeros(design.shape[1])
    value = objective(weights)
    for _ in range(_MAX_NEWTON_STEPS):
        chance = special.expit(design @ weights)
        gradient = design.T @ (chance - outcomes) + prior * weights
        if np.abs(gradient).max() <= 1e-10 * (1 + len(outcomes) / len(weights)):
            break
        step = _newton_step(design, chance * (1 - chance), prior, gradient)
        size = 1.0
        # Strictly convex, so a small enough step decreases it; the slack allows for rounding near the minimum.
        while (next_value := objective(weights - size * step)) > value + 1e-12 * abs(value) and size > 1e-8:
            size /= 2
        weights, value = weights - size * step, next_value
    return weights


def _newton_step(design: sparse.csr_array, curvature: Floats, prior: float, gradient: Floats) -> Floats:
    """(XᵀDX + prior I)⁻¹ gradient."""
    from scipy import linalg
    from scipy.sparse.linalg import LinearOperator, cg

    hessian = design.T @ (design.multiply(curvature[:, None]))
    if len(gradient) <= _MAX_DENSE_ITEMS:
        dense = hessian.toarray() + prior * np.eye(len(gradient))
        return np.asarray(linalg.solve(dense, gradient, assume_a="pos"))
    diagonal = hessian.diagonal() + prior
    operator = LinearOperator(hessian.shape, matvec=lambda x: hessian @ x + prior * x)
    jacobi = LinearOperator(hessian.shape, matvec=lambda x: x / diagonal)
    step, _ = cg(operator, gradient, rtol=1e-8, M=jacobi)
    return np.asarray(step)
