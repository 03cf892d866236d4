"""The probes as methods of ranking: read states, fit, choose, score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.labelfree.signals import read_poles
from ccrank.methods.labelled.saved_model import StatesProbe, is_states_probe
from ccrank.methods.probe_pipeline.fitting import LayerFit, ProbeSpec, closest_to_anchors, fit_layers
from ccrank.methods.probe_pipeline.states import TaskStates, add_anchors, read_states
from ccrank.methods.probing.fits import points_of_pairs
from ccrank.methods.probing.objectives import Settings, objective_of
from ccrank.methods.probing.probe import Probe
from ccrank.metrics import tau_b
from ccrank.models import Cost, Reader
from ccrank.models.reading import Progress, Request, shares_by_items
from ccrank.prompts import Form, Template, Templates
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
        protocol: str = "same-task",
        progress: Progress | None = None,
        **own: Any,
    ) -> list[Answer]:
        choices: Any = (optimiser, initial, consistency, sub_batch)  # `Settings` checks them
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
            candidates[candidate], _ = fit_layers(tasks, states, spec)
            if template == "auto" and anchors is None:
                if states.anchors is None:
                    add_anchors(states, tasks, reader, templates, progress=progress)
                anchors = states.anchors
            costs = [spent + more for spent, more in zip(costs, states.costs, strict=True)]
        chosen = [*candidates][-1] if anchors is None else _closest_template(candidates, anchors)
        about = {
            "model": reader.name,
            "position": position,
            "template": chosen,
            "wording": templates[chosen].notes(),
        }
        return [_answer(candidates[chosen], index, cost, about) for index, cost in enumerate(costs)]

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


def _answer(layers: Sequence[LayerFit], index: int, cost: Cost, about: Mapping[str, Any]) -> Answer:
    """One task's answer: of each layer the best seed, of several layers their consensus."""
    fits = [layer.tasks[index] for layer in layers]
    numbers = [layer.layer for layer in layers]
    probe = None
    if len(fits) == 1 and fits[0].fits is not None and fits[0].fold < 0:
        probe = fits[0].fits.probe(fits[0].row, fits[0].best_seed, layer=numbers[0], **about)
    return Answer(
        consensus(np.stack([fit.scores[fit.best_seed] for fit in fits])),
        {"seeds_agree": float(np.mean([seeds_agree(fit.scores) for fit in fits]))},
        cost,
        {
            "layer": numbers if len(numbers) > 1 else numbers[0],
            "template": about["template"],
            "seeds": len(fits[0].scores),
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
    states = states_as_fitted(probe, tasks, reader, templates, progress)
    answers = []
    for task, task_states, cost in zip(tasks, states.of_layer(0), states.costs, strict=True):
        scores = probe(task_states)
        if probe.paired:
            scores = points_of_pairs(scores, len(task.items))
        details = {"probe": str(file), "fitted_by": probe.about.get("method")}
        directed = bool(probe.about.get("directed", False))
        if directed and task.criterion.reversed != bool(probe.about.get("reversed", False)):
            scores = 1 - scores  # fitted to have the other pole first
        answers.append(Answer(scores, {}, cost, details, directed=directed))
    return answers


def states_as_fitted(
    probe: Probe, tasks: Sequence[Task], reader: Reader, templates: Templates, progress: Progress | None
) -> TaskStates:
    """The states of new items as a saved probe takes them: of its layer and position, in its wording."""
    template, templates = _as_fitted(probe.about, templates, probe.paired)
    return read_states(
        tasks,
        reader,
        templates,
        str(probe.about.get("layer", "last")),
        paired=probe.paired,
        template=template,
        position=str(probe.about.get("position", "slot")),
        progress=progress,
    )


def _apply_states_probe(
    tasks: Sequence[Task], reader: Reader, templates: Templates, file: str, progress: Progress | None
) -> list[Answer]:
    """As `apply_probe`, for the probe of a ranking with labels."""
    probe = StatesProbe.load(file)
    if probe.about.get("model") != reader.name:
        raise CcrankError(f"{file} was fitted on the model {probe.about.get('model')}, not on {reader.name}")
    template, templates = _as_fitted(probe.about, templates)
    readings = read_poles(tasks, reader, templates, template, False, probe.layers, progress)
    costs = shares_by_items(readings.cost, tasks)
    details = {"probe": str(file), "fitted_by": "auto with labels"}
    return [
        Answer(probe((slot, item)), {}, cost, details, directed=True)
        for slot, item, cost in zip(readings.states, readings.item_states, costs, strict=True)
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
    pairs = [templates.pair(task, *pair, form) for pair in permutations(range(len(task.items)), 2)]
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
        abs(tau_b(first, second))
        for first, second in combinations(scores, 2)
        if len(np.unique(second)) == len(second) and len(np.unique(first)) > 1
    ]
    return float(np.mean(pairs)) if pairs else float("nan")


def _as_fitted(about: Mapping[str, Any], templates: Templates, paired: bool = False) -> tuple[str, Templates]:
    """The name of the template that a probe was fitted on, and the templates with that one as it was then."""
    name = str(about.get("template", "pair" if paired else "single"))
    if "wording" not in about:  # a probe that was made by hand
        return name, templates
    try:
        words: dict[str, Any] = dict(about["wording"])
        words["candidates"] = tuple(words.get("candidates", ()))
        template = Template(name, **words)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise CcrankError(f"the probe file is damaged: its template cannot be used ({error!r})") from None
    return name, Templates({**templates.by_name, name: template})


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
