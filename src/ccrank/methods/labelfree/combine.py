"""One ranking from several label-free signals: their mean, how far they agree, and how likely the order is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import comb, isfinite, nan
from typing import Any

import numpy as np
from scipy.special import gammaincc, ndtr

from ccrank.confidence import CHANCE, Features, confidence_of
from ccrank.criteria.exemplars import WRITTEN
from ccrank.criteria.lexicon import poles_of
from ccrank.methods.labelfree.intervals import label_free_uncertainty
from ccrank.methods.labelfree.projections import (
    Positions,
    Projections,
    axis_of,
    written_of,
)
from ccrank.methods.labelfree.signals import are_texts, read_likelihood, read_poles
from ccrank.methods.query_likelihood import describe_relevance
from ccrank.metrics import tau_b
from ccrank.models import Cost, ReaderLike
from ccrank.models.reader_like import middle_and_late
from ccrank.models.reading import PartialProgress, Progress, by_item
from ccrank.prompts import Templates
from ccrank.ranking import Answer, MakeScorer
from ccrank.task import Task
from ccrank.util.zscores import Units, without_rounding

MAX_WRITTEN, MIN_WRITTEN, FULL_AGREEMENT = 0.7, 0.33, 0.5
"""The weight of the exemplars where the other signals do not agree, and where their mean τ is `FULL_AGREEMENT`."""
POLES = "poles"
"""The signal that stands first."""


@dataclass(frozen=True)
class Signals:
    """The Z-scored label-free signals of one task."""

    scores: Mapping[str, np.ndarray]
    """Signal → (N,)."""

    def total(self, constants: tuple[float, Units] | None = None) -> np.ndarray:
        """The mean over signals: (N,). Exemplars count the more, the less the other signals agree, unless the constants
        are those of another list."""
        mean = np.asarray(np.mean(self._others(), axis=0))
        if WRITTEN not in self.scores:
            return mean
        share, others = constants or self.constants()
        return np.asarray(share * self.scores[WRITTEN] + (1 - share) * others(without_rounding(mean)))

    def constants(self) -> tuple[float, Units]:
        """The weight of the exemplars, and the units of the mean of all other signals."""
        return self.written_share(), Units.of(without_rounding(np.mean(self._others(), axis=0)))

    def written_share(self) -> float:
        """The weight of the exemplars beside that of all other signals together."""
        agreement = self.agreement()[0]
        agreed = min(max(agreement / FULL_AGREEMENT, 0.0), 1.0) if np.isfinite(agreement) else 0.5
        return MAX_WRITTEN - (MAX_WRITTEN - MIN_WRITTEN) * agreed

    def _others(self) -> list[np.ndarray]:
        return [row for name, row in self.scores.items() if name != WRITTEN]

    def agreement(self) -> tuple[float, float]:
        """Mean τ between the signals' rankings, and its p-value under independent random orders.

        Signals of one model share its errors (a name that it finds unlikely, words that it prefers), so they may agree
        without being right: the p-value is then too small. Agreement is evidence for an order, not proof.
        Exemplars do not count here: the confidence was fitted to the agreement of the others.
        """
        rows = self._others()
        if len(rows) < 2:
            return float("nan"), float("nan")
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
    """Those of exemplars that were written for the criterion."""


@dataclass(frozen=True)
class SignalModel:
    """From what was read of any item to its label-free score, with constants that are those of a list."""

    units: Mapping[str, Units] = field(default_factory=dict)
    """Signal → its constants; a signal without any is taken as it is."""
    axis: Projections | None = None
    written: Projections | None = None
    share: tuple[float, Units] | None = None
    """See `Signals.constants`."""
    smoothing: Projections | None = None
    """What similar items add; see `anchored.smoothing_of`."""

    @classmethod
    def fit(cls, raw: RawSignals) -> SignalModel:
        """The constants of a list, with which its own items have the signals of a ranking."""
        axis = None if raw.made is None or raw.states is None else axis_of(raw.made, raw.states)
        written = None if raw.written is None or raw.states is None else written_of(raw.written, raw.states)
        plain = cls({}, axis, written)
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

    def __call__(self, raw: RawSignals) -> np.ndarray:
        """Scores of items, (N,): each depends on the item alone."""
        scores = self.signals(raw).total(self.share)
        return (
            scores if self.smoothing is None or raw.states is None else scores + self.smoothing(raw.states[0])
        )


@dataclass(frozen=True)
class SignalReadings:
    """What was read of some tasks: their signals, and states where they were read."""

    raw: list[RawSignals]
    signals: list[Signals]
    states: Mapping[int, tuple[np.ndarray, np.ndarray]]
    """Task → (N, L, d) at the slot and at the item's last token."""
    layers: tuple[int, ...]
    cost: Cost


def read_signals(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    progress: Progress | None = None,
    with_states: bool = False,
    written: bool = True,
) -> SignalReadings:
    """All signals of many tasks, in two readings.

    Tasks without context have poles, likelihood and axis, and exemplars where some were written. With a context the
    answer is in the context and not in what the model knows of the items: such tasks have likelihoods alone, and states
    are read on request. `written`: take the exemplars that were written for a criterion.
    """
    headless = bool(reader.loaded.missing_head)
    raw = [RawSignals({}) for _ in tasks]
    states: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    layers: tuple[int, ...] = ()
    cost = Cost()
    by_states = [index for index, task in enumerate(tasks) if with_states or headless or not task.context]
    if by_states:
        readings = read_poles(
            [tasks[index] for index in by_states],
            reader,
            templates,
            layers=middle_and_late(reader.depth),
            progress=progress,
            written=written,
        )
        layers, cost = readings.layers, readings.cost
        for row, index in enumerate(by_states):
            item, slot = readings.states[row]
            states[index] = slot, item
            raw[index] = RawSignals({}, (item, slot))
            if headless or not tasks[index].context:
                values = {POLES: readings.poles[row]} if readings.poles else {}
                raw[index] = RawSignals(values, (item, slot), readings.made[row], readings.written[row])
                if isinstance(progress, PartialProgress) and len(tasks) == 1:
                    so_far = SignalModel.fit(raw[index]).signals(raw[index])
                    progress.partial(by_item(tasks[index].items, so_far.total()))
    if not headless:
        likelihoods, spent = read_likelihood(tasks, reader, templates, progress=progress)
        cost += spent
        raw = [
            replace(one, values={**one.values, **by_wording})
            for one, by_wording in zip(raw, likelihoods, strict=True)
        ]
    return SignalReadings(raw, [SignalModel.fit(one).signals(one) for one in raw], states, layers, cost)


def answer_of(
    task: Task, signals: Signals, scores: np.ndarray, cost: Cost, scorer: MakeScorer | None = None
) -> Answer:
    """Scores with the signals that they were made of and the confidence in them."""
    words = poles_of(task.criterion)
    details = {
        "poles": [words.low[0], words.high[0]],
        "signals": {name: by_item(task.items, row) for name, row in signals.scores.items()},
    }
    agreement, p_value = signals.agreement()
    understood = task.criterion.understood
    features = Features(
        n_items=len(task.items),
        agreement=agreement,
        p_value=p_value,
        kind="context" if task.context else "text" if are_texts(task.items) else "name",
        poles=words.source if understood is None else understood.source,
        category=task.criterion.category is not None,
    )
    consistency = {"signals_agree": agreement, "signals_p_value": p_value}
    doubt = label_free_uncertainty([*signals.scores.values()], scores, features)
    return Answer(
        scores, consistency, cost, details, scorer, uncertainty=doubt, confidence=confidence_of(features)
    )


def describe_signals(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """The poles, how far the signals agree and what labels changed, as phrases."""
    phrases = []
    if isfinite(agree := consistency.get("signals_agree", nan)):
        low, high = details["poles"]
        agreed = "agree" if consistency.get("signals_p_value", nan) <= CHANCE else "do not agree"
        phrases += [f"from {low} to {high}", f"the signals {agreed} (mean τ = {agree:.2f}; 0 by chance)"]
    phrases += describe_relevance(consistency, details)
    if "labels" in details:
        labels = details["labels"]
        phrases.append(f"{labels['labels']} labels on {labels['labelled']} items")
        if labels["left_out_tau"] is not None:
            phrases.append(
                f"left out, labels are predicted at τ = {labels['left_out_tau']:+.2f} "
                f"({labels['label_free_tau']:+.2f} without labels)"
            )
        if labels["right_pairs"] is not None:
            phrases.append(f"about {labels['right_pairs']:.0%} of all pairs are likely in the right order")
        for found in labels["agreements"]:
            one, other = found["annotators"]
            phrases.append(f"{one} and {other} agree on {found['agreement']:.0%} of {found['pairs']} pairs")
    return phrases
