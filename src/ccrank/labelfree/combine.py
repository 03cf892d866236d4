"""One ranking from several routes, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import norm

from ccrank.labelfree.routes import Looks, middle_and_late, read_likelihood, read_poles, standard
from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.metrics import chance_tau_sd, kendall_tau
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

        Independent random orders have τ of mean 0 and of a known deviation; over K pairs the mean's is 1/√K of it
        (pairs of independent orders are uncorrelated even where they share one).
        """
        rows = [*self.scores.values()]
        taus = [kendall_tau(first, second) for first, second in combinations(rows, 2)]
        if not taus:
            return float("nan"), float("nan")
        mean = float(np.mean(taus))
        deviation = chance_tau_sd(len(rows[0])) / np.sqrt(len(taus))
        return mean, float(norm.sf(mean / deviation))


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
