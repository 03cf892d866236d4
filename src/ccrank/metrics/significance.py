"""Tests over a study: correction for their number, what they could have shown, and directions that tasks share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ccrank.errors import CcrankError

_CHUNK_ENTRIES = 2**22  # resamples × tasks drawn at once: bounds memory to about 32 MB


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


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjusted p-values: the family-wise error rate is held if those below the level are rejected.

    p_(1) ≤ … ≤ p_(m) become max_{j ≤ i} min(1, (m − j + 1) p_(j)).

    Parameters
    ----------
    p_values
        (m,) the p-values of one family of tests.

    Examples
    --------
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

    Parameters
    ----------
    deviation
        Standard deviation of the tasks' differences.
    n_tasks
        The number of tasks.
    level
        The test's level; divide it by the number of tests for a correction by Bonferroni.
    power
        The probability that the test rejects.

    Examples
    --------
    >>> round(detectable_difference(0.3, 36), 3)
    0.14
    """
    if n_tasks < 2 or deviation < 0 or not 0 < level < 1 or not 0 < power < 1:
        raise CcrankError(
            "a detectable difference needs 2 or more tasks, a deviation of at least 0, and a level and a power between "
            f"0 and 1; got {n_tasks}, {deviation}, {level}, {power}"
        )
    return float((ndtri(1 - level / 2) + ndtri(power)) * deviation / math.sqrt(n_tasks))


def common_direction(
    tau: ArrayLike, fold: ArrayLike, generator: np.random.Generator, resamples: int = 10_000
) -> CommonDirection:
    """Test whether the probes of k folds have a direction that is the same for the tasks that they have not seen.

    A probe without labels has an arbitrary sign, which may differ between folds and seeds, but within a fold all
    held-out tasks are scored by the same probe. The statistic is the mean over folds (and seeds) of |mean τ| over the
    fold's tasks. Under the null hypothesis each task's direction is random: its τ is multiplied by ±1, the same sign
    for all seeds. p = (1 + draws that reach the statistic) / (1 + draws).

    Parameters
    ----------
    tau
        (S, T) signed τ of each seed and task.
    fold
        (T,) the fold in which each task was held out.
    generator
        The generator of the signs.
    resamples
        The number of draws.
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
    rows = max(1, _CHUNK_ENTRIES // max(len(folds), weighted.shape[1]))
    drawn = np.concatenate(
        [
            np.abs(_signs(generator, min(rows, resamples - start), len(folds)) @ weighted).mean(1)
            for start in range(0, resamples, rows)
        ]
    )
    reached = int((drawn >= value - 1e-12).sum())
    return CommonDirection(
        value,
        tuple(per_seed.tolist()),
        float(drawn.mean()),
        (1 + reached) / (1 + resamples),
    )


def _signs(generator: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    """(rows, columns) of ±1."""
    return np.where(generator.integers(2, size=(rows, columns)), 1.0, -1.0)
