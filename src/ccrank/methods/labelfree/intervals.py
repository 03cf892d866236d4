"""How far label-free scores may be off, and intervals of the ranks: a model of how far the signals are apart.

A true score is taken as the Z-score of the item plus d_i ε, with ε ~ N(0, 1) and log d_i = intercept + Σ_k c_k x_k. The
coefficients are data (`intervals.toml`), fitted to lists with gold by `studies/intervals/intervals.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from ccrank.confidence import Features
from ccrank.ranking import Uncertainty
from ccrank.util.files import parse_toml
from ccrank.util.zscores import z_scores

MIN_DRAWS, MAX_DRAWS, MAX_CELLS = 64, 512, 2**20
"""Draws of all scores of a list: fewer for long lists, whose ranks need fewer."""


def label_free_uncertainty(
    signals: Sequence[np.ndarray],
    scores: np.ndarray,
    features: Features,
    coefficients: Mapping[str, float] | None = None,
) -> Uncertainty | None:
    """The uncertainty of scores (N,) that were made of Z-scored signals (N,) each, by the coefficients that are shipped
    or by others; None for a single signal and for scores that are all equal."""
    spread = float(np.std(scores))
    if not (math.isfinite(features.agreement) and spread > 0):
        return None
    own = z_scores(np.asarray(scores, float))
    given = _coefficients() if coefficients is None else coefficients
    logarithm = sum(given[name] * value for name, value in terms_of(signals, features).items())
    deviation = np.exp(np.broadcast_to(logarithm, own.shape))
    count = len(own)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((count, min(max(MAX_CELLS // count, MIN_DRAWS), MAX_DRAWS)))
    low, high = middle_ranks(own[:, None] + deviation[:, None] * noise, rng)
    rank = np.searchsorted(np.sort(-own), -own) + 1
    return Uncertainty(deviation * spread, np.minimum(low, rank), np.maximum(high, rank))


def terms_of(signals: Sequence[np.ndarray], features: Features) -> dict[str, Any]:
    """The x_k by name: the spread of each item's signals (N,), and how far the signals of the list agree."""
    return {
        "intercept": 1.0,
        "spread": np.std(np.stack(signals), axis=0),
        "agreement": features.agreement,
    }


def middle_ranks(
    draws: np.ndarray, rng: np.random.Generator, probability: float = 0.8
) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of each item's rank over draws, 1 = highest: the ranks r with P(rank < r) + ½ P(rank = r)
    between the edges. It holds its probability on average, where whole quantiles of a short list hold more.
    (N, T) -> (N,), (N,)"""
    ranks = np.argsort(np.argsort(-draws, axis=0), axis=0) + rng.uniform(0.5, 1.5, draws.shape)
    edge = (1 - probability) / 2
    low, high = np.quantile(ranks, [edge, 1 - edge], axis=1)
    return np.ceil(low).astype(int), np.floor(high).astype(int)


@cache
def _coefficients() -> Mapping[str, float]:
    found: Mapping[str, float] = parse_toml(resources.files(__package__) / "intervals.toml")["coefficients"]
    return found
