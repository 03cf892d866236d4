"""How well the scores of one task order its items: Kendall's τ and pairwise accuracy, signed and direction-free."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ccrank.errors import CcrankError
from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy

# Up to here the N × N signs are faster than scipy's O(N log N) sort, whose fixed cost is high.
_MATRIX_ITEMS = 256


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """How one task was ranked, beside what a random order would reach."""

    n_items: int
    tau: float
    """Kendall's τ-b with its sign: −1 is gold upside down."""
    abs_tau: float
    """|τ|: the better of the two directions, as in the paper."""
    accuracy: float
    """Share of pairs ordered as in gold, a tie counting ½."""
    free_accuracy: float
    """The accuracy of the better of the two directions, as in the paper: never below ½."""
    chance_abs_tau: float
    """E|τ| of a uniformly random order of n_items."""
    chance_free_accuracy: float
    """E max(accuracy, 1 − accuracy) of a uniformly random order of n_items."""


def kendall_tau(scores: ArrayLike, gold: ArrayLike) -> float:
    """Kendall's τ-b, signed: (C − D) / √(P (P − T)) with P = N(N−1)/2 pairs, T of them tied in the scores.

    Gold never ties. Scores that all tie order nothing and have τ = 0 (where scipy says NaN).

    >>> kendall_tau([0.3, 0.1, 0.2], [3, 1, 2])
    1.0
    """
    return _tau_b(*_count_pairs(scores, gold))


def pairwise_accuracy(scores: ArrayLike, gold: ArrayLike) -> float:
    """Share of the unordered pairs that the scores order as gold does, signed; a tied pair counts ½.

    Without ties it equals (1 + τ) / 2.

    >>> pairwise_accuracy([0.0, 0.0, 1.0], [1, 2, 3])
    0.8333333333333334
    """
    surplus, _, pairs = _count_pairs(scores, gold)
    return (pairs + surplus) / (2 * pairs)


def abs_tau(scores: ArrayLike, gold: ArrayLike) -> float:
    """|τ|: the order is reversed if the reverse is better. Compare it with `chance_abs_tau`, not with 0."""
    return abs(kendall_tau(scores, gold))


def free_accuracy(scores: ArrayLike, gold: ArrayLike) -> float:
    """max(accuracy, 1 − accuracy): compare it with `chance_free_accuracy`, not with ½."""
    accuracy = pairwise_accuracy(scores, gold)
    return max(accuracy, 1 - accuracy)


def pair_accuracy(margins: ArrayLike, gold: ArrayLike) -> float:
    """Share of the raw answers to ordered pairs that agree with gold; a margin of 0 counts ½.

    margins: (N, N), entry [i, j] the log-odds that i is higher when asked as (i, j), NaN where not asked.
    The answers need not be transitive, so chance for the better direction is `chance_pairs(answers)`.
    """
    answers = np.asarray(margins, dtype=float)
    values = _checked_gold(gold)
    if answers.shape != (len(values), len(values)):
        raise CcrankError(
            f"margins of shape {answers.shape} do not fit {len(values)} gold values; "
            "give one row and one column for each item"
        )
    asked = ~np.isnan(answers) & ~np.eye(len(values), dtype=bool)
    if not asked.any():
        raise CcrankError("no pair was asked: all margins are NaN")
    agreement = np.sign(answers) * np.sign(values[:, None] - values[None, :])
    return float((1 + agreement[asked].mean()) / 2)


def evaluate(scores: ArrayLike, gold: ArrayLike) -> TaskMetrics:
    """All metrics of one task, with their chance levels."""
    n_items = len(np.asarray(gold))
    surplus, tied, pairs = _count_pairs(scores, gold)
    tau = _tau_b(surplus, tied, pairs)
    accuracy = (pairs + surplus) / (2 * pairs)
    return TaskMetrics(
        n_items=n_items,
        tau=tau,
        abs_tau=abs(tau),
        accuracy=accuracy,
        free_accuracy=max(accuracy, 1 - accuracy),
        chance_abs_tau=chance_abs_tau(n_items),
        chance_free_accuracy=chance_free_accuracy(n_items),
    )


def _tau_b(surplus: int, tied: int, pairs: int) -> float:
    return 0.0 if tied == pairs else surplus / math.sqrt(pairs * (pairs - tied))


def _count_pairs(scores: ArrayLike, gold: ArrayLike) -> tuple[int, int, int]:
    """(concordant − discordant, tied in the scores, all) unordered pairs."""
    values = _checked_gold(gold)
    predicted = np.asarray(scores, dtype=float)
    if predicted.shape != values.shape:
        raise CcrankError(
            f"scores of shape {predicted.shape} for {len(values)} gold values; give one for each item"
        )
    if np.isnan(predicted).any():
        raise CcrankError(
            f"the score of item {int(np.isnan(predicted).argmax()) + 1} is NaN; rank needs numbers"
        )
    pairs = len(values) * (len(values) - 1) // 2
    ascending = predicted[np.argsort(values)]
    if len(values) <= _MATRIX_ITEMS:
        # Comparisons, not differences: two infinite scores of one sign tie.
        above = ascending[None, :] > ascending[:, None]
        concordant = int(np.triu(above).sum())
        discordant = int(above.sum()) - concordant
        return concordant - discordant, pairs - concordant - discordant, pairs
    _, repeats = np.unique(ascending, return_counts=True)
    tied = int((repeats * (repeats - 1) // 2).sum())
    if tied == pairs:
        return 0, tied, pairs
    tau_b = stats.kendalltau(ascending, np.arange(len(ascending)), method="asymptotic").statistic
    return round(float(tau_b) * math.sqrt(pairs * (pairs - tied))), tied, pairs


def _checked_gold(gold: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(gold, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise CcrankError(f"gold must be a list of at least 2 values, got shape {values.shape}")
    if np.isnan(values).any() or len(np.unique(values)) < len(values):
        raise CcrankError(
            f"gold must be numbers without ties, got {values.tolist()[:10]}; drop one of two tied items"
        )
    return values
