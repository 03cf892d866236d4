"""Metrics over many tasks: bootstrap intervals, paired tests, and the summary with its chance floor."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccrank.errors import CcrankError
from ccrank.metrics.chance import Floor, chance_floor, p_value_abs_tau, p_value_tau
from ccrank.metrics.order import TaskMetrics

ENUMERATED_TASKS = 16
"""Largest number of tasks for which the paired test enumerates all 2ⁿ sign flips."""

_CHUNK_ENTRIES = 2**22  # resamples × tasks drawn at once: bounds memory to about 32 MB


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks with its bootstrap interval; the interval of a single task is NaN."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Comparison of a and b on the same tasks."""

    difference: Estimate
    """Mean of a − b over tasks."""
    p_value: float
    """Two-sided, from flipping the sign of each task's difference."""
    n_tasks: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Metrics over tasks, each with its interval and the chance level for tasks of the same sizes."""

    n_tasks: int
    tau: Estimate
    abs_tau: Estimate
    accuracy: Estimate
    free_accuracy: Estimate
    chance_abs_tau: Floor
    chance_free_accuracy: Floor
    p_tau: float
    """Two-sided p-value of the mean τ under random orders."""
    p_abs_tau: float
    """One-sided p-value of the mean |τ| under random orders."""


def mean_with_interval(
    values: ArrayLike, generator: np.random.Generator, level: float = 0.95, resamples: int = 10_000
) -> Estimate:
    """The mean over tasks and its percentile-bootstrap interval: tasks are resampled with replacement.

    Parameters
    ----------
    values
        (T,) one value per task.
    generator
        The generator of the resamples.
    level
        The coverage of the interval.
    resamples
        The number of bootstrap samples.
    """
    return macro_mean_with_interval([values], generator, level, resamples)


def macro_mean_with_interval(
    groups: Sequence[ArrayLike],
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = 10_000,
) -> Estimate:
    """The mean of the groups' means and its percentile-bootstrap interval: tasks are resampled within each group.

    Parameters
    ----------
    groups
        Per group, such as a dataset, (T,) one value per task.
    generator, level, resamples
        As in `mean_with_interval`.
    """
    observed = [_checked_values(values) for values in groups]
    if not 0 < level < 1 or resamples < 1:
        raise CcrankError(f"an interval needs 0 < level < 1 and resamples ≥ 1, got {level} and {resamples}")
    mean = float(np.mean([values.mean() for values in observed]))
    # A group of one task is the same in every resample; scipy rejects it.
    single = sum(float(values[0]) for values in observed if len(values) == 1)
    drawn = [values for values in observed if len(values) > 1]
    if not drawn:
        return Estimate(mean, float("nan"), float("nan"))
    from scipy import stats  # half a second, which ranking does not need

    # scipy 1.15 renamed the argument that takes a generator.
    argument = "rng" if "rng" in inspect.signature(stats.bootstrap).parameters else "random_state"
    found = stats.bootstrap(
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
    return Estimate(mean, float(found.confidence_interval.low), float(found.confidence_interval.high))


def paired_test(
    a: ArrayLike,
    b: ArrayLike,
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = 10_000,
) -> PairedTest:
    """Sign-flip permutation test of mean(a − b) = 0 over the tasks that a and b share, in the same order.

    Under the null hypothesis the sign of each task's difference is random. Up to `ENUMERATED_TASKS` tasks
    all flips are enumerated; beyond, p = (1 + flips at least as extreme) / (1 + resamples).

    Parameters
    ----------
    a, b
        (T,) one value per task, in the same order.
    generator
        The generator of the resamples.
    level
        The coverage of the interval of the difference.
    resamples
        The number of bootstrap samples and of sampled sign flips.
    """
    first, second = _checked_values(a), _checked_values(b)
    if first.shape != second.shape:
        raise CcrankError(
            f"a paired test needs the same tasks for a and b, got {len(first)} and {len(second)}"
        )
    differences = first - second
    n_tasks = len(differences)
    # The mirrored flip must count despite rounding.
    threshold = abs(differences.sum()) - 1e-12 * np.abs(differences).sum()
    if n_tasks <= ENUMERATED_TASKS:
        flips = (np.arange(2**n_tasks)[:, None] >> np.arange(n_tasks)) & 1
        p_value = float((np.abs((1 - 2 * flips) @ differences) >= threshold).mean())
    else:
        extreme = sum(
            int(
                (
                    np.abs((1 - 2 * generator.integers(2, size=(rows, n_tasks))) @ differences) >= threshold
                ).sum()
            )
            for rows in _chunks(resamples, n_tasks)
        )
        p_value = (1 + extreme) / (1 + resamples)
    return PairedTest(mean_with_interval(differences, generator, level, resamples), p_value, n_tasks)


def summarise(
    per_task: Sequence[TaskMetrics],
    generator: np.random.Generator,
    level: float = 0.95,
    resamples: int = 10_000,
) -> Summary:
    """Means over tasks with bootstrap intervals, chance floors and p-values against random orders.

    The p-values assume untied scores: with many ties they are approximate.

    Parameters
    ----------
    per_task
        The metrics of each task, from `evaluate`.
    generator
        The generator of the bootstrap samples.
    level
        The coverage of the intervals.
    resamples
        The number of bootstrap samples.
    """
    if not per_task:
        raise CcrankError("summarise needs at least 1 evaluated task, got none")

    def estimate(field: str) -> Estimate:
        return mean_with_interval([getattr(task, field) for task in per_task], generator, level, resamples)

    sizes = [task.n_items for task in per_task]
    floor = chance_floor(sizes, level)
    tau, abs_tau = estimate("tau"), estimate("abs_tau")
    return Summary(
        n_tasks=len(per_task),
        tau=tau,
        abs_tau=abs_tau,
        accuracy=estimate("accuracy"),
        free_accuracy=estimate("free_accuracy"),
        chance_abs_tau=floor,
        chance_free_accuracy=Floor((1 + floor.mean) / 2, (1 + floor.low) / 2, (1 + floor.high) / 2),
        p_tau=p_value_tau(tau.mean, sizes),
        p_abs_tau=p_value_abs_tau(abs_tau.mean, sizes),
    )


def _chunks(resamples: int, n_tasks: int) -> Iterator[int]:
    """Row counts that add up to `resamples`, each small enough to draw at once."""
    rows = max(1, _CHUNK_ENTRIES // n_tasks)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)


def _checked_values(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or len(array) == 0:
        raise CcrankError(f"a mean over tasks needs one value per task, got shape {array.shape}")
    if not np.isfinite(array).all():
        where = int((~np.isfinite(array)).argmax())
        raise CcrankError(f"the value of task {where + 1} is {array[where]}; leave out tasks without a value")
    return array
