"""The probes as methods of ranking: read states, fit, choose, score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.labelfree.signals import read_poles
from ccrank.labelled.probe import StatesProbe, is_states_probe
from ccrank.lm import Cost, Reader
from ccrank.lm.layers import parse_layers
from ccrank.lm.reader import Progress
from ccrank.lm.reading import Request, shares_by_items
from ccrank.metrics import tau_b
from ccrank.probe_pipeline.fitting import LayerFit, ProbeSpec, fit_layers
from ccrank.probe_pipeline.selection import TEMPLATES, closest_to_anchors, read_anchors
from ccrank.probe_pipeline.states import StateRequest, read_states
from ccrank.probing.fits import points_of_pairs
from ccrank.probing.objectives import Settings, objective_of
from ccrank.probing.probe import Probe
from ccrank.prompts import Form, Template, Templates
from ccrank.ranking import Answer
from ccrank.task import Task


@dataclass(frozen=True)
class _Candidate:
    """Probes that may be chosen: those of one template and of one or more layers."""

    template: str
    layers: list[LayerFit]

    def rows(self, task: int) -> np.ndarray:
        """A task's scores by all layers and seeds: (layers · seeds, N)."""
        return np.concatenate([one.tasks[task].scores for one in self.layers])


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
        protocol: str = "same-task",
        progress: Progress | None = None,
    ) -> list[Answer]:
        settings = Settings(
            epochs=epochs,
            learning_rate=learning_rate,
            margin=margin,
            weight_decay=weight_decay,
            optimiser=optimiser,  # type: ignore[arg-type]
            initial=initial,  # type: ignore[arg-type]
            consistency=consistency,  # type: ignore[arg-type]
            sub_batch=sub_batch,  # type: ignore[arg-type]
        )
        paired = objective.prompt == "pair"
        if paired and template != "single":
            raise CcrankError(
                f"{name} reads pairs of items, so it has no template of single items to choose; leave out "
                f"template={template!r}, or take a probe on single items"
            )
        spec = ProbeSpec(name, tuple(range(seeds)), settings, protocol, training_device(reader))
        layers = tuple(parse_layers(layer, reader))
        costs = [Cost()] * len(tasks)
        candidates = []
        for one in ("pair",) if paired else TEMPLATES if template == "auto" else (template,):
            request = StateRequest(layers, one, paired, position)
            states = read_states(tasks, reader, templates, request, progress=progress)
            costs = _plus(costs, states.costs)
            fitted, _ = fit_layers(tasks, states, spec)
            candidates += (
                [_Candidate(one, [fit]) for fit in fitted] if layer == "auto" else [_Candidate(one, fitted)]
            )
        chosen = candidates[-1]
        if "auto" in (layer, template):
            anchors, spent = read_anchors(tasks, reader, templates, progress)
            costs = _plus(costs, spent)
            rows = [[candidate.rows(index) for index in range(len(tasks))] for candidate in candidates]
            chosen = candidates[closest_to_anchors(rows, anchors)]
        about = {
            "model": reader.name,
            "position": position,
            "template": chosen.template,
            "wording": templates[chosen.template].notes(),
        }
        return [_answer(chosen, index, cost, about) for index, cost in enumerate(costs)]

    run.__doc__ = f"""{_what(name)}

    The defaults are the paper's: states of the last layer, Z-scored within the task, 200 epochs of Adam, and of 5 seeds
    the one of the lowest {"training" if objective.supervised else "(label-free)"} loss. `layer` is last, all, auto or a
    number: with all, the layers' rankings are combined by their first principal component; auto takes the layer whose
    probes agree best with the label-free signals (see the method `auto`), over all tasks. `template` is the ItemSingle
    prompt whose states are read: single, poles, one of your own, or auto, which chooses between single and poles in the
    same way, together with the layer. `position` is slot or item.
    """
    return run


def _answer(chosen: _Candidate, index: int, cost: Cost, about: Mapping[str, Any]) -> Answer:
    """One task's answer: of each layer the best seed, of several layers their consensus."""
    own = [one.tasks[index] for one in chosen.layers]
    numbers = [one.layer for one in chosen.layers]
    probe = None
    if len(own) == 1 and own[0].fits is not None:
        probe = own[0].fits.probe(own[0].row, own[0].best_seed, layer=numbers[0], **about)
    return Answer(
        consensus(np.stack([fit.scores[fit.best_seed] for fit in own])),
        {"seeds_agree": float(np.mean([seeds_agree(fit.scores) for fit in own]))},
        cost,
        {
            "layer": numbers if len(numbers) > 1 else numbers[0],
            "template": chosen.template,
            "seeds": len(own[0].scores),
        },
        probe,
    )


def apply_probe(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    file: str = "",
    progress: Progress | None = None,
) -> list[Answer]:
    """Score items with a probe that was saved before (`--save-probe`), on the model that it was fitted on.

    Items are read with the wording that the probe was fitted on, even if the template of that name has changed since.
    """
    if not file:
        raise CcrankError("no probe given: pass its file with --probe FILE")
    if is_states_probe(file):
        return _apply_states_probe(tasks, reader, templates, file, progress)
    probe = Probe.load(file)
    if probe.about.get("model") not in (None, reader.name):
        raise CcrankError(f"{file} was fitted on the model {probe.about['model']}, not on {reader.name}")
    template, templates = _as_fitted(probe.about, templates, probe.paired)
    request = StateRequest(
        (int(probe.about.get("layer", reader.depth)),),
        template,
        probe.paired,
        str(probe.about.get("position", "slot")),
    )
    states = read_states(tasks, reader, templates, request, progress=progress)
    answers = []
    for task, own, cost in zip(tasks, states.of_layer(0), states.costs, strict=True):
        scores = probe(own)
        if probe.paired:
            scores = points_of_pairs(scores, len(task.items))
        details = {"probe": str(file), "fitted_by": probe.about.get("method")}
        directed = bool(probe.about.get("directed", False))
        if directed and task.criterion.reversed != bool(probe.about.get("reversed", False)):
            scores = 1 - scores  # fitted to have the other pole first
        answers.append(Answer(scores, {}, cost, details, directed=directed))
    return answers


def _apply_states_probe(
    tasks: Sequence[Task], reader: Reader, templates: Templates, file: str, progress: Progress | None
) -> list[Answer]:
    """As `apply_probe`, for the probe of a ranking with labels."""
    probe = StatesProbe.load(file)
    if probe.about.get("model") != reader.name:
        raise CcrankError(f"{file} was fitted on the model {probe.about.get('model')}, not on {reader.name}")
    template, templates = _as_fitted(probe.about, templates)
    found = read_poles(tasks, reader, templates, template, False, probe.layers, progress)
    costs = shares_by_items(found.cost, tasks)
    details = {"probe": str(file), "fitted_by": "auto with labels"}
    return [
        Answer(probe((slot, item)), {}, cost, details, directed=True)
        for slot, item, cost in zip(found.states, found.item_states, costs, strict=True)
    ]


def training_device(reader: Reader) -> str:
    """Where probes are trained: on the model's CUDA GPU, else on the CPU."""
    device = reader.loaded.model.device
    return str(device) if device.type == "cuda" else "cpu"


def single_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of a probe on single items."""
    return [([templates.single(task, index, form) for index in range(len(task.items))], None)]


def pair_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of a probe on pairs of items."""
    places = range(len(task.items))
    pairs = [
        templates.pair(task, first, second, form) for first in places for second in places if first != second
    ]
    return [([prompt.filled(answer) for prompt in pairs for answer in templates["pair"].candidates], None)]


def describe_seeds(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """How far the seeds of a probe agree, as phrases."""
    agree = consistency.get("seeds_agree", float("nan"))
    return [f"|τ| between seeds {agree:.2f}"] if np.isfinite(agree) else []


def consensus(scores: np.ndarray) -> np.ndarray:
    """One score per item from several layers' scores of unknown signs: their first principal component.

    (L, N) -> (N,); a single layer's scores are unchanged.
    """
    if len(scores) == 1:
        return np.asarray(scores[0])
    centred = scores - scores.mean(axis=1, keepdims=True)
    spread = np.linalg.norm(centred, axis=1, keepdims=True)
    rows = centred / np.where(spread > 0, spread, 1.0)
    _, _, components = np.linalg.svd(rows, full_matrices=False)
    best = components[0]
    # The sign of the layers' majority, so that adding a layer that agrees changes nothing.
    return np.asarray(best * np.sign((rows @ best).sum() or 1.0))


def seeds_agree(scores: np.ndarray) -> float:
    """Mean |τ| between the seeds' rankings, regardless of direction; NaN for a single seed. (S, N) -> scalar"""
    pairs = [
        abs(tau_b(first, second)) for first, second in combinations(scores, 2) if _comparable(first, second)
    ]
    return float(np.mean(pairs)) if pairs else float("nan")


def _comparable(first: np.ndarray, second: np.ndarray) -> bool:
    return len(np.unique(second)) == len(second) and len(np.unique(first)) > 1


def _as_fitted(about: Mapping[str, Any], templates: Templates, paired: bool = False) -> tuple[str, Templates]:
    """The name of the template that a probe was fitted on, and the templates with that one as it was then."""
    wording = about.get("wording")
    if wording is None:
        # Probes saved without their wording: on pairs there was only one template.
        return "pair" if paired else str(about.get("template", "single")), templates
    name = str(about["template"])
    words: dict[str, Any] = {
        key: tuple(value) if key == "candidates" else value for key, value in wording.items()
    }
    return name, Templates({**templates.by_name, name: Template(name, **words)})


def _plus(costs: Sequence[Cost], more: Sequence[Cost]) -> list[Cost]:
    return [first + second for first, second in zip(costs, more, strict=True)]


def _what(name: str) -> str:
    objective = objective_of(name)
    if objective.loss is None:
        return objective.summary
    kind = (
        "supervised counterpart of the paper's probe, trained on gold"
        if objective.supervised
        else "the paper's probe"
    )
    return f"{name}: {kind}, a linear direction in the model's states."
