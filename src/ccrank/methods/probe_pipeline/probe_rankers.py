"""The probes as methods of ranking: read states, fit, choose, score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.probe_pipeline.fitting import LayerFit, ProbeSpec, closest_to_anchors, fit_layers
from ccrank.methods.probe_pipeline.states import TaskStates, add_anchors, read_states
from ccrank.methods.probing.objectives import Settings, objective_of
from ccrank.methods.probing.scorer import ProbeScorer, consensus
from ccrank.metrics import tau_b
from ccrank.models import Cost, Reader
from ccrank.models.reading import Progress, Request
from ccrank.prompts import Form, Templates
from ccrank.ranking import Answer
from ccrank.task import Task

TEMPLATES = ("poles", "single")
"""The templates that `template=auto` chooses from. Of equally good ones the last is taken: the paper's."""


def probe_method(name: str) -> Callable[..., list[Answer]]:
    """The method of a probe's name, with its options."""
    objective = objective_of(name)

    def run(
        tasks: Sequence[Task],
        reader: Reader,
        templates: Templates,
        *,
        layer: str = "last",
        template: str = "single",
        position: str = "slot",
        seeds: int = 5,
        epochs: int = 200,
        learning_rate: float = 1e-3,
        margin: float = 0.2,
        weight_decay: float = 0.0,
        optimiser: str = "adam",
        initial: str = "uniform",
        consistency: str = "squared",
        sub_batch: str = "none",
        features: str = "linear",
        protocol: str = "same-task",
        progress: Progress | None = None,
        **own: Any,
    ) -> list[Answer]:
        choices: Any = (optimiser, initial, consistency, sub_batch, features)  # `Settings` checks them
        settings = Settings(epochs, learning_rate, margin, weight_decay, *choices)
        settings = replace(settings, own=tuple({**objective.own, **own}.items()))
        paired = objective.prompt == "pair"
        if paired and template != "single":
            raise CcrankError(
                f"{name} reads pairs of items, so it has no template of single items to choose; leave out "
                f"template={template!r}, or take a probe on single items"
            )
        spec = ProbeSpec(name, tuple(range(seeds)), settings, protocol, training_device(reader))
        costs = [Cost()] * len(tasks)
        candidates: dict[str, list[LayerFit]] = {}
        read: dict[str, TaskStates] = {}
        anchors: Mapping[int, np.ndarray] | None = None
        for candidate in ("pair",) if paired else TEMPLATES if template == "auto" else (template,):
            states = read_states(
                tasks,
                reader,
                templates,
                layer,
                paired=paired,
                template=candidate,
                position=position,
                anchors=anchors if layer == "auto" else None,
                progress=progress,
            )
            read[candidate] = states
            candidates[candidate], _ = fit_layers(tasks, states, spec)
            if template == "auto" and anchors is None:
                if states.anchors is None:
                    add_anchors(states, tasks, reader, templates, progress=progress)
                anchors = states.anchors
            costs = [spent + more for spent, more in zip(costs, states.costs, strict=True)]
        chosen = [*candidates][-1] if anchors is None else _closest_template(candidates, anchors)
        about = {"model": reader.name, "position": position, "template": chosen}
        linear = features == "linear"
        return [
            _answer(candidates[chosen], read[chosen], index, cost, about, linear)
            for index, cost in enumerate(costs)
        ]

    run.__doc__ = f"""{_what(name)}

    The defaults are the paper's: states of the last layer, Z-scored within the task, 200 epochs of Adam, and of 5 seeds
    the one of the lowest {"training" if objective.supervised else "(label-free)"} loss. `layer` is last, all, auto or a
    number: with all, the layers' rankings are combined by their first principal component; auto takes the layer whose
    probes agree best with the label-free signals (see the method `auto`), over all tasks. `template` is the ItemSingle
    prompt whose states are read: single, poles, one of your own, or auto, which chooses between single and poles in the
    same way, together with the layer. `position` is slot or item.
    """
    return run


def _closest_template(candidates: Mapping[str, Sequence[LayerFit]], anchors: Mapping[int, np.ndarray]) -> str:
    """The template whose probes, of all its layers and seeds, agree best with the anchors."""
    scores = [
        [np.concatenate([layer.tasks[index].scores for layer in layers]) for index in anchors]
        for layers in candidates.values()
    ]
    return [*candidates][closest_to_anchors(scores, [*anchors.values()])]


def _answer(
    layers: Sequence[LayerFit],
    states: TaskStates,
    index: int,
    cost: Cost,
    about: Mapping[str, Any],
    linear: bool,
) -> Answer:
    """One task's answer: of each layer the best seed, of several layers their consensus. A scorer for other items needs
    probes that are linear in the states."""
    fits = [layer.tasks[index] for layer in layers]
    numbers = [layer.layer for layer in layers]
    scores = np.stack([fit.scores[fit.best_seed] for fit in fits])

    def scorer() -> ProbeScorer:
        probes = [
            fit.fits.probe(fit.row, fit.best_seed, layer=layer, **about)
            for fit, layer in zip(fits, numbers, strict=True)
            if fit.fits is not None
        ]
        own = [states.of_layer(states.layers.index(layer))[index] for layer in numbers]
        return ProbeScorer.fit(probes, own, scores)

    return Answer(
        consensus(scores),
        {"seeds_agree": float(np.mean([seeds_agree(fit.scores) for fit in fits]))},
        cost,
        {
            "layer": numbers if len(numbers) > 1 else numbers[0],
            "template": about["template"],
            "seeds": len(fits[0].scores),
        },
        scorer if linear and all(fit.fits is not None and fit.fold < 0 for fit in fits) else None,
    )


def training_device(reader: Reader) -> str:
    """Where probes are trained: on the model's CUDA GPU, else on the CPU."""
    device = reader.loaded.model.device
    return str(device) if device.type == "cuda" else "cpu"


def single_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of a probe on single items."""
    return [([templates.single(task, index, form) for index in range(len(task.items))], None)]


def pair_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of a probe on pairs of items."""
    pairs = [templates.pair(task, *pair, form) for pair in permutations(range(len(task.items)), 2)]
    return [([prompt.filled(answer) for prompt in pairs for answer in templates["pair"].candidates], None)]


def describe_seeds(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """How far the seeds of a probe agree, as phrases."""
    agree = consistency.get("seeds_agree", float("nan"))
    return [f"|τ| between seeds {agree:.2f}"] if np.isfinite(agree) else []


def seeds_agree(scores: np.ndarray) -> float:
    """Mean |τ| between the seeds' rankings, regardless of direction; NaN for a single seed. (S, N) -> scalar"""
    pairs = [
        abs(tau_b(first, second))
        for first, second in combinations(scores, 2)
        if len(np.unique(second)) == len(second) and len(np.unique(first)) > 1
    ]
    return float(np.mean(pairs)) if pairs else float("nan")


def _what(name: str) -> str:
    objective = objective_of(name)
    if objective.summary:
        return objective.summary
    kind = (
        "supervised counterpart of the paper's probe, trained on gold"
        if objective.supervised
        else "the paper's probe"
    )
    return f"{name}: {kind}, a linear direction in the model's states."
