"""One ranking from several label-free signals: directions in hidden states, the mean of the signals, how far they
agree, and scores of any item with the constants of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import comb, isfinite, nan
from typing import Any

import numpy as np
from scipy.special import gammaincc, ndtr

from ccrank.criteria.exemplars import WRITTEN
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.intervals import ScoreError
from ccrank.methods.query_likelihood import describe_relevance
from ccrank.metrics.order import tau_b
from ccrank.ranking import ItemScores
from ccrank.util.zscores import FLOAT32_ROUNDING, Units, without_rounding

MAX_WRITTEN, MIN_WRITTEN, FULL_AGREEMENT = 0.7, 0.33, 0.5
"""The weight of the exemplars where the other signals do not agree, and where their mean τ is `FULL_AGREEMENT`."""
POLES = "poles"
"""The signal that stands first."""
SLOT_SHARE = 2 / 3
"""The weight of the slot's states in the signal `exemplars`; the item's last token has the rest."""

Positions = tuple[np.ndarray, np.ndarray]
"""(N, L, d) states at the item's last token and at the slot."""


@dataclass(frozen=True)
class Projections:
    """Σ_p share_p · z(mean over layers l of z(w_plᵀ x_pl)), of states x at the item (p = 0) and at the slot (p = 1)."""

    weights: np.ndarray  # (P, L, d)
    shares: tuple[float, ...]  # (P,)
    layers: Units
    """The constants of each projection: (P, L, 1)."""
    means: Units | None = None
    """The constants of the mean over layers, (P, 1); None takes the mean as it is."""

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
        return cls(weights, shares, layers, Units.of(without_rounding(layers(projected).mean(axis=1))))

    def __call__(self, *states: np.ndarray) -> np.ndarray:
        """(N, L, d) states at both positions -> (N,)"""
        shapes = [table.shape[1:] for table in states]
        if len(shapes) < len(self.weights) or {*shapes} != {self.weights.shape[1:]}:
            raise CcrankError(
                f"the directions are for states {self.weights.shape}, got {shapes}; read them with the model and "
                "layers of the fit"
            )
        means = without_rounding(self.layers(project(self.weights, states)).mean(axis=1))
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


def axis_of(made: Positions, states: Positions) -> Projections:
    """The direction from the low to the high pole: (2E, L, d) exemplars twice, (N, L, d) states twice."""
    return Projections.fit(np.stack([*map(axis_direction, made)]), (1.0, 1.0), states)


def written_of(texts: Positions, states: Positions) -> Projections:
    """A probe that was fitted to exemplars written for the criterion: (T, L, d) twice, (N, L, d) twice."""
    weights = np.stack([*map(text_weights, texts)])
    return Projections.fit(weights, (1 - SLOT_SHARE, SLOT_SHARE), states)


def axis_direction(exemplar_states: np.ndarray) -> np.ndarray:
    """The unit vectors from the low to the high pole, 0 where these differ by rounding alone: (2E, L, d), the high pole
    first -> (L, d)"""
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


@dataclass(frozen=True)
class Signals:
    """The Z-scored label-free signals of one task."""

    scores: Mapping[str, np.ndarray]  # signal → (N,)

    def total(self, constants: tuple[float, Units] | None = None) -> np.ndarray:
        """The mean over signals: (N,). Exemplars count the more, the less the other signals agree, unless the constants
        are those of another list."""
        mean = np.asarray(np.mean(self.others, axis=0))
        if WRITTEN not in self.scores:
            return mean
        share, others = constants or self.constants()
        return np.asarray(share * self.scores[WRITTEN] + (1 - share) * others(without_rounding(mean)))

    def constants(self) -> tuple[float, Units]:
        """The weight of the exemplars beside all other signals together, and the units of the mean of these."""
        agreement = self.agreement()[0]
        agreed = min(max(agreement / FULL_AGREEMENT, 0.0), 1.0) if isfinite(agreement) else 0.5
        share = MAX_WRITTEN - (MAX_WRITTEN - MIN_WRITTEN) * agreed
        return share, Units.of(without_rounding(np.mean(self.others, axis=0)))

    @cached_property
    def others(self) -> list[np.ndarray]:
        """All but the exemplars."""
        return [row for name, row in self.scores.items() if name != WRITTEN]

    def agreement(self) -> tuple[float, float]:
        """Mean τ between the signals' rankings, and its p-value under independent random orders, without the exemplars:
        the confidence was fitted to the agreement of the others.

        Signals of one model share its errors, so they may agree without being right: the p-value is then too small.
        """
        rows = self.others
        if len(rows) < 2:
            return nan, nan
        mean = float(np.mean([tau_b(first, second) for first, second in combinations(rows, 2)]))
        return mean, chance_of_agreement(mean, len(rows[0]), len(rows))


def chance_of_agreement(mean: float, n_items: int, n_signals: int) -> float:
    """P(mean τ between K independent random orders of N items ≥ `mean`), by the law's first three moments.

    Let s be a random order's signs over its P = N(N−1)/2 pairs. Its covariance C has the eigenvalues (N+1)/3, N − 1
    times, and 1/3 for the rest, and τ = sᵀs′/P. So τ has mean 0 and variance tr C²/P², τs that share an order are
    uncorrelated, and three τs in a triangle have the mean product tr C³/P³, which makes the law lean to the right.
    """
    pairs = comb(n_items, 2)

    def trace(power: int) -> float:
        return float(((n_items - 1) * (n_items + 1) ** power + pairs - n_items + 1) / 3**power)

    taus = comb(n_signals, 2)
    deviation = np.sqrt(trace(2) / pairs**2 / taus)
    skew = 6 * comb(n_signals, 3) * trace(3) / pairs**3 / taus**3 / deviation**3
    # The survival function of Pearson's type III law with mean 0, variance 1 and this skew: a shifted gamma law, or a
    # normal law without skew.
    if not skew:
        return float(ndtr(-mean / deviation))
    return float(gammaincc(4 / skew**2, max(0.0, 2 / skew * (mean / deviation + 2 / skew))))


@dataclass(frozen=True)
class RawSignals:
    """What is read of some items, before any standardisation."""

    values: Mapping[str, np.ndarray]
    """Signal → (N,): poles, then each wording of the likelihood."""
    states: Positions | None = None
    made: Positions | None = None
    """States of exemplars made of the pole words, where the axis is a signal."""
    written: Positions | None = None
    """States of exemplars that were written for the criterion."""
    bits: float = 0.0
    """Bits per character that the model spends on the items; 0 where they are not known."""

    @property
    def axis(self) -> Projections | None:
        """The direction from the low to the high pole; None without exemplars."""
        return None if self.made is None or self.states is None else axis_of(self.made, self.states)

    @cached_property
    def signals(self) -> Signals:
        """The signals of a list, Z-scored."""
        return SignalModel.fit(self).signals(self)


@dataclass(frozen=True)
class SignalModel:
    """From what was read of any item to its label-free score, with the constants of a list."""

    units: Mapping[str, Units] = field(default_factory=dict)
    """Signal → its constants; a signal without any is taken as it is."""
    axis: Projections | None = None
    written: Projections | None = None
    share: tuple[float, Units] | None = None
    """See `Signals.constants`."""
    smoothing: Projections | None = None
    """What similar items add; see `anchored.smoothing_of`."""
    error: ScoreError | None = None
    """How far scores may be off, where several signals say so."""

    @classmethod
    def fit(cls, raw: RawSignals) -> SignalModel:
        """The constants of a list, with which its own items have the signals of a ranking."""
        written = None if raw.written is None or raw.states is None else written_of(raw.written, raw.states)
        plain = cls({}, raw.axis, written)
        model = replace(plain, units={name: Units.of(row) for name, row in plain.signals(raw).scores.items()})
        return model if written is None else replace(model, share=model.signals(raw).constants())

    def signals(self, raw: RawSignals) -> Signals:
        """The signals of items."""
        rows = {name: row for name, row in raw.values.items() if name == POLES}
        if raw.states is not None:
            given = {"axis": self.axis, WRITTEN: self.written}
            rows |= {name: one(*raw.states) for name, one in given.items() if one is not None}
        rows |= raw.values
        return Signals(
            {name: self.units[name](row) if name in self.units else row for name, row in rows.items()}
        )

    def __call__(self, raw: RawSignals) -> ItemScores:
        """Scores of items: each depends on the item alone."""
        signals = self.signals(raw)
        scores = signals.total(self.share)
        if self.smoothing is not None and raw.states is not None:
            scores = scores + self.smoothing(raw.states[0])
        return ItemScores(scores, None if self.error is None else self.error([*signals.scores.values()]))


def describe_signals(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """The poles and what labels changed, as phrases."""
    phrases = []
    if isfinite(consistency.get("signals_agree", nan)):
        phrases.append("from {} to {}".format(*details["poles"]))
    phrases += describe_relevance(consistency, details)
    if "labels" in details:
        labels = details["labels"]
        phrases.append(f"{labels['labels']} labels on {labels['labelled']} items")
        if labels["right_pairs"] is not None:
            phrases.append(f"about {labels['right_pairs']:.0%} of all pairs are likely in the right order")
        for found in labels["agreements"]:
            one, other = found["annotators"]
            phrases.append(f"{one} and {other} agree on {found['agreement']:.0%} of {found['pairs']} pairs")
    return phrases
