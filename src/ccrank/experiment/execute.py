"""One unit of work: scores of every task, rows for the table, and the tasks that failed with their reasons."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.experiment.choice import ALONE, Choice
from ccrank.experiment.states import SharedStates, blocks
from ccrank.experiment.trouble import TROUBLE, reason_of
from ccrank.experiment.units import TaskSet, Unit
from ccrank.lm import Reader
from ccrank.lm.reader import Progress
from ccrank.metrics import evaluate
from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy
from ccrank.probing.crossval import cross_validate
from ccrank.probing.fits import points_of_pairs
from ccrank.probing.methods import seed_scores, seeds_agree
from ccrank.probing.objectives import Settings, objective_of
from ccrank.probing.selection import closest_to_anchors
from ccrank.prompts import Templates
from ccrank.rank import rank_tasks
from ccrank.ranking import Ranking, from_canonical
from ccrank.task import Task

FOLDS = 4
HEADLINES = ("both_orders_agree", "shuffles_agree", "seeds_agree")
"""The one number of consistency that a row has: of pairs, of lists, of probes."""
BLOCK_COMPARISONS = 2048

Row = dict[str, Any]


@dataclass
class Outcome:
    """What a unit gave."""

    rows: list[Row] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Task id → reason."""


@dataclass(frozen=True)
class Scored:
    """One task's scores by one seed and layer."""

    task: Task
    scores: np.ndarray
    layer: int = -1
    seed: int = 0
    consistency: float = math.nan
    distinct_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Fitted:
    """One task's scores by the probes of one layer."""

    place: int
    """Where its states stand among those that were read."""
    index: int
    """Which of the tasks it is."""
    scores: np.ndarray
    """(seeds, N)"""
    seconds: float
    """What the fit of one seed took."""


def run_asking(
    unit: Unit,
    task_set: TaskSet,
    reader: Reader,
    templates: Templates,
    options: dict[str, Any],
    progress: Progress | None = None,
) -> Outcome:
    """A unit of a method that is no probe: what `rank_tasks` gives.

    Methods that see one task at a time go block by block, the same blocks in every run (see `read_shared`).
    """
    outcome, tasks = Outcome(), task_set.tasks
    name = unit.choice.name

    def ask(some: Sequence[Task]) -> list[tuple[Ranking, float]]:
        start = time.perf_counter()
        rankings = rank_tasks(some, reader, name, templates, progress, **options)
        for ranking in rankings:
            _check_scores(ranking.scores, ranking.task)
        return [(ranking, (time.perf_counter() - start) / len(some)) for ranking in rankings]

    sizes = [len(task.items) * (len(task.items) - 1) for task in tasks]
    whole = [list(range(len(tasks)))]
    for block in blocks(sizes, BLOCK_COMPARISONS) if name in ALONE else whole:
        answered = _isolating([tasks[index] for index in block], ask, outcome.failures)
        for ranking, seconds in answered:
            headline = next(
                (ranking.consistency[key] for key in HEADLINES if key in ranking.consistency), math.nan
            )
            scored = Scored(
                ranking.task,
                ranking.scores,
                consistency=headline,
                distinct_tokens=ranking.cost.distinct_tokens,
                seconds=seconds,
            )
            outcome.rows.append(row_of(unit, task_set.kind, scored))
    return outcome


def run_probe(
    unit: Unit,
    task_set: TaskSet,
    shared: SharedStates,
    sorted_tasks: Sequence[Task],
    orders: Sequence[Sequence[int]],
    seeds: int,
    settings: Settings,
    device: str = "cpu",
) -> Outcome:
    """A unit of a probe on states that were read before: rows for each layer, task and seed.

    The states belong to `sorted_tasks`, whose items stand in canonical order; `orders` leads back. Where the states
    have anchors, the rows are those of the one layer that agrees best with them.
    """
    choice, outcome = unit.choice, Outcome()
    outcome.failures = {task_set.tasks[index].id: reason for index, reason in shared.failures.items()}
    own_seeds = choice.seeds(seeds)
    by_layer: list[tuple[int, list[Fitted]]] = []
    for column, layer in enumerate(shared.layers):
        states = shared.of_layer(column)
        members = [
            (place, index)
            for place, index in enumerate(shared.tasks)
            if task_set.tasks[index].id not in outcome.failures
        ]

        def fit(some: Sequence[tuple[int, int]], states: list[np.ndarray] = states) -> list[Fitted]:
            start = time.perf_counter()
            found = probe_scores(
                [sorted_tasks[index] for _, index in some],
                [states[place] for place, _ in some],
                choice,
                own_seeds,
                settings,
                device,
            )
            for (_, index), scores in zip(some, found, strict=True):
                _check_scores(scores, sorted_tasks[index])
            seconds = (time.perf_counter() - start) / (len(some) * len(own_seeds))
            return [Fitted(*one, scores, seconds) for one, scores in zip(some, found, strict=True)]

        if choice.supervised:
            members = _with_gold(members, task_set.tasks, choice, outcome.failures)
        fitted = _isolating(
            members,
            fit,
            outcome.failures,
            name=lambda member: task_set.tasks[member[1]].id,
            pooled=choice.split == "across-tasks",
        )
        by_layer.append((layer, fitted))
    # A task that failed in one layer has no rows in the others either: means over tasks stay comparable.
    by_layer = [
        (layer, [one for one in fitted if task_set.tasks[one.index].id not in outcome.failures])
        for layer, fitted in by_layer
    ]
    if shared.anchors is not None:
        by_layer = [closest_layer(by_layer, shared.anchors)]
    for layer, fitted in by_layer:
        for one in fitted:
            agree = seeds_agree(one.scores)
            for seed, values in zip(own_seeds, one.scores, strict=True):
                scored = Scored(
                    task_set.tasks[one.index],
                    from_canonical(values, orders[one.index]),
                    layer,
                    seed,
                    agree,
                    shared.costs[one.place].distinct_tokens,
                    shared.seconds / len(shared.tasks) + one.seconds,
                )
                outcome.rows.append(row_of(unit, task_set.kind, scored))
    return outcome


def closest_layer(
    by_layer: Sequence[tuple[int, list[Fitted]]], anchors: Mapping[int, np.ndarray]
) -> tuple[int, list[Fitted]]:
    """The layer whose probes agree best with the anchors, its fits being charged for those of all layers."""
    own = [anchors[one.index] for one in by_layer[0][1]]
    chosen = closest_to_anchors([[one.scores for one in fitted] for _, fitted in by_layer], own)
    layer, fitted = by_layer[chosen]
    seconds = np.sum([[one.seconds for one in others] for _, others in by_layer], axis=0)
    return layer, [replace(one, seconds=float(spent)) for one, spent in zip(fitted, seconds, strict=True)]


def probe_scores(
    tasks: Sequence[Task],
    states: Sequence[np.ndarray],
    choice: Choice,
    seeds: Sequence[int],
    settings: Settings,
    device: str = "cpu",
) -> list[np.ndarray]:
    """Each task's item scores by each seed, (seeds, N); datasets of fewer tasks than folds get a fold for each task."""
    if choice.split != "across-tasks" or len(tasks) >= FOLDS:
        protocol = "same-task" if choice.split == "none" else choice.split
        return seed_scores(tasks, states, choice.name, seeds, settings, protocol, device)[0]
    gold = [np.asarray(task.values) for task in tasks] if choice.supervised else None
    _, scores = cross_validate(
        states, choice.name, folds=len(tasks), gold=gold, seeds=seeds, settings=settings, device=device
    )
    if objective_of(choice.name).prompt == "pair":
        scores = [points_of_pairs(one, len(task.items)) for one, task in zip(scores, tasks, strict=True)]
    return scores


def row_of(unit: Unit, kind: str, scored: Scored) -> Row:
    """A row of the results; metrics are NaN for a task without gold."""
    task, count = scored.task, len(scored.task.items)
    found = None if task.values is None else evaluate(scored.scores, task.values)
    return {
        "dataset": unit.dataset,
        "task": task.id,
        "n_items": count,
        "model": unit.model,
        "method": unit.choice.label,
        "layer": scored.layer,
        "seed": scored.seed,
        "split": unit.choice.split,
        "tau": math.nan if found is None else found.tau,
        "abs_tau": math.nan if found is None else found.abs_tau,
        "accuracy": math.nan if found is None else found.accuracy,
        "free_accuracy": math.nan if found is None else found.free_accuracy,
        "chance_abs_tau": chance_abs_tau(count),
        "chance_free_accuracy": chance_free_accuracy(count),
        "consistency": float(scored.consistency),
        "distinct_tokens": scored.distinct_tokens,
        "seconds": scored.seconds,
        "directed": unit.choice.directed,
        "kind": kind,
        "family": unit.choice.family,
        "scores": [float(score) for score in scored.scores],
    }


def _isolating(
    members: Sequence[Any],
    work: Callable[[Sequence[Any]], list[Any]],
    failures: dict[str, str],
    name: Callable[[Any], str] = lambda task: task.id,
    pooled: bool = False,
) -> list[Any]:
    """Work on all members together. If that fails, find those that fail alone and work on the rest together.

    Pooled work says nothing about a single member, so that its failure is every member's.
    """
    if not members:
        return []
    try:
        return work(members)
    except TROUBLE as error:
        reason = reason_of(error)
    if pooled or len(members) == 1:
        failures.update({name(member): reason for member in members})
        return []
    good = []
    for member in members:
        try:
            work([member])
            good.append(member)
        except TROUBLE as error:
            failures[name(member)] = reason_of(error)
    if len(good) == len(members):  # each succeeds alone, but not together
        failures.update({name(member): reason for member in members})
        return []
    return _isolating(good, work, failures, name, pooled)


def _with_gold(
    members: list[tuple[int, int]], tasks: Sequence[Task], choice: Choice, failures: dict[str, str]
) -> list[tuple[int, int]]:
    for _, index in members:
        if tasks[index].values is None:
            failures[tasks[index].id] = (
                f"task {tasks[index].id!r} has no gold, which {choice.name} is trained on"
            )
    return [(place, index) for place, index in members if tasks[index].id not in failures]


def _check_scores(scores: np.ndarray, task: Task) -> None:
    if np.isnan(scores).any():
        raise CcrankError(
            f"task {task.id!r}: a score is not a number; the fit or the model's answers broke down"
        )
