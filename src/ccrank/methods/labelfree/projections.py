"""Directions in hidden states, and scores by them with constants that are those of a list: fitted once, then applied to
any item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccrank.errors import CcrankError
from ccrank.util.zscores import FLOAT32_ROUNDING, Units, without_rounding

SLOT_SHARE = 2 / 3
"""The weight of the slot's states in the signal `exemplars`; the rest is that of the item's last token."""

Positions = tuple[np.ndarray, np.ndarray]
"""(N, L, d) states at the item's last token and at the slot."""


@dataclass(frozen=True)
class Projections:
    """Σ_p share_p · z(mean over layers l of z(w_plᵀ x_pl)), of states x at the item (p = 0) and at the slot (p = 1)."""

    weights: np.ndarray
    """(P, L, d)"""
    shares: tuple[float, ...]
    """(P,)"""
    layers: Units
    """The constants of each projection: (P, L, 1)."""
    means: Units | None = None
    """Those of the mean over layers, (P, 1); None takes the mean as it is."""

    def __post_init__(self) -> None:
        positions, depth, _ = self.weights.shape
        wrong = self.layers.mean.shape != (positions, depth, 1) or len(self.shares) != positions
        if wrong or (self.means is not None and self.means.mean.shape != (positions, 1)):
            raise ValueError("the constants of projections do not fit their directions")

    @classmethod
    def fit(cls, weights: np.ndarray, shares: tuple[float, ...], states: Sequence[np.ndarray]) -> Projections:
        """With the constants of a list: (P, L, d) directions, P times (N, L, d) states."""
        projected = project(weights, states)
        layers = Units.of(projected)
        return cls(weights, shares, layers, Units.of(_mean(layers(projected))))

    def __call__(self, *states: np.ndarray) -> np.ndarray:
        """(N, L, d) states at both positions -> (N,)"""
        if any(one.shape[1:] != self.weights.shape[1:] for one in states) or len(states) < len(self.weights):
            found = [one.shape[1:] for one in states]
            raise CcrankError(
                f"the directions are for states {self.weights.shape}, got {found}; read them with the model and layers "
                "of the fit"
            )
        means = _mean(self.layers(project(self.weights, states)))
        scaled = means if self.means is None else self.means(means)
        return without_rounding(sum(share * row for share, row in zip(self.shares, scaled, strict=True)))


def project(weights: np.ndarray, states: Sequence[np.ndarray]) -> np.ndarray:
    """wᵀx of each position and layer: (P, L, d), P times (N, L, d) -> (P, L, N)"""
    return np.stack(
        [
            [table[:, layer].astype(float) @ row for layer, row in enumerate(rows)]
            for rows, table in zip(weights, states, strict=False)
        ]
    )


def _mean(projected: np.ndarray) -> np.ndarray:
    return without_rounding(projected.mean(axis=1))


def axis_of(made: Positions, states: Positions) -> Projections:
    """The direction from the low to the high pole: (2E, L, d) exemplars twice, (N, L, d) states twice."""
    return Projections.fit(np.stack([axis_direction(one) for one in made]), (1.0, 1.0), states)


def written_of(texts: Positions, states: Positions) -> Projections:
    """A probe that was fitted to exemplars written for the criterion: (T, L, d) twice, (N, L, d) twice."""
    weights = np.stack([text_weights(one) for one in texts])
    return Projections.fit(weights, (1 - SLOT_SHARE, SLOT_SHARE), states)


def axis_direction(exemplar_states: np.ndarray) -> np.ndarray:
    """The unit vectors from the low to the high pole: (2E, L, d), the high pole first -> (L, d).

    They are 0 where the poles differ by rounding alone.
    """
    made = exemplar_states.astype(float)
    half = len(made) // 2
    direction = made[:half].mean(axis=0) - made[half:].mean(axis=0)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    rounding = FLOAT32_ROUNDING * np.linalg.norm(made, axis=2).max(axis=0)[:, None]
    return np.where(length > rounding, direction / np.maximum(length, rounding + (rounding == 0)), 0.0)


def text_weights(texts: np.ndarray) -> np.ndarray:
    """w = argmin ‖Aw − y‖² + d‖w‖² with A the Z-scored states of the texts of a layer and y = ±1, for states as they
    are: (T, L, d), the high pole's texts first -> (L, d)"""
    half = len(texts) // 2
    target = np.repeat([1.0, -1.0], half)
    weights = []
    for layer in range(texts.shape[1]):
        states = texts[:, layer].astype(float)
        scale = np.where((deviation := states.std(axis=0)) > 0, deviation, 1.0)
        table = (states - states.mean(axis=0)) / scale
        dual = np.linalg.solve(table @ table.T + table.shape[1] * np.eye(len(table)), target)
        weights.append(table.T @ dual / scale)
    return np.stack(weights)
