"""Fitting probes to the stored states of tasks, layer by layer, and choosing a layer without labels."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ccrank.errors import CcrankError, isolate_failures
from ccrank.methods.probe_pipeline.states import TaskStates
from ccrank.methods.probing.fits import (
    Fits,
    cross_validate,
    fit_each,
    held_out_scores,
    leave_one_item_out,
    points_of_pairs,
    task_folds,
)
from ccrank.methods.probing.objectives import Settings, objective_of
from ccrank.metrics import tau_b
from ccrank.task import Task, normal_form
from ccrank.util.zscores import FLOAT32_ROUNDING, z_scores

PROTOCOLS = ("same-task", "leave-one-out", "across-tasks", "across-items")
ACROSS = ("across-tasks", "across-items")
"""Those that train on other tasks in folds."""
FOLDS = 4
"""Folds of across-tasks training; with fewer tasks each task is a fold."""
KERNEL_SEED = 0
"""The seed of the random features of the kernel; the same for all probes and their seeds."""
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
    has not seen it, across-tasks trains on other tasks in folds, across-items without the items of the
    held-out tasks."""
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
    """The probes, one per task or per fold; None where items are held out."""
    row: int = 0
    """The place of this task's probes among them."""
    pairs: np.ndarray | None = None
    """(seeds, N(N − 1)) predictions for the ordered pairs, of probes on pairs; None where items are held out."""
    fold: int = -1
    """The fold in which the task was held out, of across-tasks training; else −1."""

    @property
    def best_seed(self) -> int:
        """The seed of the lowest loss on the task itself; the first if the task was held out."""
        return 0 if self.fits is None or self.fold >= 0 else int(self.fits.loss[self.row].argmin())


@dataclass(frozen=True)
class LayerFit:
    """All tasks' scores by the probes of one layer."""

    layer: int
    tasks: tuple[TaskFit, ...]


def fit_layers(
    tasks: Sequence[Task], states: TaskStates, spec: ProbeSpec, *, isolate: bool = False
) -> tuple[list[LayerFit], dict[int, str]]:
    """Fit a probe to every layer of the states, and task → why it failed; of states with anchors, the closest layer."""
    failures = dict(states.failures)
    if objective_of(spec.name).supervised:
        for index in states.tasks:
            if tasks[index].values is None:
                failures.setdefault(
                    index,
                    f"task {tasks[index].id!r} has no gold, which {spec.name} is trained on; give `values` or `order`",
                )
    if not isolate and failures:
        raise CcrankError(next(iter(failures.values())))
    members = [index for index in states.tasks if index not in failures]
    layers = []
    for column, layer in enumerate(states.layers):
        states_of = dict(zip(states.tasks, states.of_layer(column), strict=True))
        if spec.settings.features == "rbf":
            states_of = {index: kernel_features(one) for index, one in states_of.items()}

        def fit(some: Sequence[int], states_of: dict[int, np.ndarray] = states_of) -> list[TaskFit]:
            return _fit_layer(some, tasks, [states_of[index] for index in some], spec)

        if isolate:
            fitted = isolate_failures(members, fit, failures, pooled=spec.protocol in ACROSS)
            members = [index for index in members if index not in failures]
        else:
            fitted = fit(members)
        layers.append(LayerFit(layer, tuple(fitted)))
    # A task that failed in one layer is left out of the others too: means over tasks stay comparable.
    layers = [
        replace(layer, tasks=tuple(fit for fit in layer.tasks if fit.index not in failures))
        for layer in layers
    ]
    return layers if states.anchors is None else [closest_layer(layers, states.anchors)], failures


def kernel_features(states: np.ndarray) -> np.ndarray:
    """Random Fourier features of the Gaussian kernel on a task's Z-scored states (Rahimi and Recht 2007). A probe that
    is linear in them is a kernel probe with as many weights as a linear one. (N, …, d) -> (N, …, d)

    φ(z) = √(2/d) cos(W z/ℓ + b), whose products are about exp(−‖z − z'‖²/2ℓ²). Of Z-scored states ‖z − z'‖² is 2d on
    average, so ℓ² = d gives items a similarity of about 1/e. W and b are the same for all tasks and seeds.
    """
    width = states.shape[-1]
    generator = np.random.default_rng(KERNEL_SEED)
    directions = generator.standard_normal((width, width)) / math.sqrt(width)
    shifts = generator.uniform(0, 2 * math.pi, width)
    scaled = z_scores(states.astype(np.float64), axis=0, rounding=FLOAT32_ROUNDING)
    return np.asarray(math.sqrt(2 / width) * np.cos(scaled @ directions + shifts), dtype=np.float32)


def _fit_layer(
    members: Sequence[int], tasks: Sequence[Task], states: Sequence[np.ndarray], spec: ProbeSpec
) -> list[TaskFit]:
    start = time.perf_counter()
    fitted_tasks = [tasks[index] for index in members]
    scores, predictions, fits = seed_scores(fitted_tasks, states, spec)
    for task, task_scores in zip(fitted_tasks, scores, strict=True):
        check_scores(task_scores, task)
    seconds = (time.perf_counter() - start) / (len(members) * len(spec.seeds))
    paired = objective_of(spec.name).prompt == "pair" and spec.protocol != "leave-one-out"
    across = spec.protocol in ACROSS
    folds = _folds(len(members)) if across else np.full(len(members), -1)
    return [
        TaskFit(
            index,
            scores[row],
            seconds,
            fits,
            int(folds[row]) if across else row,
            predictions[row] if paired else None,
            int(folds[row]),
        )
        for row, index in enumerate(members)
    ]


def seed_scores(
    tasks: Sequence[Task], states: Sequence[np.ndarray], spec: ProbeSpec
) -> tuple[list[np.ndarray], list[np.ndarray], Fits | None]:
    """Each task's item scores by each seed's probe, (seeds, N); the probes' predictions, which for pairs are
    (seeds, N(N − 1)); and the fits, of tasks or folds."""
    objective = objective_of(spec.name)
    gold = [np.asarray(task.values) for task in tasks] if objective.supervised else None
    options: dict[str, Any] = {"seeds": spec.seeds, "settings": spec.settings, "device": spec.device}
    fits: Fits | None = None
    if spec.protocol == "same-task":
        fits = fit_each(states, spec.name, gold=gold, **options)
        predictions = fits.scores(states)
    elif spec.protocol in ACROSS:
        kept = without_shared_items(tasks, _folds(len(tasks))) if spec.protocol == "across-items" else None
        fits, predictions = cross_validate(
            states, spec.name, _folds(len(tasks)), gold=gold, kept=kept, **options
        )
    elif spec.protocol == "leave-one-out":
        predictions = leave_one_item_out(states, spec.name, gold, **options)
    else:
        raise CcrankError(f"a probe's protocol must be one of {', '.join(PROTOCOLS)}, not {spec.protocol!r}")
    return item_scores(predictions, tasks, spec), predictions, fits


def item_scores(
    predictions: Sequence[np.ndarray], tasks: Sequence[Task], spec: ProbeSpec
) -> list[np.ndarray]:
    """Item scores (seeds, N) from the predictions of one layer's probes."""
    scores = list(predictions)
    if objective_of(spec.name).prompt == "pair":
        # Under leave-one-out row [s, i] has the pair predictions without item i: points of each, then i's own.
        scores = [points_of_pairs(rows, len(task.items)) for rows, task in zip(scores, tasks, strict=True)]
    if spec.protocol == "leave-one-out":
        scores = [held_out_scores(rows) for rows in scores]
    return scores


def without_shared_items(tasks: Sequence[Task], fold_of_task: np.ndarray) -> list[np.ndarray]:
    """Which items of each task a fold's probe may be trained on: those that no held-out task of the fold has too.

    Items are the same if their texts are, up to case and white space. Per task (F, N).
    """
    names = [[normal_form(item).casefold() for item in task.items] for task in tasks]
    held_out: list[set[str]] = [set() for _ in range(int(fold_of_task.max()) + 1)]
    for fold, own in zip(fold_of_task, names, strict=True):
        held_out[fold].update(own)
    kept = [np.array([[name not in items for name in own] for items in held_out]) for own in names]
    for fold in range(len(held_out)):
        if not any(rows[fold].sum() > 1 for rows, own in zip(kept, fold_of_task, strict=True) if own != fold):
            raise CcrankError(
                "every task shares its items with held-out ones, so none is left to train on; use across-tasks"
            )
    return kept


def _folds(tasks: int) -> np.ndarray:
    """The fold of each task in across-tasks training."""
    return task_folds(tasks, min(FOLDS, tasks), FOLD_SEED)


def check_scores(scores: np.ndarray, task: Task) -> None:
    """Raise an error for scores that are NaN."""
    if np.isnan(scores).any():
        raise CcrankError(f"task {task.id!r}: a score is NaN; the fit or the model's logits are not finite")


def agreement(scores: Sequence[np.ndarray], anchors: Sequence[np.ndarray]) -> float:
    """Mean |τ-b| between probes and anchors, over tasks and rows; NaN if any score is. Per task: (R, N), (N,)"""
    if any(np.isnan(rows).any() for rows in scores):
        return float("nan")
    return float(
        np.mean(
            [abs(tau_b(row, anchor)) for rows, anchor in zip(scores, anchors, strict=True) for row in rows]
        )
    )


def closest_to_anchors(candidates: Sequence[Sequence[np.ndarray]], anchors: Sequence[np.ndarray]) -> int:
    """The index of the candidate with the largest `agreement`, of equals the last. No label is used."""
    agreements = [agreement(scores, anchors) if anchors else 0.0 for scores in candidates]
    # A fit that failed agrees with nothing.
    ranked = np.nan_to_num(agreements, nan=-1.0)
    return int(np.flatnonzero(ranked == ranked.max())[-1])


def closest_layer(layers: Sequence[LayerFit], anchors: Mapping[int, np.ndarray]) -> LayerFit:
    """The layer whose probes agree best with the anchors; its time includes the fits of all layers."""
    in_order = [anchors[fit.index] for fit in layers[0].tasks]
    chosen = layers[closest_to_anchors([[fit.scores for fit in layer.tasks] for layer in layers], in_order)]
    seconds = np.sum([[fit.seconds for fit in layer.tasks] for layer in layers], axis=0)
    tasks = (replace(fit, seconds=float(spent)) for fit, spent in zip(chosen.tasks, seconds, strict=True))
    return replace(chosen, tasks=tuple(tasks))
