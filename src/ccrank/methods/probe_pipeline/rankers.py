"""The probes as methods of ranking: states are read, probes are fitted layer by layer, and a layer, a template and a
seed are chosen without labels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ccrank.errors import CcrankError, isolate_failures
from ccrank.methods.probe_pipeline.states import TaskStates, add_anchors, read_states
from ccrank.methods.probing.fits import (
    Fits,
    cross_validate,
    fit_each,
    held_out_scores,
    leave_one_item_out,
    points_of_pairs,
    task_folds,
)
from ccrank.methods.probing.objectives import ProbeSpec, objective_of, settings_of
from ccrank.methods.probing.scorer import ProbeScorer, consensus
from ccrank.metrics.order import tau_b
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.ranking import Answer
from ccrank.task import Task, normal_form
from ccrank.util.zscores import FLOAT32_ROUNDING, z_scores

TEMPLATES = ("poles", "single")
"""The templates that `template=auto` chooses from. Of equally good ones the last is taken: the paper's."""
PROTOCOLS = ("same-task", "leave-one-out", "across-tasks", "across-items")
ACROSS = ("across-tasks", "across-items")
"""Those that train on other tasks in folds."""
KERNEL_SEED = 0
"""The seed of the random features of the kernel; the same for all probes and their seeds."""


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


LayerFits = dict[int, list[TaskFit]]
"""Layer → all tasks' scores by the probes of that layer."""


def probe_method(name: str) -> Callable[..., list[Answer]]:
    """The method of a probe's name, with its options."""
    objective = objective_of(name)

    def run(
        tasks: Sequence[Task],
        prompter: Prompter,
        *,
        layer: str = "last",
        template: str = "single",
        position: str = "slot",
        seeds: int = 5,
        protocol: str = "same-task",
        **settings: Any,
    ) -> list[Answer]:
        paired = objective.paired
        if paired and template != "single":
            raise CcrankError(
                f"{name} reads pairs of items, so it has no template of single items to choose; leave out "
                f"template={template!r}, or take a probe on single items"
            )
        device = training_device(prompter.reader)
        spec = ProbeSpec(name, range(seeds), settings_of(name, settings), protocol, device)
        costs = [Cost()] * len(tasks)
        candidates: dict[str, tuple[TaskStates, LayerFits]] = {}
        anchors: Mapping[int, np.ndarray] | None = None
        for candidate in ("pair",) if paired else TEMPLATES if template == "auto" else (template,):
            how: Any = {"paired": paired, "template": candidate, "position": position}
            states = read_states(tasks, prompter, layer, **how, anchors=anchors if layer == "auto" else None)
            candidates[candidate] = states, fit_layers(tasks, states, spec)[0]
            if template == "auto" and anchors is None:
                if states.anchors is None:
                    add_anchors(states, tasks, prompter)
                anchors = states.anchors
            costs = [spent + more for spent, more in zip(costs, states.costs.values(), strict=True)]
        chosen = [*candidates][-1]
        if anchors is not None:  # they also choose the template, by all its layers and seeds
            scores = [
                [np.concatenate([fit.scores for fit in fits]) for fits in zip(*layers.values(), strict=True)]
                for _, layers in candidates.values()
            ]
            chosen = [*candidates][closest_to_anchors(scores, [*anchors.values()])]
        about = {"model": prompter.reader.name, "position": position, "template": chosen}
        states, layers = candidates[chosen]
        linear = spec.settings.features == "linear"
        return [
            _answer(dict(zip(layers, fits, strict=True)), states, cost, about, linear)
            for fits, cost in zip(zip(*layers.values(), strict=True), costs, strict=True)
        ]

    run.__doc__ = f"""{_summary(name)}

    The defaults are the paper's: states of the last layer, Z-scored within the task, 200 epochs of Adam, and of 5 seeds
    the one of the lowest {"training" if objective.supervised else "(label-free)"} loss. `layer` is last, all, auto or a
    number: with all, the layers' rankings are combined by their first principal component; auto takes the layer whose
    probes agree best with the label-free signals (see the method `auto`), over all tasks. `template` is the ItemSingle
    prompt whose states are read: single, poles, one of your own, or auto, which chooses between single and poles in the
    same way, together with the layer. `position` is slot or item.
    """
    return run


def _answer(
    fits: Mapping[int, TaskFit], states: TaskStates, cost: Cost, about: Mapping[str, Any], linear: bool
) -> Answer:
    """One task's answer, from its fit by layer: of each layer the best seed, of several layers their consensus. A
    scorer for other items needs probes that are linear in the states."""
    scores = np.stack([fit.scores[fit.best_seed] for fit in fits.values()])

    def scorer() -> ProbeScorer:
        probes = [
            fit.fits.probe(fit.row, fit.best_seed, layer=layer, **about)
            for layer, fit in fits.items()
            if fit.fits is not None
        ]
        tables = [states.of_layer(layer)[fit.index] for layer, fit in fits.items()]
        return ProbeScorer.fit(probes, tables, scores)

    agreement = float(np.mean([seeds_agree(fit.scores) for fit in fits.values()]))
    layers = [*fits]
    details = {"layer": layers if len(layers) > 1 else layers[0], "template": about["template"]}
    details["seeds"] = len(next(iter(fits.values())).scores)
    has_scorer = linear and all(fit.fits is not None and fit.fold < 0 for fit in fits.values())
    return Answer(
        consensus(scores), {"seeds_agree": agreement}, cost, details, scorer if has_scorer else None
    )


def _summary(name: str) -> str:
    objective = objective_of(name)
    if objective.summary:
        return objective.summary
    kind = "the paper's probe"
    if objective.supervised:
        kind = "supervised counterpart of the paper's probe, trained on gold"
    return f"{name}: {kind}, a linear direction in the model's states."


def training_device(reader: Any) -> str:
    """Where probes are trained: on the model's CUDA GPU, else on the CPU."""
    device = reader.loaded.model.device
    return str(device) if device.type == "cuda" else "cpu"


def seeds_agree(scores: np.ndarray) -> float:
    """Mean |τ| between the seeds' rankings, regardless of direction; NaN for a single seed. (S, N) -> scalar"""
    pairs = [
        abs(tau_b(first, second))
        for first, second in combinations(scores, 2)
        if len(np.unique(second)) == len(second) and len(np.unique(first)) > 1
    ]
    return float(np.mean(pairs)) if pairs else float("nan")


def fit_layers(
    tasks: Sequence[Task], states: TaskStates, spec: ProbeSpec, *, isolate: bool = False
) -> tuple[LayerFits, dict[int, str]]:
    """Fit a probe to every layer of the states, and task → why it failed; of states with anchors, the closest layer."""
    failures = dict(states.failures)
    for index in states.costs:
        if spec.objective.supervised and tasks[index].values is None and index not in failures:
            failures[index] = (
                f"task {tasks[index].id!r} has no gold, which {spec.name} is trained on; give `values` or `order`"
            )
    if not isolate and failures:
        raise CcrankError(next(iter(failures.values())))
    members = [index for index in states.costs if index not in failures]
    layers: LayerFits = {}
    for layer in states.layers:
        states_of = states.of_layer(layer)
        if spec.settings.features == "rbf":
            states_of = {index: kernel_features(table) for index, table in states_of.items()}
        fit = partial(_fit_layer, tasks=tasks, states=states_of, spec=spec)
        pooled = spec.protocol in ACROSS
        layers[layer] = isolate_failures(members, fit, failures, pooled=pooled) if isolate else fit(members)
        members = [index for index in members if index not in failures]
    # A task that failed in one layer is left out of the others too: means over tasks stay comparable.
    layers = {layer: [fit for fit in fits if fit.index not in failures] for layer, fits in layers.items()}
    return layers if states.anchors is None else closest_layer(layers, states.anchors), failures


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
    members: Sequence[int], tasks: Sequence[Task], states: Mapping[int, np.ndarray], spec: ProbeSpec
) -> list[TaskFit]:
    start, some = time.perf_counter(), [tasks[index] for index in members]
    scores, predictions, fits = seed_scores(some, [states[index] for index in members], spec)
    for task, task_scores in zip(some, scores, strict=True):
        check_scores(task_scores, task)
    seconds = (time.perf_counter() - start) / (len(members) * len(spec.seeds))
    paired = spec.objective.paired and spec.protocol != "leave-one-out"
    folds = task_folds(len(members)).tolist() if spec.protocol in ACROSS else [-1] * len(members)
    return [
        TaskFit(index, task_scores, seconds, fits, row if fold < 0 else fold, pairs if paired else None, fold)
        for row, (index, task_scores, pairs, fold) in enumerate(
            zip(members, scores, predictions, folds, strict=True)
        )
    ]


def seed_scores(
    tasks: Sequence[Task], states: Sequence[np.ndarray], spec: ProbeSpec
) -> tuple[list[np.ndarray], list[np.ndarray], Fits | None]:
    """Each task's item scores by each seed's probe, (seeds, N); the probes' predictions, which for pairs are
    (seeds, N(N − 1)); and the fits, of tasks or folds."""
    gold = [np.asarray(task.values) for task in tasks] if spec.objective.supervised else None
    options: dict[str, Any] = {"seeds": spec.seeds, "settings": spec.settings, "device": spec.device}
    fits: Fits | None = None
    if spec.protocol == "same-task":
        fits = fit_each(states, spec.name, gold=gold, **options)
        predictions = fits.scores(states)
    elif spec.protocol in ACROSS:
        folds = task_folds(len(tasks))
        kept = without_shared_items(tasks, folds) if spec.protocol == "across-items" else None
        fits, predictions = cross_validate(states, spec.name, folds, gold=gold, kept=kept, **options)
    elif spec.protocol == "leave-one-out":
        predictions = leave_one_item_out(states, spec.name, gold, **options)
    else:
        raise CcrankError(f"a probe's protocol must be one of {', '.join(PROTOCOLS)}, not {spec.protocol!r}")
    scores = list(predictions)
    if spec.objective.paired:
        # Under leave-one-out row [s, i] has the pair predictions without item i: points of each, then i's own.
        scores = [points_of_pairs(rows, len(task.items)) for rows, task in zip(scores, tasks, strict=True)]
    if spec.protocol == "leave-one-out":
        scores = [held_out_scores(rows) for rows in scores]
    return scores, predictions, fits


def without_shared_items(tasks: Sequence[Task], fold_of_task: np.ndarray) -> list[np.ndarray]:
    """Which items of each task a fold's probe may be trained on, (F, N): those that no held-out task of the fold has
    too, up to case and white space."""
    names = [[normal_form(item).casefold() for item in task.items] for task in tasks]
    held_out: list[set[str]] = [set() for _ in range(int(fold_of_task.max()) + 1)]
    for fold, items in zip(fold_of_task, names, strict=True):
        held_out[fold].update(items)
    kept = [np.array([[name not in others for name in items] for others in held_out]) for items in names]
    for fold in range(len(held_out)):
        others = (rows for rows, of_task in zip(kept, fold_of_task, strict=True) if of_task != fold)
        if not any(rows[fold].sum() > 1 for rows in others):
            raise CcrankError(
                "every task shares its items with held-out ones, so none is left to train on; use across-tasks"
            )
    return kept


def check_scores(scores: np.ndarray, task: Task) -> None:
    """Raise an error for scores that are NaN."""
    if np.isnan(scores).any():
        raise CcrankError(f"task {task.id!r}: a score is NaN; the fit or the model's logits are not finite")


def agreement(scores: Sequence[np.ndarray], anchors: Sequence[np.ndarray]) -> float:
    """Mean |τ-b| between probes and anchors, over tasks and rows; −1 if a score is NaN. Per task: (R, N), (N,)"""
    if any(np.isnan(rows).any() for rows in scores):
        return -1.0
    pairs = ((row, anchor) for rows, anchor in zip(scores, anchors, strict=True) for row in rows)
    return float(np.mean([abs(tau_b(*pair)) for pair in pairs]))


def closest_to_anchors(candidates: Sequence[Sequence[np.ndarray]], anchors: Sequence[np.ndarray]) -> int:
    """The index of the candidate with the largest `agreement`, of equals the last. No label is used."""
    agreements = [agreement(scores, anchors) if anchors else 0.0 for scores in candidates]
    return max(range(len(candidates)), key=lambda place: (agreements[place], place))


def closest_layer(layers: LayerFits, anchors: Mapping[int, np.ndarray]) -> LayerFits:
    """The layer whose probes agree best with the anchors; its time includes the fits of all layers."""
    in_order = [anchors[fit.index] for fit in next(iter(layers.values()))]
    scores = [[fit.scores for fit in fits] for fits in layers.values()]
    chosen = [*layers][closest_to_anchors(scores, in_order)]
    seconds = np.sum([[fit.seconds for fit in fits] for fits in layers.values()], axis=0)
    fits = zip(layers[chosen], seconds, strict=True)
    return {chosen: [replace(fit, seconds=float(spent)) for fit, spent in fits]}
