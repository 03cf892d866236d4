"""One ranking from several label-free signals, and how far they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from scipy.special import gammaincc, ndtr

from ccrank.exemplars import WRITTEN
from ccrank.labelfree.signals import read_likelihood, read_poles
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.layers import middle_and_late
from ccrank.lm.reader import Progress
from ccrank.lm.watch import Watcher, by_item
from ccrank.metrics import tau_b
from ccrank.prompts import Templates
from ccrank.standardise import z_scores
from ccrank.task import Task

MOST_WRITTEN, LEAST_WRITTEN, FULL_AGREEMENT = 0.7, 0.33, 0.5
"""Its weight where the other signals do not agree at all, and where their mean τ is the last number or more."""


@dataclass(frozen=True)
class Signals:
    """The Z-scored label-free signals of one task."""

    scores: Mapping[str, np.ndarray]
    """Signal → (N,)."""

    def total(self) -> np.ndarray:
        """The mean over signals: (N,). Exemplars count the more, the less the other signals agree."""
        mean = np.asarray(np.mean(self._others(), axis=0))
        if WRITTEN not in self.scores:
            return mean
        share = self.written_share()
        return np.asarray(share * self.scores[WRITTEN] + (1 - share) * z_scores(mean))

    def written_share(self) -> float:
        """The weight of the exemplars beside that of all other signals together."""
        agreement = self.agreement()[0]
        agreed = min(max(agreement / FULL_AGREEMENT, 0.0), 1.0) if np.isfinite(agreement) else 0.5
        return MOST_WRITTEN - (MOST_WRITTEN - LEAST_WRITTEN) * agreed

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
class SignalReadings:
    """What was read of some tasks: their signals, and states where they were read."""

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
    signals: list[dict[str, np.ndarray]] = [{} for _ in tasks]
    states: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    layers: tuple[int, ...] = ()
    cost = Cost()
    asked = [index for index, task in enumerate(tasks) if with_states or headless or not task.context]
    if asked:
        own = [tasks[index] for index in asked]
        found = read_poles(
            own, reader, templates, layers=middle_and_late(reader.depth), progress=progress, written=written
        )
        layers, cost = found.layers, found.cost
        for place, index in enumerate(asked):
            states[index] = found.states[place], found.item_states[place]
            if headless or not tasks[index].context:
                if found.poles:
                    signals[index]["poles"] = found.poles[place]
                signals[index]["axis"] = found.axis[place]
                if (by_exemplars := found.exemplars[place]) is not None:
                    signals[index][WRITTEN] = by_exemplars
                if isinstance(progress, Watcher) and len(tasks) == 1:
                    so_far = Signals({name: z_scores(one) for name, one in signals[index].items()})
                    progress.partial(by_item(tasks[index].items, so_far.total()))
    if not headless:
        likelihood, spent = read_likelihood(tasks, reader, templates, progress=progress)
        cost += spent
        for own_signals, scores in zip(signals, likelihood, strict=True):
            own_signals.update(scores)
    standardised = [Signals({name: z_scores(one) for name, one in raw.items()}) for raw in signals]
    return SignalReadings(standardised, states, layers, cost)
