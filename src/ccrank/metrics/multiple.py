"""Several tests together: Holm's correction for their number, and the difference that they could have found."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from ccrank.errors import CcrankError


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjusted p-values: the family-wise error rate is held if those below the level are rejected.

    p_(1) ≤ … ≤ p_(m) become max_{j ≤ i} min(1, (m − j + 1) p_(j)).

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
