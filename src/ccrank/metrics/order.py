"""Metrics of one task: Kendall's τ and pairwise accuracy, signed and direction-free. Scores and gold are (N,)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccrank.errors import CcrankError
from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy

# Up to this N comparing N × N signs is faster than scipy's O(N log N) sort, which has a high fixed cost.
_MAX_MATRIX_ITEMS = 256


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """Metrics of one task, with the chance levels of a random order."""

    n_items: int
    tau: float
    """Kendall's τ-b with its sign: −1 is the reversed gold order."""
    abs_tau: float
    """|τ|: τ in the better of the two directions, as in the paper."""
    accuracy: float
    """Share of pairs ordered as in gold; a tie counts ½. Without ties it is (1 + τ) / 2."""
    free_accuracy: float
    """Accuracy in the better of the two directions, as in the paper: never below ½."""
    chance_abs_tau: float
    """E|τ| of a uniformly random order of n_items."""
    chance_free_accuracy: float
    """E max(accuracy, 1 − accuracy) of a uniformly random order of n_items."""


def kendall_tau(scores: ArrayLike, gold: ArrayLike) -> float:
    """Kendall's τ-b of scores against gold, signed: (C − D) / √(P (P − T)), P = N(N−1)/2 pairs, T tied in the scores.

    Gold has no ties. If all scores are tied, τ = 0 (where scipy gives NaN).

    >>> kendall_tau([0.3, 0.1, 0.2], [3, 1, 2])
    1.0
    """
    return tau_b(scores, _checked_gold(gold))


def tau_b(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's τ-b between two lists of scores, both of which may have ties; 0 if all values of one list are tied.

    τ-b = (C − D) / √((P − T₁)(P − T₂)) with T₁ and T₂ the pairs tied in either list.

    >>> round(tau_b([1, 1, 2, 3], [1, 2, 2, 3]), 3)
    0.8
    """
    surplus, ordered, _ = _count_pairs(first, second)
    return _tau(surplus, ordered)


def pair_accuracy(margins: ArrayLike, gold: ArrayLike) -> float:
    """Share of the raw answers to ordered pairs that agree with gold; a margin of 0 counts ½. They need not be
    transitive, so chance for the better direction is `chance_pair_accuracy(answers)`. margins (N, N), gold (N,)"""
    answers = np.asarray(margins, dtype=float)
    values = _checked_gold(gold)
    if answers.shape != (len(values), len(values)):
        raise CcrankError(
            f"margins of shape {answers.shape} do not fit {len(values)} gold values; give a row and a column per item"
        )
    asked = ~np.isnan(answers) & ~np.eye(len(values), dtype=bool)
    if not asked.any():
        raise CcrankError("no pair was compared: all margins are NaN")
    agreement = np.sign(answers) * np.sign(values[:, None] - values[None, :])
    return float((1 + agreement[asked].mean()) / 2)


def evaluate(scores: ArrayLike, gold: ArrayLike) -> TaskMetrics:
    """All metrics of one task, with their chance levels."""
    values = _checked_gold(gold)
    n_items = len(values)
    surplus, ordered, pairs = _count_pairs(scores, values)
    tau, accuracy = _tau(surplus, ordered), (pairs + surplus) / (2 * pairs)
    return TaskMetrics(
        n_items=n_items,
        tau=tau,
        abs_tau=abs(tau),
        accuracy=accuracy,
        free_accuracy=max(accuracy, 1 - accuracy),
        chance_abs_tau=chance_abs_tau(n_items),
        chance_free_accuracy=chance_free_accuracy(n_items),
    )


def _tau(surplus: int, ordered: int) -> float:
    return surplus / math.sqrt(ordered) if ordered else 0.0


def _count_pairs(first: ArrayLike, second: ArrayLike) -> tuple[int, int, int]:
    """Unordered pairs: concordant − discordant, the product of those not tied in either list, and all."""
    scores, others = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if scores.shape != others.shape or scores.ndim != 1:
        raise CcrankError(
            f"scores of shape {scores.shape} do not match values of shape {others.shape}; give one of each per item"
        )
    for values in (scores, others):
        if np.isnan(values).any():
            raise CcrankError(
                f"the score of item {int(np.isnan(values).argmax()) + 1} is NaN; a ranking needs numbers"
            )
    pairs = len(scores) * (len(scores) - 1) // 2
    ordered = (pairs - _tied_pairs(scores)) * (pairs - _tied_pairs(others))
    if len(scores) <= _MAX_MATRIX_ITEMS:
        # Comparisons, not differences: two infinite scores of the same sign are tied.
        above = scores[None, :] > scores[:, None]
        other_above = others[None, :] > others[:, None]
        concordant = int((above & other_above).sum())
        discordant = int((above & other_above.T).sum())
        return concordant - discordant, ordered, pairs
    if not ordered:
        return 0, 0, pairs
    from scipy import stats  # half a second, which a short list does not need

    tau = stats.kendalltau(scores, others, method="asymptotic").statistic
    return round(float(tau) * math.sqrt(ordered)), ordered, pairs


def _tied_pairs(values: NDArray[np.float64]) -> int:
    _, repeats = np.unique(values, return_counts=True)
    return int((repeats * (repeats - 1) // 2).sum())


def _checked_gold(gold: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(gold, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise CcrankError(f"gold must be a list of at least 2 values, got shape {values.shape}")
    if np.isnan(values).any() or len(np.unique(values)) < len(values):
        raise CcrankError(
            f"gold must be numbers without ties, got {values.tolist()[:10]}; drop one of two tied items"
        )
    return values
