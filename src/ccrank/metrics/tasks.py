"""Means over tasks with bootstrap intervals, tests by random signs, and several tests together. Values are (T,)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ccrank.errors import CcrankError
from ccrank.metrics.chance import Interval

MAX_ENUMERATED_TASKS = 16
"""Largest number of tasks for which the tests enumerate all 2ⁿ sign flips instead of drawing some."""

RESAMPLES = 2000
"""Of the bootstrap intervals of tables, which have hundreds of rows."""

SIGN_FLIPS = 200_000
"""Sampled flips of the paired test: a p-value of 5e-6 can be found, so that hundreds of tests can be corrected for."""

_CHUNK_ENTRIES = 2**22  # resamples × tasks drawn at once: bounds memory to about 32 MB


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Comparison of a and b on the same tasks."""

    difference: Interval
    """Mean of a − b over tasks."""
    p_value: float
    """Two-sided, from flipping the sign of each task's difference."""
    n_tasks: int


@dataclass(frozen=True, slots=True)
class CommonDirection:
    """How far the probe of each fold orders all of its held-out tasks in one direction."""

    value: float
    """|mean τ| over the held-out tasks of a fold; mean over folds and seeds."""
    seeds: tuple[float, ...]
    """The same for each seed."""
    expected: float
    """Its expectation if the direction of every task were random."""
    p_value: float
    """How often random directions reach the value."""


def mean_with_interval(
    values: ArrayLike, generator: np.random.Generator, level: float = 0.95, resamples: int = 10_000
) -> Interval:
    """The mean over tasks and its percentile-bootstrap interval: tasks are resampled with replacement. The interval of
    a single task is NaN."""
    return macro_mean_with_interval([values], generator, level, resamples)


def macro_mean_with_interval(
    groups: Sequence[ArrayLike], generator: np.random.Generator, level: float = 0.95, resamples: int = 10_000
) -> Interval:
    """The mean of the groups' means and its percentile-bootstrap interval: tasks are resampled within each group. Per
    group, such as a dataset, (T,) one value per task."""
    observed = [_checked_values(values) for values in groups]
    if not 0 < level < 1 or resamples < 1:
        raise CcrankError(f"an interval needs 0 < level < 1 and resamples ≥ 1, got {level} and {resamples}")
    mean = float(np.mean([values.mean() for values in observed]))
    # A group of one task is the same in every resample; scipy rejects it.
    single = sum(float(values[0]) for values in observed if len(values) == 1)
    drawn = [values for values in observed if len(values) > 1]
    if not drawn:
        return Interval(mean, math.nan, math.nan)
    from scipy import stats  # half a second, which ranking does not need

    # scipy 1.15 renamed the argument that takes a generator.
    argument = "rng" if "rng" in inspect.signature(stats.bootstrap).parameters else "random_state"
    result = stats.bootstrap(
        drawn,
        lambda *samples, axis: (single + sum(sample.mean(axis=axis) for sample in samples)) / len(observed),
        method="percentile",
        confidence_level=level,
        n_resamples=resamples,
        batch=max(1, _CHUNK_ENTRIES // max(map(len, drawn))),
        vectorized=True,
        paired=False,
        **{argument: generator},
    )
    return Interval(mean, float(result.confidence_interval.low), float(result.confidence_interval.high))


def paired_test(
    a: ArrayLike,
    b: ArrayLike,
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = 10_000,
    flips: int = SIGN_FLIPS,
) -> PairedTest:
    """Sign-flip permutation test of mean(a − b) = 0 over the tasks that a and b share, in the same order: under the
    null hypothesis the sign of each task's difference is random. For the p-value see `_flip_share`."""
    first, second = _checked_values(a), _checked_values(b)
    if first.shape != second.shape:
        raise CcrankError(
            f"a paired test needs the same tasks for a and b, got {len(first)} and {len(second)}"
        )
    differences = first - second
    p_value = sign_flip_p(differences, generator, flips)
    return PairedTest(mean_with_interval(differences, generator, level, resamples), p_value, len(differences))


def sign_flip_p(differences: ArrayLike, generator: np.random.Generator, flips: int = SIGN_FLIPS) -> float:
    """p of `paired_test`: the share of sign flips for which |Σ differences| is at least the observed one. (T,)"""
    values = _checked_values(differences)
    # The mirrored flip must count despite rounding.
    threshold = abs(values.sum()) - 1e-12 * np.abs(values).sum()
    reached = count = 0
    for signs in _sign_flips(len(values), generator, flips):
        reached += int((np.abs(signs @ values) >= threshold).sum())
        count += len(signs)
    return _flip_share(reached, count, len(values))


def common_direction(
    tau: ArrayLike, fold: ArrayLike, generator: np.random.Generator, resamples: int = 10_000
) -> CommonDirection:
    """Test whether the probes of k folds have a direction that is the same for the tasks that they have not seen.

    A probe without labels has an arbitrary sign, which may differ between folds and seeds, but within a fold all
    held-out tasks are scored by the same probe. The statistic is the mean over folds and seeds of |mean τ| over the
    fold's tasks; under the null hypothesis each task's τ is multiplied by ±1, the same sign for all seeds. tau (S, T),
    fold (T,)
    """
    values, folds = np.atleast_2d(np.asarray(tau, dtype=float)), np.asarray(fold)
    if values.ndim != 2 or folds.shape != values.shape[1:] or not len(folds) or not np.isfinite(values).all():
        raise CcrankError(
            f"common_direction needs a finite τ for each seed and task and a fold for each task; got shapes "
            f"{values.shape} and {folds.shape}"
        )
    names, sizes = np.unique(folds, return_counts=True)
    share = (folds[:, None] == names) / sizes  # (T, F)
    weighted = (values[:, :, None] * share).transpose(1, 0, 2).reshape(len(folds), -1)  # (T, S·F)
    per_seed = np.abs(weighted.sum(0)).reshape(len(values), -1).mean(1)
    value = float(per_seed.mean())
    reached, total, count = 0, 0.0, 0
    for signs in _sign_flips(len(folds), generator, resamples, weighted.shape[1]):
        drawn = np.abs(signs @ weighted).mean(1)
        reached += int((drawn >= value - 1e-12).sum())
        total, count = total + float(drawn.sum()), count + len(drawn)
    return CommonDirection(
        value, tuple(per_seed.tolist()), total / count, _flip_share(reached, count, len(folds))
    )


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjusted p-values: the family-wise error rate is held if those below the level are rejected.

    p_(1) ≤ … ≤ p_(m) become max_{j ≤ i} min(1, (m − j + 1) p_(j)).

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=float)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise CcrankError(f"p-values must be numbers from 0 to 1, got {values.tolist()!r:.80}")
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, (len(values) - np.arange(len(values))) * values[order])
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted


def detectable_difference(deviation: float, n_tasks: int, level: float = 0.05, power: float = 0.8) -> float:
    """The mean difference that a paired two-sided test over tasks finds with the given power.

    (z_{1 − level/2} + z_power) · deviation / √tasks: the normal approximation of the sign-flip test.

    >>> round(detectable_difference(0.3, 36), 3)
    0.14
    """
    if n_tasks < 2 or deviation < 0 or not 0 < level < 1 or not 0 < power < 1:
        raise CcrankError(
            "a detectable difference needs 2 or more tasks, a deviation of at least 0, and a level and a power between "
            f"0 and 1; got {n_tasks}, {deviation}, {level}, {power}"
        )
    return float((ndtri(1 - level / 2) + ndtri(power)) * deviation / math.sqrt(n_tasks))


def _sign_flips(
    n_tasks: int, generator: np.random.Generator, draws: int, columns: int = 1
) -> Iterator[NDArray[np.float64]]:
    """(rows, n_tasks) of ±1 in chunks: all 2ⁿ for up to `MAX_ENUMERATED_TASKS` tasks, else `draws` random ones."""
    exact = n_tasks <= MAX_ENUMERATED_TASKS
    total, width = 2**n_tasks if exact else draws, -(-n_tasks // 8)
    rows = max(1, _CHUNK_ENTRIES // max(n_tasks, columns))
    for start in range(0, total, rows):
        size = min(rows, total - start)
        if exact:
            packed = np.arange(start, start + size, dtype="<u4").view(np.uint8).reshape(size, 4)
        else:
            packed = generator.integers(256, size=(size, width), dtype=np.uint8)
        bits = np.unpackbits(packed, axis=1, count=n_tasks, bitorder="little")
        yield np.asarray(1.0 - 2.0 * bits, dtype=np.float64)


def _flip_share(reached: int, count: int, n_tasks: int) -> float:
    """p from the flips that reach a statistic: their share if all were enumerated, else (1 + reached) / (1 + count)."""
    return reached / count if n_tasks <= MAX_ENUMERATED_TASKS else (1 + reached) / (1 + count)


def _checked_values(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or len(array) == 0:
        raise CcrankError(f"a mean over tasks needs one value per task, got shape {array.shape}")
    if not np.isfinite(array).all():
        where = int((~np.isfinite(array)).argmax())
        raise CcrankError(f"the value of task {where + 1} is {array[where]}; leave out tasks without a value")
    return array
