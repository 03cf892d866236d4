"""Z-scores of numpy arrays and torch tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

FLOAT32_ROUNDING = 16 * float(np.finfo(np.float32).eps)
"""Relative deviation below which float32 values, such as hidden states, count as constant."""
ROUNDING = 1e-9
"""The same for scores, which are float64."""


def mean_and_deviation(values: Any, axis: int = -1, rounding: float = ROUNDING) -> tuple[Any, Any]:
    """Mean and population standard deviation along an axis, which keeps length 1.

    The deviation is 0 where the values are constant up to rounding: otherwise the rounding errors of a constant
    feature would be scaled up to unit variance.
    """
    if isinstance(values, np.ndarray):
        mean, deviation = values.mean(axis, keepdims=True), values.std(axis, keepdims=True)
        largest = np.maximum(values.max(axis, keepdims=True), -values.min(axis, keepdims=True))  # no copy
        return mean, np.where(deviation <= rounding * largest, 0.0, deviation)
    import torch

    deviation, mean = torch.std_mean(values, dim=axis, correction=0, keepdim=True)
    largest = values.abs().amax(axis, keepdim=True)
    return mean, deviation.masked_fill(deviation <= rounding * largest, 0.0)


def z_scores(values: Any, axis: int = -1, rounding: float = ROUNDING) -> Any:
    """(x − mean) / deviation along an axis; 0 where all values are equal up to rounding.

    >>> z_scores(np.array([1.0, 2.0, 3.0])).round(2).tolist(), z_scores(np.array([5.0, 5.0])).tolist()
    ([-1.22, 0.0, 1.22], [0.0, 0.0])
    """
    return Units.of(values, axis, rounding)(values)


@dataclass(frozen=True)
class Units:
    """(x − mean) / deviation, with constants that may be from other values; 0 where those were constant."""

    mean: Any
    deviation: Any

    def __post_init__(self) -> None:
        if self.mean.shape != self.deviation.shape:
            raise ValueError("a mean and a deviation of different shapes")

    @classmethod
    def of(cls, values: Any, axis: int = -1, rounding: float = ROUNDING) -> Units:
        """The constants of values along an axis, which keeps length 1."""
        return cls(*mean_and_deviation(values, axis, rounding))

    def __call__(self, values: Any) -> Any:
        """Z-scores with these constants."""
        varies = self.deviation > 0
        return (values - self.mean) / (self.deviation + ~varies) * varies


def without_rounding(values: Any) -> np.ndarray:
    """Z-scores with 0 where they cancel up to rounding. Of two items each is ±1, and sums of as many of both signs are
    common: rounding errors would otherwise decide the order."""
    return np.where(np.abs(values) <= ROUNDING, 0.0, values)


def z_scores_of_mean(mean: np.ndarray) -> np.ndarray:
    """Z-scores of a mean of Z-scores (N,); 0 where these cancel up to rounding.

    >>> z_scores_of_mean(np.array([5e-17, -5e-17])).tolist()
    [0.0, 0.0]
    """
    return np.asarray(z_scores(without_rounding(mean)))
