"""How far label-free scores may be off, and intervals of the ranks, by how far the signals are apart.

A true score is the Z-score of the item plus d_i ε, with ε ~ N(0, 1) and log d_i = intercept + Σ_k c_k x_k. The
coefficients are data (`intervals.toml`), fitted to lists with gold by `studies/intervals/intervals.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from ccrank.confidence import Features
from ccrank.ranking import Uncertainty
from ccrank.util.files import parse_toml

MAX_SPREAD = 2.0
"""A larger spread of an item's signals counts as this: no item of the lists of the fit has one."""
MAX_LOG = 70.0
MIN_DRAWS, MAX_DRAWS, MAX_CELLS = 64, 512, 2**20
"""Draws of all scores of a list: fewer for long lists, whose ranks need fewer."""


@dataclass(frozen=True)
class ScoreError:
    """The standard deviation of the label-free score of any item: exp(level + slope · spread of its signals)."""

    level: float
    slope: float

    def __post_init__(self) -> None:
        if not max(abs(self.level), abs(self.slope)) <= MAX_LOG:
            raise ValueError("a standard deviation beyond all numbers")

    @classmethod
    def fit(
        cls, scores: np.ndarray, features: Features, coefficients: Mapping[str, float] | None = None
    ) -> ScoreError | None:
        """For scores (N,) of a list, by the packaged coefficients or by others; None for a single signal and for scores
        that are all equal."""
        unit = float(np.std(scores))
        if not (math.isfinite(features.agreement) and unit > 0):
            return None
        given = _coefficients() if coefficients is None else coefficients
        terms = {name: given[name] * value for name, value in list_terms(features).items()}
        return cls(math.log(unit) + sum(terms.values()), given["spread"])

    def __call__(self, signals: Sequence[np.ndarray]) -> np.ndarray:
        """Signals, (N,) each -> (N,)"""
        return np.asarray(np.exp(self.level + self.slope * spread_of(signals)))


def spread_of(signals: Sequence[np.ndarray]) -> np.ndarray:
    """How far the signals of each item are apart: the x_k of an item. (N,) each -> (N,)"""
    return np.asarray(np.minimum(np.std(np.stack(signals), axis=0), MAX_SPREAD))


def list_terms(features: Features) -> dict[str, float]:
    """The x_k of a list by name."""
    return {"intercept": 1.0, "agreement": features.agreement}


def uncertainty_of(scores: np.ndarray, deviation: np.ndarray) -> Uncertainty:
    """The uncertainty of scores of a list, (N,), whose errors are independent and normal."""
    count = len(scores)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((count, min(max(MAX_CELLS // count, MIN_DRAWS), MAX_DRAWS)))
    low, high = middle_ranks(scores[:, None] + deviation[:, None] * noise, rng)
    rank = np.searchsorted(np.sort(-scores), -scores) + 1
    return Uncertainty(deviation, np.minimum(low, rank), np.maximum(high, rank))


def middle_ranks(
    draws: np.ndarray, rng: np.random.Generator, probability: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of each item's rank over draws, 1 = highest: the ranks r with P(rank < r) + ½ P(rank = r)
    between the edges, since whole quantiles of a short list hold more than the probability. (N, T) -> (N,), (N,)"""
    ranks = np.argsort(np.argsort(-draws, axis=0), axis=0) + rng.uniform(0.5, 1.5, draws.shape)
    edge = (1 - probability) / 2
    low, high = np.quantile(ranks, [edge, 1 - edge], axis=1)
    return np.ceil(low).astype(int), np.floor(high).astype(int)


@cache
def _coefficients() -> Mapping[str, float]:
    coefficients: Mapping[str, float] = parse_toml(resources.files(__package__) / "intervals.toml")[
        "coefficients"
    ]
    return coefficients
