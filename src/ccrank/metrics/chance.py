"""Chance levels: the exact distribution of Kendall's τ for a uniformly random order, and of its mean over tasks.

Of N items, the number of pairs ordered as in gold is K = Σ_{k=2..N} U_k with independent U_k uniform on 0..k−1
(inserting the k-th item into an order of k−1), and τ = 2K / P − 1 with P = N(N−1)/2. Up to `MAX_EXACT_ITEMS` items the
distribution of K is computed by convolution; beyond, τ is approximated as normal with its exact variance 2(2N+5) /
(9N(N−1)). Scores are assumed to have no ties: with many ties p-values are approximate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ccrank.errors import CcrankError

MAX_EXACT_ITEMS = 200
"""Largest number of items for which the distribution of τ is exact; at the switch E|τ| differs by less than 0.1 %."""
MAX_CONVOLVED_TASKS = 64
"""Largest number of tasks for which the distribution of their mean is a convolution; beyond, a normal approximation."""
MIN_P_VALUE = 1e-12
"""Lower bound on p-values: the convolution uses an FFT, whose rounding error is about 1e-15."""

_FINEST_GRID = 2**14
_COARSE_GRID = 2**12


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over tasks with an interval: central in the floor of random orders, by bootstrap in an estimate."""

    mean: float
    low: float
    high: float


def chance_tau_sd(n_items: int) -> float:
    """Standard deviation of τ for a random order of N items: √(2(2N+5) / (9N(N−1))). Its mean is 0."""
    _check_items(n_items)
    return math.sqrt(2 * (2 * n_items + 5) / (9 * n_items * (n_items - 1)))


def chance_abs_tau(n_items: int) -> float:
    """E|τ| for a random order of N items.

    >>> [round(chance_abs_tau(n), 2) for n in (4, 5, 6, 8, 10)]
    [0.39, 0.33, 0.29, 0.23, 0.2]
    """
    _check_items(n_items)
    if n_items > MAX_EXACT_ITEMS:
        return chance_tau_sd(n_items) * math.sqrt(2 / math.pi)
    tau, probability = _tau_law(n_items)
    return float(np.abs(tau) @ probability)


def chance_free_accuracy(n_items: int) -> float:
    """E max(accuracy, 1 − accuracy) for a random order of N items: (1 + E|τ|) / 2."""
    return (1 + chance_abs_tau(n_items)) / 2


def chance_pair_accuracy(n_pairs: int) -> float:
    """E max(K, n − K) / n for K of n independent fair coins: chance for answers that need not be transitive. It is
    ½ + m C(n, m) / (n 2ⁿ) with m = ⌈n/2⌉, the mean distance of a random walk.

    >>> chance_pair_accuracy(1), chance_pair_accuracy(2), chance_pair_accuracy(3)
    (1.0, 0.75, 0.75)
    """
    if n_pairs < 1:
        raise CcrankError(f"chance over pairs needs at least 1 pair, got {n_pairs}")
    middle = (n_pairs + 1) // 2
    if n_pairs <= 1000:
        return 0.5 + math.comb(n_pairs, middle) * middle / (n_pairs << n_pairs)
    from scipy import stats  # half a second, which ranking does not need

    return float(0.5 + middle * stats.binom.pmf(middle, n_pairs, 0.5) / n_pairs)


def chance_floor(n_items: Sequence[int], level: float = 0.95) -> Interval:
    """The mean |τ| over tasks of these sizes when every order is random: its exact expectation, and a central interval
    that is as exact as the distribution (see `MAX_CONVOLVED_TASKS`). The floor of free accuracy is (1 + floor) / 2."""
    if not 0 < level < 1:
        raise CcrankError(f"a level must be between 0 and 1, such as 0.95, got {level}")
    law = _law_of_mean(n_items, signed=False)
    mean = math.fsum(chance_abs_tau(n) for n in n_items) / len(n_items)
    return Interval(mean, float(law.ppf((1 - level) / 2)), float(law.ppf((1 + level) / 2)))


def p_value_abs_tau(mean_abs_tau: float, n_items: Sequence[int]) -> float:
    """P(mean |τ| over tasks of these sizes ≥ the observed one) when every order is random; one-sided."""
    return max(MIN_P_VALUE, float(_law_of_mean(n_items, signed=False).sf(mean_abs_tau)))


def p_value_tau(mean_tau: float, n_items: Sequence[int]) -> float:
    """P(|mean τ| over tasks of these sizes ≥ the observed |mean τ|) when every order is random; two-sided."""
    tail = float(_law_of_mean(n_items, signed=True).sf(abs(mean_tau)))
    return min(1.0, max(MIN_P_VALUE, 2 * tail))


@dataclass(frozen=True, slots=True)
class _Lattice:
    """A discrete distribution, with the methods of scipy's."""

    values: NDArray[np.float64]
    probability: NDArray[np.float64]
    slack: float
    """How far below an observed value an atom still counts as that value."""

    def ppf(self, level: float) -> float:
        """The quantile."""
        index = int(np.searchsorted(np.cumsum(self.probability), level - 1e-12))
        return float(self.values[min(index, len(self.values) - 1)])

    def sf(self, value: float) -> float:
        """The probability of the value or a larger one."""
        start = int(np.searchsorted(self.values, value - self.slack))
        return float(min(1.0, self.probability[start:].sum()))


def _law_of_mean(n_items: Sequence[int], signed: bool) -> Any:
    """The distribution of the mean over tasks of τ (signed) or |τ| under random orders."""
    return _law_of_sizes(tuple(sorted(map(int, n_items))), signed)


@lru_cache(maxsize=32)
def _law_of_sizes(n_items: tuple[int, ...], signed: bool) -> Any:
    from scipy import fft, stats  # half a second, which ranking does not need

    if len(n_items) == 0:
        raise CcrankError("chance over tasks needs at least 1 task, got none")
    tasks, counts = len(n_items), Counter(n_items)
    if tasks > MAX_CONVOLVED_TASKS:
        means = {n: 0.0 if signed else chance_abs_tau(n) for n in counts}
        variance = sum(count * (chance_tau_sd(n) ** 2 - means[n] ** 2) for n, count in counts.items())
        mean = sum(count * means[n] for n, count in counts.items()) / tasks
        return stats.norm(mean, math.sqrt(variance) / tasks)
    # (1 + τ)/2 and |τ| are multiples of 1/P, so on a grid of lcm(P) steps the convolution is exact.
    common = math.lcm(*(n * (n - 1) // 2 for n in counts))
    exact = common <= _FINEST_GRID and max(counts) <= MAX_EXACT_ITEMS
    steps = common if exact else _COARSE_GRID
    length = fft.next_fast_len(tasks * steps + 1, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=complex)
    for n, count in counts.items():
        tau, probability = _tau_law(n)
        grid = _on_grid((1 + tau) / 2 if signed else np.abs(tau), probability, steps)
        spectrum *= fft.rfft(grid, length) ** count
    total = np.maximum(fft.irfft(spectrum, length)[: tasks * steps + 1], 0)
    values = np.arange(tasks * steps + 1) / (tasks * steps)
    step = 2.0 if signed else 1.0
    return _Lattice(
        values=2 * values - 1 if signed else values,
        probability=total / total.sum(),
        # On the coarse grid each task's value may be off by one step, and so may their mean.
        slack=1e-9 if exact else step / steps,
    )


def _on_grid(
    values: NDArray[np.float64], probability: NDArray[np.float64], steps: int
) -> NDArray[np.float64]:
    """Probabilities of values in [0, 1] on 0, 1/steps, …, 1: an atom between two points is split so that its mean is
    unchanged."""
    position = values * steps
    nearest = np.rint(position)
    position = np.where(np.abs(position - nearest) < 1e-6, nearest, position)
    lower = np.minimum(position.astype(int), steps - 1)
    upper_share = position - lower
    grid = np.bincount(lower, probability * (1 - upper_share), minlength=steps + 1)
    return np.asarray(grid + np.bincount(lower + 1, probability * upper_share, minlength=steps + 1))


@lru_cache(maxsize=256)
def _tau_law(n_items: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The values of τ and their probabilities: exact atoms, or equal-weight normal quantiles past `MAX_EXACT_ITEMS`."""
    _check_items(n_items)
    if n_items > MAX_EXACT_ITEMS:
        levels = (np.arange(_COARSE_GRID) + 0.5) / _COARSE_GRID
        tau = np.clip(ndtri(levels) * chance_tau_sd(n_items), -1, 1)
        probability = np.full(_COARSE_GRID, 1 / _COARSE_GRID)
    else:
        probability = np.ones(1)
        for k in range(2, n_items + 1):
            # Convolution with the uniform distribution on 0..k−1 is a moving sum, hence a difference of
            # cumulative sums.
            running = np.cumsum(np.concatenate([probability, np.zeros(k - 1)]))
            running[k:] -= running[:-k].copy()
            probability = running / k
        # Rounding errors become symmetric, as the distribution is.
        probability = np.maximum(probability + probability[::-1], 0)
        probability /= probability.sum()
        pairs = n_items * (n_items - 1) // 2
        tau = (2 * np.arange(pairs + 1) - pairs) / pairs
    tau.flags.writeable = probability.flags.writeable = False  # the cached arrays are shared by all callers
    return tau, probability


def _check_items(n_items: int) -> None:
    if n_items < 2:
        raise CcrankError(f"a ranking needs at least 2 items, got {n_items}")
