"""Fitting probes to the stored states of tasks, layer by layer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.probe_pipeline.states import TaskStates
from ccrank.probing.crossval import cross_validate, held_out_scores, leave_one_item_out, task_folds
from ccrank.probing.fits import Fits, fit_each, points_of_pairs
from ccrank.probing.objectives import Settings, objective_of
from ccrank.recoverable import isolate_failures
from ccrank.task import Task

PROTOCOLS = ("same-task", "leave-one-out", "across-tasks")
FOLDS = 4
"""Folds of across-tasks training; with fewer tasks each task is a fold."""
FOLD_SEED = 0
"""The seed that assigns tasks to folds; the same for all probes and their seeds."""


@dataclass(frozen=True)
class ProbeSpec:
    """Which probe is fitted, and how."""

    name: str
    """The name of its objective."""
    seeds: tuple[int, ...]
    settings: Settings = field(default_factory=Settings)
    protocol: str = "same-task"
    """same-task trains and tests on one task (the paper's main setting), leave-one-out scores each item by a probe that
    has not seen it, across-tasks trains on other tasks in folds."""
    device: str = "cpu"


@dataclass(frozen=True)
class TaskFit:
    """One task's scores by the probes of one layer."""

    index: int
    """Which of the tasks it is."""
    scores: np.ndarray
    """(seeds, N)"""
    seconds: float
    """The time to fit one seed."""
    fits: Fits | None = None
    """The probes, where each task has its own; `row` is this task's."""
    row: int = 0
    pairs: np.ndarray | None = None
    """(seeds, N(N − 1)) predictions for the ordered pairs, of probes on pairs; None where items are held out."""
    fold: int = -1
    """The fold in which the task was held out, of across-tasks training; else −1."""

    @property
    def best_seed(self) -> int:
        """The seed of the lowest loss, where losses are known; else the first."""
        return 0 if self.fits is None else int(self.fits.loss[self.row].argmin())


@dataclass(frozen=True)
class LayerFit:
    """All tasks' scores by the probes of one layer."""

    layer: int
    tasks: tuple[TaskFit, ...]


def fit_layers(
    tasks: Sequence[Task], states: TaskStates, spec: ProbeSpec, *, isolate: bool = False
) -> tuple[list[LayerFit], dict[int, str]]:
    """Fit a probe's objective to every layer of the states.

    Parameters
    ----------
    tasks
        The tasks whose states were read, in the order in which they were given to `read_states`.
    states
        Their states; tasks that failed to be read are left out.
    spec
        The probe.
    isolate
        Record a task that cannot be fitted as a failure and continue, instead of raising its error.

    Returns
    -------
    layers, failures
        A fit for each layer, all of the same tasks, and the reason for each task that has none.
    """
    failures = dict(states.failures)
    if objective_of(spec.name).supervised:
        for index in states.tasks:
            if tasks[index].values is None:
                failures.setdefault(
                    index,
                    f"task {tasks[index].id!r} has no gold, which {spec.name} is trained on; give `values` or `order`",
                )
    place = {index: position for position, index in enumerate(states.tasks)}
    found = []
    for column, layer in enumerate(states.layers):
        own = states.of_layer(column)

        def fit(members: Sequence[int], own: list[np.ndarray] = own) -> list[TaskFit]:
            return _fit_layer(members, tasks, [own[place[index]] for index in members], spec)

        members = [index for index in states.tasks if index not in failures]
        if isolate:
            fitted = isolate_failures(members, fit, failures, pooled=spec.protocol == "across-tasks")
        elif len(members) < len(tasks):
            raise CcrankError(next(iter(failures.values())))
        else:
            fitted = fit(members)
        found.append(LayerFit(layer, tuple(fitted)))
    # A task that failed in one layer is left out of the others too: means over tasks stay comparable.
    kept = [replace(one, tasks=tuple(fit for fit in one.tasks if fit.index not in failures)) for one in found]
    return kept, failures


def _fit_layer(
    members: Sequence[int], tasks: Sequence[Task], states: Sequence[np.ndarray], spec: ProbeSpec
) -> list[TaskFit]:
    start = time.perf_counter()
    own_tasks = [tasks[index] for index in members]
    predictions, fits = _predictions(own_tasks, states, spec)
    scores = item_scores(predictions, own_tasks, spec)
    paired = objective_of(spec.name).prompt == "pair" and spec.protocol != "leave-one-out"
    for index, own in zip(members, scores, strict=True):
        check_scores(own, tasks[index])
    seconds = (time.perf_counter() - start) / (len(members) * len(spec.seeds))
    folds = _folds(len(members)) if spec.protocol == "across-tasks" else np.full(len(members), -1)
    return [
        TaskFit(index, own, seconds, fits, row, predictions[row] if paired else None, fold=int(folds[row]))
        for row, (index, own) in enumerate(zip(members, scores, strict=True))
    ]


def seed_scores(
    tasks: Sequence[Task], states: Sequence[np.ndarray], spec: ProbeSpec
) -> tuple[list[np.ndarray], Fits | None]:
    """Each task's item scores by each seed's probe, (seeds, N), and the fits if there is one per task."""
    predictions, fits = _predictions(tasks, states, spec)
    return item_scores(predictions, tasks, spec), fits


def _predictions(
    tasks: Sequence[Task], states: Sequence[np.ndarray], spec: ProbeSpec
) -> tuple[list[np.ndarray], Fits | None]:
    """What each seed's probe says of each task's items, or of its ordered pairs, and the fits."""
    objective = objective_of(spec.name)
    gold = [np.asarray(task.values) for task in tasks] if objective.supervised else None
    options: dict[str, Any] = {"seeds": spec.seeds, "settings": spec.settings, "device": spec.device}
    fits: Fits | None = None
    if spec.protocol == "same-task":
        fits = fit_each(states, spec.name, gold=gold, **options)
        scores = fits.scores(states)
    elif spec.protocol == "across-tasks":
        folds = min(FOLDS, len(tasks))
        _, scores = cross_validate(states, spec.name, folds=folds, fold_seed=FOLD_SEED, gold=gold, **options)
    elif spec.protocol == "leave-one-out":
        scores = leave_one_item_out(states, spec.name, gold, **options)
    else:
        raise CcrankError(f"a probe's protocol must be one of {', '.join(PROTOCOLS)}, not {spec.protocol!r}")
    return scores, fits


def item_scores(
    predictions: Sequence[np.ndarray], tasks: Sequence[Task], spec: ProbeSpec
) -> list[np.ndarray]:
    """Item scores (seeds, N) from the predictions of one layer's probes."""
    scores = list(predictions)
    if objective_of(spec.name).prompt == "pair":
        # Under leave-one-out row [s, i] has the pair predictions without item i: points of each, then i's own.
        scores = [points_of_pairs(own, len(task.items)) for own, task in zip(scores, tasks, strict=True)]
    if spec.protocol == "leave-one-out":
        scores = [held_out_scores(own) for own in scores]
    return scores


def _folds(tasks: int) -> np.ndarray:
    """The fold of each task, as `seed_scores` has it."""
    return task_folds(tasks, min(FOLDS, tasks), FOLD_SEED)


def check_scores(scores: np.ndarray, task: Task) -> None:
    """Raise an error for scores that are NaN."""
    if np.isnan(scores).any():
        raise CcrankError(f"task {task.id!r}: a score is NaN; the fit or the model's logits are not finite")
