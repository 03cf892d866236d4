"""Running one unit: scores of every task, rows of results, and failed tasks with their reasons."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccrank.api import rank_tasks
from ccrank.errors import CcrankWarning, isolate_failures
from ccrank.methods.probe_pipeline.fitting import LayerFit, ProbeSpec, check_scores, fit_layers
from ccrank.methods.probe_pipeline.probe_rankers import seeds_agree
from ccrank.methods.probe_pipeline.states import TaskStates, blocks
from ccrank.methods.probing.batch import ordered_pairs
from ccrank.methods.probing.objectives import Settings
from ccrank.metrics import evaluate, pair_accuracy
from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy, chance_pair_accuracy
from ccrank.metrics.pairwise import margins_of_pairs
from ccrank.models.reading import Progress
from ccrank.models.remote import OpenModel
from ccrank.prompts import Templates
from ccrank.ranking import Ranking, from_canonical, margins_from_canonical
from ccrank.study.experiment.method_spec import SINGLE
from ccrank.study.experiment.units import TaskSet, Unit
from ccrank.study.results.directions import Directions
from ccrank.task import Task

BLOCK_COMPARISONS = 2048


@dataclass
class Outcome:
    """The result of a unit."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Task id → reason."""
    directions: Directions | None = None
    """The probes' weights, if they are to be stored."""


@dataclass(frozen=True)
class ScoredTask:
    """One task's scores for one seed and layer."""

    task: Task
    scores: np.ndarray
    layer: int = -1
    seed: int = 0
    consistency: float = math.nan
    distinct_tokens: int = 0
    seconds: float = 0.0
    pair_margins: np.ndarray | None = None
    """(N, N) the single answers of a method that compares pairs."""
    fold: int = -1


def run_method(
    unit: Unit,
    task_set: TaskSet,
    reader: OpenModel,
    templates: Templates,
    options: dict[str, Any],
    progress: Progress | None = None,
) -> Outcome:
    """Run a unit of a method that is not a probe, with `rank_tasks`.

    Methods that do not pool tasks run in blocks, which are the same in every run (see `read_states`).
    """
    outcome, tasks = Outcome(), task_set.tasks
    method = unit.choice.method

    def ask(members: Sequence[int]) -> list[tuple[Ranking, float]]:
        start = time.perf_counter()
        some = [tasks[index] for index in members]
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", CcrankWarning
            )  # a study has gold: its tables say how good each method is
            rankings = rank_tasks(some, reader, method.name, templates, options=options, progress=progress)
        for ranking in rankings:
            check_scores(ranking.scores, ranking.task)
        return [(ranking, (time.perf_counter() - start) / len(some)) for ranking in rankings]

    sizes = [len(task.items) * (len(task.items) - 1) for task in tasks]
    failures: dict[int, str] = {}
    for block in [list(range(len(tasks)))] if method.pools else blocks(sizes, BLOCK_COMPARISONS):
        for ranking, seconds in isolate_failures(block, ask, failures):
            single = unit.choice.split == SINGLE and ranking.runs is not None
            runs = ranking.runs if single and ranking.runs is not None else [ranking.scores]
            for run, scores in enumerate(runs):
                scored = ScoredTask(
                    ranking.task,
                    scores,
                    seed=run,
                    consistency=ranking.consistency.get(method.consistency or "", math.nan),
                    distinct_tokens=ranking.cost.distinct_tokens // len(runs),
                    seconds=seconds / len(runs),
                    pair_margins=ranking.pair_margins,
                )
                outcome.rows.append(row_of(unit, task_set.kind, scored))
    outcome.failures = {tasks[index].id: reason for index, reason in failures.items()}
    return outcome


def run_probe(
    unit: Unit,
    task_set: TaskSet,
    states: TaskStates,
    sorted_tasks: Sequence[Task],
    orders: Sequence[Sequence[int]],
    seeds: int,
    settings: Settings,
    device: str = "cpu",
) -> Outcome:
    """Run a unit of a probe on states that were read before: rows for each layer, task and seed.

    The states belong to `sorted_tasks`, whose items are in canonical order; `orders` restores the original order. If
    the states have anchors, only the layer that agrees best with them has rows.
    """
    choice = unit.choice
    spec = ProbeSpec(choice.name, choice.seeds(seeds), settings, choice.protocol, device)
    layers, failures = fit_layers(sorted_tasks, states, spec, isolate=True)
    outcome = Outcome(failures={task_set.tasks[index].id: reason for index, reason in failures.items()})
    outcome.directions = directions_of(unit, task_set, layers, spec.seeds)
    row_of_task = {index: position for position, index in enumerate(states.tasks)}
    for layer in layers:
        for fit in layer.tasks:
            agree = seeds_agree(fit.scores)
            for place_of_seed, (seed, values) in enumerate(zip(spec.seeds, fit.scores, strict=True)):
                margins = None if fit.pairs is None else _margins(fit.pairs[place_of_seed], values)
                scored = ScoredTask(
                    task_set.tasks[fit.index],
                    from_canonical(values, orders[fit.index]),
                    layer.layer,
                    seed,
                    agree,
                    states.costs[row_of_task[fit.index]].distinct_tokens,
                    states.seconds / len(states.tasks) + fit.seconds,
                    pair_margins=margins_from_canonical(margins, orders[fit.index]),
                    fold=fit.fold,
                )
                outcome.rows.append(row_of(unit, task_set.kind, scored))
    return outcome


def directions_of(
    unit: Unit, task_set: TaskSet, layers: Sequence[LayerFit], seeds: tuple[int, ...]
) -> Directions | None:
    """The weights of each layer's probes, one per task or per fold; None where items are held out."""
    weights: dict[int, np.ndarray] = {}
    owners: list[str] = []
    for one in layers:
        rows = {
            f"fold {fit.fold}" if fit.fold >= 0 else task_set.tasks[fit.index].id: fit.fits.weights[fit.row]
            for fit in one.tasks
            if fit.fits is not None
        }
        if rows:
            owners = sorted(rows) if one.tasks[0].fold >= 0 else list(rows)
            weights[one.layer] = np.stack([rows[owner].cpu().float().numpy() for owner in owners])
    if not weights:
        return None
    return Directions(
        unit.model, unit.dataset, unit.choice.label, unit.choice.split, seeds, tuple(owners), weights
    )


def _margins(predictions: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(N, N) margins whose signs are a probe's predictions for the ordered pairs of N items."""
    return margins_of_pairs(len(scores), ordered_pairs(len(scores)), predictions - 0.5)


def row_of(unit: Unit, kind: str, scored: ScoredTask) -> dict[str, Any]:
    """One row of results; metrics are NaN for a task without gold."""
    task, count = scored.task, len(scored.task.items)
    # Grades of relevance have ties: `ccrank results` gives the metrics of retrieval instead, from the scores.
    metrics = None if task.values is None or task.query is not None else evaluate(scored.scores, task.values)
    margins = scored.pair_margins
    answers = 0 if margins is None else int(np.isfinite(margins).sum())
    agree = (
        math.nan
        if metrics is None or margins is None or task.values is None
        else pair_accuracy(margins, task.values)
    )
    return {
        "dataset": unit.dataset,
        "task": task.id,
        "n_items": count,
        "model": unit.model,
        "method": unit.choice.label,
        "layer": scored.layer,
        "seed": scored.seed,
        "split": unit.choice.split,
        "fold": scored.fold,
        "tau": math.nan if metrics is None else metrics.tau,
        "abs_tau": math.nan if metrics is None else metrics.abs_tau,
        "accuracy": math.nan if metrics is None else metrics.accuracy,
        "free_accuracy": math.nan if metrics is None else metrics.free_accuracy,
        "chance_abs_tau": chance_abs_tau(count),
        "chance_free_accuracy": chance_free_accuracy(count),
        "pair_accuracy": agree,
        "free_pair_accuracy": max(agree, 1 - agree),
        "chance_free_pair_accuracy": chance_pair_accuracy(answers) if answers else math.nan,
        "consistency": float(scored.consistency),
        "distinct_tokens": scored.distinct_tokens,
        "seconds": scored.seconds,
        "directed": unit.choice.directed,
        "kind": kind,
        "family": unit.choice.family,
        "scores": [float(score) for score in scored.scores],
    }
