"""`prompt-pair`: "Is A more than B?" for ordered pairs, answered Yes or No and aggregated into one ranking; of long
lists for few pairs, with random opponents or in a batched quicksort."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import calibrate, check_choice, read_groups, reference_prompts, seeded
from ccrank.metrics import aggregation
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.ranking import Answer
from ccrank.task import Task
from ccrank.util.cancellation import check

AGGREGATIONS = ("wins", "margins", "bradley-terry", "kemeny")
MAX_ITEMS_OF_ALL_PAIRS = 50
ANCHOR_PAIRS = 50
"""Pairs, in both orders, that determine the calibration before sorting starts."""

Pairs = Sequence[tuple[int, int]]


def prompt_pair(
    tasks: Sequence[Task],
    prompter: Prompter,
    *,
    calibration: str = "mean",
    aggregate: str = "wins",
    pairs: str | int = "auto",
    seed: int = 0,
    template: str = "pair",
) -> list[Answer]:
    """Compare every ordered pair (or a subset, for long lists) and aggregate.

    The defaults are the paper's: mean-logit calibration over the task's prompts, wins counted, ties broken by summed
    logits. `pairs` is "all", "sort" (a quicksort with O(N log N) comparisons), a number k of random opponents per item,
    or "auto": all up to 50 items, else a sort.
    """
    check_choice("aggregation", aggregate, AGGREGATIONS)
    prompter.templates[template].yes_and_no()
    prompter.check_fields(template, "item_a", "item_b")
    asker = _Asker(prompter, template, calibration)
    plans = [_plan(len(task.items), pairs, seeded(seed)) for task in tasks]
    together = [(task, plan) for task, plan in zip(tasks, plans, strict=True) if plan is not None]
    answered = iter(asker.read(together) if together else ())
    return [
        _by_sorting(task, asker, aggregate, seeded(seed))
        if plan is None
        else _from_matrix(len(task.items), plan, next(answered), aggregate)
        for task, plan in zip(tasks, plans, strict=True)
    ]


def _plan(count: int, pairs: str | int, generator: np.random.Generator) -> Pairs | None:
    """The ordered pairs to compare; None for a sort, which chooses them adaptively."""
    if pairs == "sort" or (pairs == "auto" and count > MAX_ITEMS_OF_ALL_PAIRS):
        return None
    try:
        opponents = count if pairs in ("all", "auto") else int(pairs)
    except ValueError:
        raise CcrankError(f"pairs must be auto, all, sort or a number of opponents, not {pairs!r}") from None
    if opponents >= count - 1:
        return list(permutations(range(count), 2))
    return random_opponents(count, opponents, generator)


class _Answers(NamedTuple):
    """A task's answers to M pairs."""

    margins: np.ndarray
    """(M,) the calibrated log-odds that the first is higher."""
    shift: float
    """What the calibration adds to a margin, on average."""
    cost: Cost


@dataclass(frozen=True)
class _Asker:
    """Compares pairs of tasks."""

    prompter: Prompter
    template: str
    calibration: str

    def read(self, requests: Sequence[tuple[Task, Pairs]]) -> list[_Answers]:
        """The answers to each task's pairs, with the prompts of all tasks in one reading."""
        groups = []
        for task, pairs in requests:
            prompts = [self.prompter.pair(task, first, second, self.template) for first, second in pairs]
            groups.append(prompts + reference_prompts(prompts[0], self.calibration))
        candidates = self.prompter.templates[self.template].candidates
        tables, costs = read_groups(self.prompter, groups, candidates)
        answers = []
        for (_, pairs), table, cost in zip(requests, tables, costs, strict=True):
            logits, reference = np.split(table, [len(pairs)])
            calibrated = calibrate(logits, self.calibration, reference)
            margins = calibrated[:, 0] - calibrated[:, 1]
            answers.append(_Answers(margins, np.mean(margins - (logits[:, 0] - logits[:, 1])), cost))
        return answers


def _from_matrix(count: int, pairs: Pairs, answers: _Answers, aggregate: str) -> Answer:
    margins = aggregation.margins_of_pairs(count, pairs, answers.margins)
    details: dict[str, Any] = {"comparisons": len(pairs)}
    if aggregate == "bradley-terry":
        asked = np.argwhere(~np.isnan(margins))
        scores, bias = aggregation.bradley_terry(count, asked, margins[tuple(asked.T)])
        details["position_bias"] = round(bias, 6)
    elif aggregate == "kemeny":
        net = np.where(np.isnan(margins), 0.0, margins)
        # How strongly i is preferred to j over both orders.
        order, details["exact"] = aggregation.kemeny_preferences(np.maximum(net - net.T, 0.0))
        scores = aggregation.order_to_scores(order)
    else:
        scores = (
            aggregation.wins_margins(margins) if aggregate == "wins" else aggregation.mean_margins(margins)
        )
    return Answer(scores, pair_consistency(margins), answers.cost, details, pair_margins=margins)


def pair_consistency(margins: np.ndarray) -> Mapping[str, float]:
    """Consistency of pairwise answers; all but the position bias need both orders, or all pairs."""
    circular, triads = aggregation.circular_triads(margins)
    return {
        "both_orders_agree": aggregation.agreement_both_orders(margins),
        "circular_triads": circular,
        "circular_triads_by_chance": triads / 4,
        "first_wins": aggregation.first_share(margins),
    }


def _by_sorting(task: Task, asker: _Asker, aggregate: str, generator: np.random.Generator) -> Answer:
    """Quicksort; its comparisons are then aggregated where that gives more than the order alone."""
    count = len(task.items)
    anchors = _anchors(count, generator)
    [known] = asker.read([(task, anchors)])
    plain, costs = replace(asker, calibration="none"), [known.cost]

    def compare(pairs: Pairs) -> np.ndarray:
        [answers] = plain.read([(task, pairs)])
        costs.append(answers.cost)
        # Every round is calibrated by the anchors.
        return np.asarray(answers.margins + known.shift)

    result = quick_sort(count, compare, generator)
    details = {"comparisons": len(result.margins) + len(anchors), "rounds": result.rounds}
    scores = aggregation.order_to_scores(result.order)
    if aggregate in ("bradley-terry", "margins"):
        scores, _ = aggregation.bradley_terry(count, result.pairs, result.margins)
    return Answer(scores, {}, sum(costs, Cost()), details)


def _anchors(count: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Random distinct pairs of items, each in both orders: at least one pair."""
    first = generator.integers(count, size=min(ANCHOR_PAIRS, count))
    second = (first + generator.integers(1, count, size=len(first))) % count
    chosen = sorted({(int(min(pair)), int(max(pair))) for pair in zip(first, second, strict=True)})
    return [*chosen, *[(b, a) for a, b in chosen]]


def pairs_asked(count: int) -> float:
    """About how many ordered pairs of N items are asked by default: all, or as many as a quicksort compares."""
    if count <= MAX_ITEMS_OF_ALL_PAIRS:
        return count * (count - 1)
    return 1.39 * count * math.log2(count) + 2 * ANCHOR_PAIRS


class SortResult(NamedTuple):
    """The order and all comparisons; `bradley_terry` computes finer scores from them."""

    order: np.ndarray
    """(N,) item indices, highest first."""
    pairs: np.ndarray
    """(M, 2): the compared ordered pairs, each at most once."""
    margins: np.ndarray
    """(M,): their margins."""
    rounds: int
    """The number of sequential batches."""


def quick_sort(
    n_items: int, compare: Callable[[Pairs], np.ndarray], generator: np.random.Generator
) -> SortResult:
    """Sort 0..n_items−1, highest first; all groups of a level are split by their pivots in one call of `compare`, which
    gives the log-odds that the first item of each pair is higher: O(log N) rounds.

    On any tournament, transitive or not, random pivots need about 1.39 N log2 N comparisons in expectation (Ailon &
    Mohri 2008), and the order contradicts at most 3 times as many pairs as the best one (Ailon, Charikar & Newman
    2008). Each pair is presented in a random order, so that a preference for the first position splits a group evenly.
    A margin of 0 is decided at random.
    """
    items = np.arange(n_items)  # in the current order
    # [position]: 0 is the highest group; groups of one item are done.
    group = np.zeros(n_items, dtype=np.int64)
    asked, answered = [], []
    while group[-1] < n_items - 1:
        check()
        sizes = np.bincount(group)
        pivots = np.cumsum(sizes) - sizes + generator.integers(sizes)  # [group]: the pivot's position
        others = np.setdiff1d(np.arange(n_items), pivots)
        pairs = np.stack([items[others], items[pivots[group[others]]]], axis=1)
        flipped = generator.random(len(pairs)) < 0.5
        pairs[flipped] = pairs[flipped, ::-1]
        margins = compare([(first, second) for first, second in pairs.tolist()])
        asked.append(pairs)
        answered.append(margins)
        net = np.where(flipped, -margins, margins)
        higher = np.where(net == 0, generator.random(len(net)) < 0.5, net > 0)
        # Each group is split into the items above its pivot, the pivot, and the items below.
        part = 3 * group + 1
        part[others] += np.where(higher, -1, 1)
        order = np.argsort(part, kind="stable")
        items = items[order]
        group = np.unique(part[order], return_inverse=True)[1]
    return SortResult(items, np.concatenate(asked), np.concatenate(answered), len(asked))


def random_opponents(n_items: int, opponents: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Ordered pairs (first, second) in which every item has `opponents` opponents, or one more if both numbers are odd.

    The items are placed on a ring in random order, and each is paired with those at distance 1 and at further random
    distances ahead: a connected graph in which each item is first as often as second, and no pair occurs twice. For an
    odd number, the last opponent is the opposite item, presented first or second at random.
    """
    if opponents < 1 or (opponents == 1 and n_items > 2):
        raise CcrankError(f"{opponents} opponents per item leave {n_items} items unconnected; use at least 2")
    wanted = min(opponents, n_items - 1)
    if n_items % 2 == 1 and wanted % 2 == 1:
        wanted += 1
    ring = generator.permutation(n_items)
    further = generator.permutation(np.arange(2, (n_items - 1) // 2 + 1))
    distances = [1, *further.tolist()][: wanted // 2]
    pairs = [np.stack([ring, np.roll(ring, -distance)], axis=1) for distance in distances]
    if wanted % 2 == 1:
        half = n_items // 2
        opposite = np.stack([ring[:half], ring[half:]], axis=1)
        pairs.append(np.where(generator.random((half, 1)) < 0.5, opposite, opposite[:, ::-1]))
    return [(int(first), int(second)) for first, second in np.concatenate(pairs)]
