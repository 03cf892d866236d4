"""Running one unit: scores of every task, rows of results, and failed tasks with their reasons."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from ccrank.api import rank_tasks
from ccrank.errors import CcrankWarning, isolate_failures
from ccrank.jury import mean_of
from ccrank.methods.probe_pipeline.rankers import LayerFits, check_scores, fit_layers, seeds_agree
from ccrank.methods.probe_pipeline.states import TaskStates, blocks
from ccrank.methods.probing.batch import ordered_pairs
from ccrank.methods.probing.objectives import ProbeSpec, Settings
from ccrank.metrics.aggregation import margins_of_pairs
from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy, chance_pair_accuracy
from ccrank.metrics.order import evaluate, pair_accuracy, tau_b
from ccrank.models.reading import Progress
from ccrank.models.remote import OpenModel
from ccrank.prompts import Templates
from ccrank.ranking import Ranking, canonical, from_canonical, margins_from_canonical
from ccrank.study.experiment.units import TaskSet, Unit
from ccrank.study.results.directions import SINGLE, Directions
from ccrank.task import Task

BLOCK_COMPARISONS = 2048


@dataclass
class Outcome:
    """The result of a unit."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Task id → reason."""
    directions: Directions | None = None
    """The probes' weights, where they can be stored."""


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
    outcome, tasks, method = Outcome(), task_set.tasks, unit.choice.method

    def ask(members: Sequence[int]) -> list[tuple[Ranking, float]]:
        start = time.perf_counter()
        some = [tasks[index] for index in members]
        with warnings.catch_warnings():
            # A study has gold: its tables say how good each method is.
            warnings.simplefilter("ignore", CcrankWarning)
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
                columns = {
                    "seed": run,
                    "consistency": float(ranking.consistency.get(method.consistency or "", math.nan)),
                    "distinct_tokens": ranking.cost.distinct_tokens // len(runs),
                    "seconds": seconds / len(runs),
                }
                row = row_of(unit, task_set.kind, ranking.task, scores, ranking.pair_margins, **columns)
                outcome.rows.append(row)
    outcome.failures = {tasks[index].id: reason for index, reason in failures.items()}
    return outcome


def run_probe(
    unit: Unit,
    task_set: TaskSet,
    states: TaskStates,
    seeds: int,
    settings: Settings,
    device: str = "cpu",
) -> Outcome:
    """Run a unit of a probe on states that were read before: rows for each layer, task and seed.

    The states belong to tasks whose items are in canonical order. If they have anchors, only the layer that agrees best
    with these has rows.
    """
    choice, objective = unit.choice, unit.choice.method.objective
    numbers = tuple(range(seeds)) if objective is not None and objective.seeded else (0,)
    protocol = "same-task" if choice.split == "none" else choice.split
    spec = ProbeSpec(choice.name, numbers, settings, protocol, device)
    sorted_tasks, orders = zip(*map(canonical, task_set.tasks), strict=True)
    layers, failures = fit_layers(sorted_tasks, states, spec, isolate=True)
    outcome = Outcome(failures={task_set.tasks[index].id: reason for index, reason in failures.items()})
    outcome.directions = directions_of(unit, task_set, layers, numbers)
    for layer, fits in layers.items():
        for fit in fits:
            task, order = task_set.tasks[fit.index], orders[fit.index]
            columns = {
                "layer": layer,
                "fold": fit.fold,
                "consistency": seeds_agree(fit.scores),
                "distinct_tokens": states.costs[fit.index].distinct_tokens,
                "seconds": states.seconds / len(states.costs) + fit.seconds,
            }
            for run, (seed, scores) in enumerate(zip(numbers, fit.scores, strict=True)):
                margins = None
                if fit.pairs is not None:
                    pairs = ordered_pairs(len(scores))
                    margins = margins_of_pairs(len(scores), pairs, fit.pairs[run] - 0.5)
                margins = margins_from_canonical(margins, order)
                row = row_of(
                    unit, task_set.kind, task, from_canonical(scores, order), margins, seed=seed, **columns
                )
                outcome.rows.append(row)
    return outcome


def run_jury(
    unit: Unit, task_set: TaskSet, members: Sequence[Sequence[Mapping[str, Any]]], weights: np.ndarray
) -> Outcome:
    """Run a unit of a jury, which costs nothing to read: from its members' rows, one for each task and run that all
    members have."""
    outcome, tasks = Outcome(), {task.id: task for task in task_set.tasks}
    rows_by_run = [{(row["task"], row["seed"]): row for row in rows} for rows in members]
    for task_id, seed in rows_by_run[0]:
        rows = [by_run[task_id, seed] for by_run in rows_by_run if (task_id, seed) in by_run]
        if len(rows) == len(members):
            table, scores = mean_of([row["scores"] for row in rows], weights)
            agreement = np.mean([tau_b(first, second) for first, second in combinations(table, 2)])
            sums = {name: sum(row[name] for row in rows) for name in ("distinct_tokens", "seconds")}
            row = row_of(
                unit, task_set.kind, tasks[task_id], scores, seed=seed, consistency=float(agreement), **sums
            )
            outcome.rows.append(row)
    return outcome


def directions_of(
    unit: Unit, task_set: TaskSet, layers: LayerFits, seeds: tuple[int, ...]
) -> Directions | None:
    """The weights of each layer's probes, one per task or per fold; None where items are held out."""
    weights: dict[int, np.ndarray] = {}
    owners: list[str] = []
    for layer, fits in layers.items():
        rows = {
            f"fold {fit.fold}" if fit.fold >= 0 else task_set.tasks[fit.index].id: fit.fits.weights[fit.row]
            for fit in fits
            if fit.fits is not None
        }
        if rows:
            owners = sorted(rows) if fits[0].fold >= 0 else list(rows)
            weights[layer] = np.stack([rows[owner].cpu().float().numpy() for owner in owners])
    if not weights:
        return None
    about = (unit.model, unit.dataset, unit.choice.label, unit.choice.split)
    return Directions(*about, seeds, tuple(owners), weights)


def row_of(
    unit: Unit, kind: str, task: Task, scores: np.ndarray, margins: np.ndarray | None = None, **columns: Any
) -> dict[str, Any]:
    """One row of results, with further columns as they are; metrics are NaN for a task without gold.

    margins (N, N): the answers to pairs, if asked."""
    count, agree = len(task.items), math.nan
    metrics = dict.fromkeys(("tau", "abs_tau", "accuracy", "free_accuracy"), math.nan)
    # Grades of relevance have ties: `ccrank results` gives the metrics of retrieval instead, from the scores.
    if task.values is not None and task.query is None:
        metrics |= asdict(evaluate(scores, task.values))
        if margins is not None:
            agree = pair_accuracy(margins, task.values)
    answers = 0 if margins is None else int(np.isfinite(margins).sum())
    return {
        **metrics,
        "dataset": unit.dataset,
        "task": task.id,
        "n_items": count,
        "model": unit.model,
        "method": unit.choice.label,
        "layer": -1,
        "seed": 0,
        "split": unit.choice.split,
        "fold": -1,
        "chance_abs_tau": chance_abs_tau(count),
        "chance_free_accuracy": chance_free_accuracy(count),
        "pair_accuracy": agree,
        "free_pair_accuracy": max(agree, 1 - agree),
        "chance_free_pair_accuracy": chance_pair_accuracy(answers) if answers else math.nan,
        "directed": unit.choice.method.directed,
        "kind": kind,
        "family": unit.choice.family,
        "scores": [float(score) for score in scores],
        **columns,
    }
