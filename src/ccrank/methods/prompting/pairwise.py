"""`prompt-pair`: "Is A more than B?" for ordered pairs, answered Yes or No and aggregated into one ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ccrank.aggregate import (
    agreement_both_orders,
    bradley_terry,
    bradley_terry_pairs,
    circular_triads,
    kemeny,
    margins_of_pairs,
    mean_margins,
    order_to_scores,
    position_bias,
    win_counts,
)
from ccrank.errors import CcrankError
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.reader import Progress
from ccrank.lm.reading import Request
from ccrank.prompting.asking import read_groups, reference_prompts, seeded
from ccrank.prompting.calibration import calibrate
from ccrank.prompts import Form, Prompt, Templates
from ccrank.ranking import Answer
from ccrank.sorting import quick_sort, random_opponents
from ccrank.task import Task

AGGREGATIONS = ("wins", "margins", "bradley-terry", "kemeny")
MOST_FOR_ALL_PAIRS = 50
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
    candidates = templates[template].candidates
    if len(candidates) != 2:
        raise CcrankError(
            f"template {template!r} needs two candidates, for yes and for no, got {list(candidates)}"
        )
    templates[template].check_fields(reader.form, "item_a", "item_b")
    asker = _Asker(reader, templates, template, calibration, progress)
    plans = [_plan(len(task.items), pairs, seeded(seed)) for task in tasks]
    together = [index for index, plan in enumerate(plans) if plan is not None]
    answered = asker.ask_all([(tasks[index], plans[index] or []) for index in together])
    answers: dict[int, Answer] = {}
    for index, (margins, cost) in zip(together, answered, strict=True):
        asked = plans[index] or []
        answers[index] = _from_matrix(len(tasks[index].items), asked, margins, aggregate, cost)
    for index, task in enumerate(tasks):
        if index not in answers:
            answers[index] = _by_sorting(task, asker, aggregate, seeded(seed))
    return [answers[index] for index in range(len(tasks))]


def _plan(count: int, pairs: str | int, generator: np.random.Generator) -> list[tuple[int, int]] | None:
    """The ordered pairs to compare; None for a sort, which chooses them adaptively."""
    if pairs == "sort" or (pairs == "auto" and count > MOST_FOR_ALL_PAIRS):
        return None
    if pairs in ("all", "auto"):
        return [(first, second) for first in range(count) for second in range(count) if first != second]
    try:
        opponents = int(pairs)
    except ValueError:
        raise CcrankError(f"pairs must be auto, all, sort or a number of opponents, not {pairs!r}") from None
    if opponents >= count - 1:
        return _plan(count, "all", generator)
    return [(int(first), int(second)) for first, second in random_opponents(count, opponents, generator)]


class _Asker:
    """Compares pairs of a task and returns calibrated margins: the log-odds that the first is higher."""

    def __init__(
        self,
        reader: ReaderLike,
        templates: Templates,
        template: str,
        calibration: str,
        progress: Progress | None,
    ) -> None:
        self.reader, self.templates, self.template = reader, templates, template
        self.calibration, self.progress = calibration, progress
        self.candidates = templates[template].candidates

    def prompts(self, task: Task, pairs: Sequence[tuple[int, int]]) -> list[Prompt]:
        return [
            self.templates.pair(task, first, second, self.reader.form, self.template)
            for first, second in pairs
        ]

    def ask_all(
        self, requests: Sequence[tuple[Task, Sequence[tuple[int, int]]]]
    ) -> list[tuple[np.ndarray, Cost]]:
        """(pairs,) margins of each task, with the prompts of all tasks in one reading."""
        groups = []
        for task, pairs in requests:
            prompts = self.prompts(task, pairs)
            groups.append([*prompts, *reference_prompts(prompts[0], self.calibration)])
        logits, costs = read_groups(self.reader, groups, self.candidates, self.progress)
        return [
            (self.margins(values[: len(pairs)], values[len(pairs) :]), cost)
            for (_, pairs), values, cost in zip(requests, logits, costs, strict=True)
        ]

    def margins(self, logits: np.ndarray, reference: np.ndarray) -> np.ndarray:
        calibrated = calibrate(logits, self.calibration, reference)
        return np.asarray(calibrated[:, 0] - calibrated[:, 1])


def _from_matrix(
    count: int, pairs: Sequence[tuple[int, int]], values: np.ndarray, aggregate: str, cost: Cost
) -> Answer:
    margins = margins_of_pairs(count, pairs, values)
    details: dict[str, Any] = {"comparisons": len(pairs)}
    if aggregate == "wins":
        scores = win_counts(margins)
    elif aggregate == "margins":
        scores = mean_margins(margins)
    elif aggregate == "bradley-terry":
        fit = bradley_terry(margins)
        scores = fit.scores
        details["position_bias"] = round(fit.position_bias, 6)
    else:
        consensus = kemeny(_preferences(margins))
        scores = order_to_scores(consensus.order)
        details["exact"] = bool(consensus.exact)
    return Answer(scores, pair_consistency(margins), cost, details, pair_margins=margins)


def _preferences(margins: np.ndarray) -> np.ndarray:
    """How strongly i is preferred to j over both orders, never negative; the input of `kemeny`."""
    net = np.where(np.isnan(margins), 0.0, margins)
    return np.asarray(np.maximum(net - net.T, 0.0))


def _by_sorting(task: Task, asker: _Asker, aggregate: str, generator: np.random.Generator) -> Answer:
    """Quicksort; its comparisons are then aggregated where that gives more than the order alone."""
    count = len(task.items)
    anchors = _anchors(count, generator)
    costs = []
    prompts = asker.prompts(task, anchors)
    references = reference_prompts(prompts[0], asker.calibration)
    [known], cost = read_groups(asker.reader, [[*prompts, *references]], asker.candidates, asker.progress)
    costs.extend(cost)

    def compare(pairs: list[tuple[int, int]]) -> np.ndarray:
        [values], cost = read_groups(
            asker.reader, [asker.prompts(task, pairs)], asker.candidates, asker.progress
        )
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
    bias = position_bias(margins)
    return {
        "both_orders_agree": agreement_both_orders(margins),
        "circular_triads": float(triads.observed),
        "circular_triads_by_chance": float(triads.expected),
        "first_wins": bias.first_share,
    }


def pair_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `prompt-pair` if all pairs are compared."""
    places = range(len(task.items))
    pairs = [(first, second) for first in places for second in places if first != second]
    prompts = [templates.pair(task, first, second, form) for first, second in pairs]
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
    if count <= MOST_FOR_ALL_PAIRS:
        return count * (count - 1)
    return 1.39 * count * math.log2(count) + 2 * ANCHOR_PAIRS
