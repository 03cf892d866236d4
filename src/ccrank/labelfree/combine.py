"""One ranking from several routes, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, isfinite

import numpy as np
from scipy.stats import kendalltau, pearson3

from ccrank.labelfree.routes import middle_and_late, read_likelihood, read_poles, standard
from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.prompts import Templates
from ccrank.task import Task

DOUBT = 0.1
"""Parts whose agreement has a higher p-value than this are said to be no better than chance."""


@dataclass(frozen=True)
class Parts:
    """The standardised scores of each route for one task."""

    scores: Mapping[str, np.ndarray]
    """Route → (N,)."""

    def total(self) -> np.ndarray:
        """The mean over routes: (N,)."""
        return np.asarray(np.mean([*self.scores.values()], axis=0))

    def agreement(self) -> tuple[float, float]:
        """Mean τ between the routes' rankings, and how likely routes that know nothing would agree as well.

        The p-value is that of independent random orders. Routes of one model share its blunders (a name that it finds
        strange, words that it likes), so that they may agree without being right: the p-value is then too small, and
        agreement is a reason to trust an order, never a proof.
        """
        rows = [*self.scores.values()]
        if len(rows) < 2:
            return float("nan"), float("nan")
        mean = float(np.mean([tied_tau(first, second) for first, second in combinations(rows, 2)]))
        return mean, chance_of_agreement(mean, len(rows[0]), len(rows))


def tied_tau(first: np.ndarray, second: np.ndarray) -> float:
    """Kendall's τ-b where both sides may tie, as the logits of a model in half precision do; 0 if one ties in all."""
    tau = float(kendalltau(first, second).statistic)
    return tau if isfinite(tau) else 0.0


def chance_of_agreement(mean: float, n_items: int, n_routes: int) -> float:
    """P(mean τ between K independent random orders of N items ≥ `mean`), by the law's first three moments.

    Let s be a random order's signs over its P = N(N−1)/2 pairs. Its covariance C has the eigenvalues (N+1)/3, N − 1
    times, and 1/3 for the rest, and τ = sᵀs′/P. So τ has mean 0 and variance tr C²/P², τs that share an order are
    uncorrelated, and three τs in a triangle have the mean product tr C³/P³, which makes the law lean to the right.
    """
    pairs = comb(n_items, 2)

    def trace(power: int) -> float:
        return float(((n_items - 1) * (n_items + 1) ** power + pairs - n_items + 1) / 3**power)

    taus = comb(n_routes, 2)
    deviation = np.sqrt(trace(2) / pairs**2 / taus)
    skew = 6 * comb(n_routes, 3) * trace(3) / pairs**3 / taus**3 / deviation**3
    return float(pearson3.sf(mean / deviation, skew))


@dataclass(frozen=True)
class Read:
    """All that was read of some tasks: their parts, and states where they were read."""

    parts: list[Parts]
    states: Mapping[int, tuple[np.ndarray, np.ndarray]]
    """Task → (N, L, d) at the slot and at the item's last token."""
    layers: tuple[int, ...]
    cost: Cost


def read_parts(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    progress: Progress | None = None,
    with_states: bool = False,
) -> Read:
    """All routes for many tasks, in two readings.

    Tasks without context are ranked by poles, likelihood and axis. Where a context is given, the answer is in the
    context and not in what the model knows of the items: there the likelihoods decide, and states are read on request.
    """
    headless = bool(reader.loaded.missing_head)
    parts: list[dict[str, np.ndarray]] = [{} for _ in tasks]
    states: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    layers: tuple[int, ...] = ()
    cost = Cost()
    asked = [index for index, task in enumerate(tasks) if with_states or headless or not task.context]
    if asked:
        own = [tasks[index] for index in asked]
        looks = read_poles(own, reader, templates, layers=middle_and_late(reader.depth), progress=progress)
        layers, cost = looks.layers, looks.cost
        for place, index in enumerate(asked):
            states[index] = looks.states[place], looks.item_states[place]
            if headless or not tasks[index].context:
                if looks.poles:
                    parts[index]["poles"] = looks.poles[place]
                parts[index]["axis"] = looks.axis[place]
    if not headless:
        likelihood, spent = read_likelihood(tasks, reader, templates, progress=progress)
        cost += spent
        for part, scores in zip(parts, likelihood, strict=True):
            part.update(scores)
    standardised = [Parts({name: standard(one) for name, one in part.items()}) for part in parts]
    return Read(standardised, states, layers, cost)
