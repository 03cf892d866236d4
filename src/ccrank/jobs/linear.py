"""Linear functions of hidden states, and Z-scores with fixed constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccrank.util.zscores import mean_and_deviation


@dataclass(frozen=True)
class Units:
    """x ↦ (x − mean) · factor: a Z-score whose mean and deviation are those of a sample."""

    mean: float = 0.0
    factor: float = 1.0
    """1 / deviation; 0 where the sample does not vary."""

    @classmethod
    def of(cls, values: np.ndarray) -> Units:
        """The constants with which the sample's own Z-scores are computed.

        Shapes: values (N,).
        """
        mean, deviation = (float(one[0]) for one in mean_and_deviation(values))
        return cls(mean, 1 / deviation if deviation > 0 else 0.0)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """(…,) values in these units."""
        return np.asarray((values - self.mean) * self.factor)


@dataclass(frozen=True)
class Linear:
    """Σ_pld w_pld x_pld + offset, of states x at the item (p = 0) and at the slot (p = 1)."""

    weights: np.ndarray
    """(2, L, d)"""
    offset: float = 0.0

    def __call__(self, item_states: np.ndarray, slot_states: np.ndarray) -> np.ndarray:
        """(N, L, d) states at both positions -> (N,)"""
        total = np.full(len(item_states), self.offset)
        for states, weights in zip((item_states, slot_states), self.weights, strict=True):
            if weights.any():
                total += np.einsum("nld,ld->n", states.astype(float), weights)
        return total

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.weights + other.weights, self.offset + other.offset)

    def in_units(self, units: Units) -> Linear:
        """The same function, then `units`."""
        return Linear(self.weights * units.factor, (self.offset - units.mean) * units.factor)
