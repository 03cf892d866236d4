"""How well labels are predicted by each other: τ where left out, and labels that disagree with the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from ccrank.methods.labelled.fit import Fitted
from ccrank.util.cancellation import check

SURPRISING = 0.02
"""A label whose probability, given all others, is below this is said to disagree with them. For a value it is the
two-sided probability of being as far from its prediction."""


@dataclass(frozen=True)
class HeldOut:
    """Each label as predicted by all others."""

    probability: np.ndarray
    """(M,) of the label: two-sided for a value, of the order for a pair or pick."""
    tau: float
    """Of pairs of values, pairs and picks, as predicted without the labels that they are about; NaN without any."""
    prior_tau: float
    """The same by the label-free score."""

    @property
    def surprising(self) -> np.ndarray:
        """Rows whose labels disagree with the rest, the most surprising first."""
        rows = np.flatnonzero(self.probability < SURPRISING)
        return rows[np.argsort(self.probability[rows], kind="stable")]


def leave_out(fitted: Fitted) -> HeldOut:
    """Leave each label out in turn, in closed form.

    With P = (G + W⁻¹)⁻¹ and r = P(sites − mean), the residual of a block B that is left out is P_BB⁻¹ r_B, and its
    covariance is P_BB⁻¹. This is exact for values; pairs and picks keep their site as Laplace's approximation has it.
    """
    seen = fitted.observations
    probability = np.zeros(len(seen))
    signs = 0.0
    highs, lows = _value_pairs(fitted)
    for weight, setting, posterior in zip(fitted.weights, fitted.settings, fitted.posteriors, strict=True):
        check()
        inverse = posterior.inverse()
        diagonal = np.diag(inverse)
        sites = posterior.sites
        residual, variance = posterior.dual / diagonal, 1 / diagonal
        predicted = sites - residual
        # What is left out is predicted without its own noise: 1/P_ii holds it, once.
        noise = 1 / posterior.precision
        spread = np.sqrt(np.maximum(variance - noise, 1e-12) + setting.noise * seen.noises)
        z = (seen.target - predicted) / spread
        own_probability = np.where(seen.is_value, 2 * ndtr(-np.abs(z)), ndtr(-z))
        probability += weight * own_probability
        difference = _left_out_differences(inverse, posterior.dual, sites, highs, lows)
        order = np.concatenate([difference, (predicted - seen.target)[~seen.is_value]])
        signs = signs + weight * order
    count = len(highs) + int((~seen.is_value).sum())
    if not count:
        return HeldOut(probability, float("nan"), float("nan"))
    before = seen.contrast @ fitted.prior[seen.items]
    prior_order = np.concatenate([before[highs] - before[lows], (before - seen.target)[~seen.is_value]])
    return HeldOut(probability, float(np.sign(signs).mean()), float(np.sign(prior_order).mean()))


def _value_pairs(fitted: Fitted, most: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Rows (higher, lower) of all pairs of unequal values within a list; an even sample of too many."""
    seen = fitted.observations
    above = seen.target[:, None] > seen.target[None]
    within = (seen.lists[:, None] == seen.lists[None]) & np.outer(seen.is_graded, seen.is_graded)
    other = seen.first[:, None] != seen.first[None]
    highs, lows = np.nonzero(above & within & other)
    step = -(-len(highs) // most) or 1
    return highs[::step], lows[::step]


def _left_out_differences(
    inverse: np.ndarray, dual: np.ndarray, sites: np.ndarray, highs: np.ndarray, lows: np.ndarray
) -> np.ndarray:
    """Predicted g[high] − g[low] with both rows left out, for each pair."""
    a, b, c = inverse[highs, highs], inverse[highs, lows], inverse[lows, lows]
    first, second = dual[highs], dual[lows]
    determinant = a * c - b * b
    residual = ((c * first - b * second) - (a * second - b * first)) / determinant
    return np.asarray(sites[highs] - sites[lows] - residual)
