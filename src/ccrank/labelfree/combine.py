"""One ranking from several routes, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, isfinite

import numpy as np
from scipy.stats import kendalltau, pearson3

from ccrank.labelfree.routes import Looks, middle_and_late, read_likelihood, read_poles, standard
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


def read_parts(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    progress: Progress | None = None,
    with_states: bool = False,
) -> tuple[list[Parts], Looks | None, Cost]:
    """All routes for many tasks, each in one reading.

    Tasks without context are ranked by poles in two wordings, likelihood and axis. Where a context is given, the answer
    is in the context and not in what the model knows of the items: there the likelihoods decide.
    """
    parts: list[dict[str, np.ndarray]] = [{} for _ in tasks]
    cost = Cost()
    plain = [index for index, task in enumerate(tasks) if not task.context]
    told = [index for index, task in enumerate(tasks) if task.context]
    headless = bool(reader.loaded.missing_head)
    looks = None
    if plain or with_states or headless:
        asked = list(range(len(tasks))) if with_states or headless else plain
        looks = read_poles(
            [tasks[index] for index in asked],
            reader,
            templates,
            "poles-very",
            layers=middle_and_late(reader.depth),
            progress=progress,
        )
        cost += looks.cost
        for place, index in enumerate(asked):
            if index in plain or headless:
                if looks.poles:
                    parts[index]["poles-very"] = looks.poles[place]
                parts[index]["axis"] = looks.axis[place]
    if plain and not headless:
        own = [tasks[index] for index in plain]
        among = read_poles(own, reader, templates, "poles-among", "superlatives", progress=progress)
        cost += among.cost
        for place, index in enumerate(plain):
            parts[index]["poles-among"] = among.poles[place]
    if not headless:
        likelihood, spent = read_likelihood(tasks, reader, templates, "list-of", progress=progress)
        cost += spent
        for index, scores in enumerate(likelihood):
            parts[index]["likelihood"] = scores
    if told and not headless:
        own = [tasks[index] for index in told]
        said, spent = read_likelihood(own, reader, templates, "this-is", contrast=False, progress=progress)
        cost += spent
        for place, index in enumerate(told):
            parts[index]["said"] = said[place]
    return [Parts({name: standard(one) for name, one in part.items()}) for part in parts], looks, cost
