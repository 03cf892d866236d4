"""`prompt-pair`: "Is A more than B?" for ordered pairs, answered Yes or No and aggregated into one ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import calibrate, read_groups, reference_prompts, seeded
from ccrank.methods.prompting.sorting import quick_sort, random_opponents
from ccrank.metrics.pairwise import (
    agreement_both_orders,
    bradley_terry_margins,
    bradley_terry_pairs,
    circular_triads,
    first_share,
    margins_of_pairs,
    mean_margins,
    wins_margins,
)
from ccrank.metrics.rankings import kemeny_preferences, order_to_scores
from ccrank.models import Cost, ReaderLike
from ccrank.models.reading import Progress, Request
from ccrank.prompts import Form, Prompt, Templates
from ccrank.ranking import Answer
from ccrank.task import Task

AGGREGATIONS = ("wins", "margins", "bradley-terry", "kemeny")
MAX_ITEMS_OF_ALL_PAIRS = 50
ANCHOR_PAIRS = 50
"""Pairs, in both orders, that determine the calibration before sorting starts."""


def prompt_pair(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    calibration: str = "mean",
    aggregate: str = "wins",
    pairs: str | int = "auto",
    seed: int = 0,
    template: str = "pair",
    progress: Progress | None = None,
) -> list[Answer]:
    """Compare every ordered pair (or a subset, for long lists) and aggregate.

    The defaults are the paper's: mean-logit calibration over the task's prompts, wins counted, ties broken by summed
    logits. `pairs` is "all", "sort" (a quicksort with O(N log N) comparisons), a number k of random opponents per item,
    or "auto": all up to 50 items, else a sort.
    """
    if aggregate not in AGGREGATIONS:
        raise CcrankError(f"unknown aggregation {aggregate!r}; choose one of {', '.join(AGGREGATIONS)}")
    templates[template].yes_and_no()
    templates[template].check_fields(reader.form, "item_a", "item_b")
    asker = _Asker(reader, templates, template, calibration, progress)
    plans = [_plan(len(task.items), pairs, seeded(seed)) for task in tasks]
    together = [(task, plan) for task, plan in zip(tasks, plans, strict=True) if plan is not None]
    answered = iter(asker.ask_all(together) if together else ())
    return [
        _by_sorting(task, asker, aggregate, seeded(seed))
        if plan is None
        else _from_matrix(len(task.items), plan, *next(answered), aggregate)
        for task, plan in zip(tasks, plans, strict=True)
    ]


def _plan(count: int, pairs: str | int, generator: np.random.Generator) -> list[tuple[int, int]] | None:
    """The ordered pairs to compare; None for a sort, which chooses them adaptively."""
    if pairs == "sort" or (pairs == "auto" and count > MAX_ITEMS_OF_ALL_PAIRS):
        return None
    if pairs in ("all", "auto"):
        return list(permutations(range(count), 2))
    try:
        opponents = int(pairs)
    except ValueError:
        raise CcrankError(f"pairs must be auto, all, sort or a number of opponents, not {pairs!r}") from None
    if opponents >= count - 1:
        return _plan(count, "all", generator)
    return random_opponents(count, opponents, generator)


@dataclass(frozen=True)
class _Asker:
    """Compares pairs of a task and returns calibrated margins: the log-odds that the first is higher."""

    reader: ReaderLike
    templates: Templates
    template: str
    calibration: str
    progress: Progress | None

    def prompts(self, task: Task, pairs: Sequence[tuple[int, int]]) -> list[Prompt]:
        return [
            self.templates.pair(task, first, second, self.reader.form, self.template)
            for first, second in pairs
        ]

    def read(self, groups: Sequence[Sequence[Prompt]]) -> tuple[list[np.ndarray], list[Cost]]:
        """The logits of groups of prompts and their costs."""
        return read_groups(self.reader, groups, self.templates[self.template].candidates, self.progress)

    def ask_all(
        self, requests: Sequence[tuple[Task, Sequence[tuple[int, int]]]]
    ) -> list[tuple[np.ndarray, Cost]]:
        """(pairs,) margins of each task, with the prompts of all tasks in one reading."""
        groups = []
        for task, pairs in requests:
            prompts = self.prompts(task, pairs)
            groups.append([*prompts, *reference_prompts(prompts[0], self.calibration)])
        logits, costs = self.read(groups)
        return [
            (self.margins(values[: len(pairs)], values[len(pairs) :]), cost)
            for (_, pairs), values, cost in zip(requests, logits, costs, strict=True)
        ]

    def margins(self, logits: np.ndarray, reference: np.ndarray) -> np.ndarray:
        calibrated = calibrate(logits, self.calibration, reference)
        return np.asarray(calibrated[:, 0] - calibrated[:, 1])


def _from_matrix(
    count: int, pairs: Sequence[tuple[int, int]], values: np.ndarray, cost: Cost, aggregate: str
) -> Answer:
    margins = margins_of_pairs(count, pairs, values)
    details: dict[str, Any] = {"comparisons": len(pairs)}
    if aggregate == "wins":
        scores = wins_margins(margins)
    elif aggregate == "margins":
        scores = mean_margins(margins)
    elif aggregate == "bradley-terry":
        fit = bradley_terry_margins(margins)
        scores = fit.scores
        details["position_bias"] = round(fit.position_bias, 6)
    else:
        net = np.where(np.isnan(margins), 0.0, margins)
        consensus = kemeny_preferences(
            np.maximum(net - net.T, 0.0)
        )  # how strongly i is preferred to j over both orders
        scores = order_to_scores(consensus.order)
        details["exact"] = bool(consensus.exact)
    return Answer(scores, pair_consistency(margins), cost, details, pair_margins=margins)


def _by_sorting(task: Task, asker: _Asker, aggregate: str, generator: np.random.Generator) -> Answer:
    """Quicksort; its comparisons are then aggregated where that gives more than the order alone."""
    count = len(task.items)
    anchors = _anchors(count, generator)
    costs = []
    prompts = asker.prompts(task, anchors)
    references = reference_prompts(prompts[0], asker.calibration)
    [known], cost = asker.read([[*prompts, *references]])
    costs.extend(cost)

    def compare(pairs: list[tuple[int, int]]) -> np.ndarray:
        [values], cost = asker.read([asker.prompts(task, pairs)])
        costs.extend(cost)
        # The anchors' logits are added to the new ones, so that every round has the same calibration.
        shifted = asker.margins(known[: len(anchors)], known[len(anchors) :])
        plain = known[: len(anchors), 0] - known[: len(anchors), 1]
        return np.asarray(values[:, 0] - values[:, 1] + np.mean(shifted - plain))

    result = quick_sort(count, compare, generator)
    details: dict[str, Any] = {"comparisons": result.comparisons + len(anchors), "rounds": result.rounds}
    scores = result.scores
    if aggregate in ("bradley-terry", "margins"):
        scores = bradley_terry_pairs(count, result.pairs, result.margins).scores
    return Answer(scores, {}, sum(costs, Cost()), details)


def _anchors(count: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Random distinct pairs of items, each in both orders: at least one pair."""
    first = generator.integers(count, size=min(ANCHOR_PAIRS, count))
    second = (first + generator.integers(1, count, size=len(first))) % count
    chosen = sorted({(int(min(pair)), int(max(pair))) for pair in zip(first, second, strict=True)})
    return [*chosen, *[(b, a) for a, b in chosen]]


def pair_consistency(margins: np.ndarray) -> Mapping[str, float]:
    """Consistency of pairwise answers; all but the position bias need both orders, or all pairs."""
    triads = circular_triads(margins)
    return {
        "both_orders_agree": agreement_both_orders(margins),
        "circular_triads": float(triads.observed),
        "circular_triads_by_chance": float(triads.expected),
        "first_wins": first_share(margins),
    }


def pair_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `prompt-pair` if all pairs are compared."""
    prompts = [templates.pair(task, *pair, form) for pair in permutations(range(len(task.items)), 2)]
    return [(prompts, templates["pair"].candidates)]


def describe_pairs(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """How consistent the pairwise answers are, as phrases."""
    phrases = []
    # With few opponents, pairs are compared in one order only, and there are no complete triads.
    if math.isfinite(agree := consistency.get("both_orders_agree", math.nan)):
        phrases.append(f"both orders agree on {agree:.0%} of pairs (50% by chance)")
    if expected := consistency.get("circular_triads_by_chance"):
        phrases.append(f"{consistency['circular_triads']:g} circular triads ({expected:g} by chance)")
    if "first_wins" in consistency:
        phrases.append(f"first item wins {consistency['first_wins']:.0%}")
    if "comparisons" in details:
        phrases.append(f"{details['comparisons']:,} comparisons")
    return phrases


def pairs_asked(count: int) -> float:
    """About how many ordered pairs of N items are asked by default: all, or those of a quick-sort."""
    if count <= MAX_ITEMS_OF_ALL_PAIRS:
        return count * (count - 1)
    return 1.39 * count * math.log2(count) + 2 * ANCHOR_PAIRS
