"""The probes as methods: read the states, fit, score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.metrics import kendall_tau
from ccrank.probing.crossval import cross_validate, held_out_scores, leave_one_item_out
from ccrank.probing.fits import Fits, fit_each, points_of_pairs
from ccrank.probing.objectives import Settings, objective_of
from ccrank.probing.probe import Probe
from ccrank.probing.reading import parse_layers, read_pair_states, read_single_states
from ccrank.probing.selection import TEMPLATES, closest_to_anchors, read_anchors
from ccrank.prompts import Template, Templates
from ccrank.ranking import Answer
from ccrank.task import Task

PROTOCOLS = ("same-task", "leave-one-out", "across-tasks")
_WORDING = ("text", "masked", "encoder_decoder", "candidates")


@dataclass(frozen=True)
class _Candidate:
    """States that might be probed, of one template and one or more layers, with the probes fitted to them."""

    template: str
    layers: list[int]
    fitted: list[tuple[list[np.ndarray], Fits | None]]
    """By layer, as `seed_scores` gives them."""

    def rows(self, task: int) -> np.ndarray:
        """A task's scores by all layers and seeds: (layers · seeds, N)."""
        return np.concatenate([scores[task] for scores, _ in self.fitted])


def seed_scores(
    tasks: Sequence[Task],
    states: Sequence[np.ndarray],
    method: str,
    seeds: Sequence[int],
    settings: Settings,
    protocol: str = "same-task",
    device: str = "cpu",
) -> tuple[list[np.ndarray], Fits | None]:
    """Each task's item scores by each seed's probe, (seeds, N), and the fits where there is one per task.

    "same-task" trains and tests on one task (the paper's main setting), "leave-one-out" scores each item by a probe
    that has not seen it, "across-tasks" trains on other tasks in 4 folds.
    """
    objective = objective_of(method)
    gold = None
    if objective.supervised:
        gold = [_gold(task, method) for task in tasks]
    options: dict[str, Any] = {"seeds": seeds, "settings": settings, "device": device}
    fits: Fits | None = None
    if protocol == "same-task":
        fits = fit_each(states, method, gold=gold, **options)
        scores = fits.scores(states)
    elif protocol == "across-tasks":
        _, scores = cross_validate(states, method, gold=gold, **options)
    elif protocol == "leave-one-out":
        left_out = leave_one_item_out(states, method, gold, **options)
        if objective.prompt == "pair":
            # [s, i] are the pair predictions without item i: make item scores of each, then take each item's own.
            left_out = [
                points_of_pairs(one, len(task.items)) for one, task in zip(left_out, tasks, strict=True)
            ]
        return [held_out_scores(one) for one in left_out], None
    else:
        raise CcrankError(f"a probe's protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    if objective.prompt == "pair":
        scores = [points_of_pairs(one, len(task.items)) for one, task in zip(scores, tasks, strict=True)]
    return scores, fits


def probe_method(name: str) -> Callable[..., list[Answer]]:
    """The method of a probe's name, with the options that users of such probes ask for."""
    supervised = objective_of(name).supervised

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
        )
        paired = objective_of(name).prompt == "pair"
        if paired and template != "single":
            raise CcrankError(
                f"{name} reads pairs of items, so that it has no template of single ones to choose; leave out "
                f"template={template!r}, or take a probe on single items"
            )
        wanted = ("pair",) if paired else TEMPLATES if template == "auto" else (template,)
        layers = parse_layers(layer, reader)
        costs = [Cost()] * len(tasks)
        candidates = []
        for one in wanted:
            if paired:
                states, spent = read_pair_states(tasks, reader, templates, layers, one, progress)
            else:
                states, spent = read_single_states(tasks, reader, templates, layers, one, position, progress)
            costs = _plus(costs, spent)
            fitted = [
                seed_scores(tasks, [own[:, column] for own in states], name, range(seeds), settings, protocol)
                for column in range(len(layers))
            ]
            if layer == "auto":
                candidates += [
                    _Candidate(one, [number], [fit]) for number, fit in zip(layers, fitted, strict=True)
                ]
            else:
                candidates.append(_Candidate(one, layers, fitted))
        chosen = candidates[-1]
        if "auto" in (layer, template):
            anchors, spent = read_anchors(tasks, reader, templates, progress)
            costs = _plus(costs, spent)
            rows = [[one.rows(index) for index in range(len(tasks))] for one in candidates]
            chosen = candidates[closest_to_anchors(rows, anchors)]
        layers = chosen.layers
        wording = asdict(templates[chosen.template])
        answers = []
        for index, cost in enumerate(costs):
            best = [_best_seed(scores[index], fits, index) for scores, fits in chosen.fitted]
            spread = [seeds_agree(scores[index]) for scores, _ in chosen.fitted]
            probe = None
            if len(layers) == 1 and (fits := chosen.fitted[0][1]) is not None:
                about = {
                    "model": reader.name,
                    "layer": layers[0],
                    "position": position,
                    "template": chosen.template,
                    "wording": {key: wording[key] for key in _WORDING if wording[key]},
                }
                probe = fits.probe(index, best[0][1], **about)
            details = {
                "layer": layers if len(layers) > 1 else layers[0],
                "template": chosen.template,
                "seeds": seeds,
            }
            answers.append(
                Answer(
                    consensus(np.stack([scores for scores, _ in best])),
                    {"seeds_agree": float(np.mean(spread))},
                    cost,
                    details,
                    probe,
                )
            )
        return answers

    run.__doc__ = f"""{_what(name)}

    The defaults are the paper's: states of the last layer, Z-scored within the task, 200 epochs of Adam, and of 5 seeds
    the one of the lowest {"training" if supervised else "(label-free)"} loss. `layer` is last, all, auto or a number:
    with all, the layers' rankings are joined by their first principal component; auto takes the one whose probes agree
    best with the label-free routes (see the method `auto`), over all tasks. `template` is the ItemSingle prompt whose
    states are read: single, poles, one of your own, or auto, which takes single or poles in the same way, together with
    the layer. `position` is slot or item.
    """
    return run


def apply_probe(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    file: str = "",
    progress: Progress | None = None,
) -> list[Answer]:
    """Score items with a probe that was saved before (`--save-probe`), on the model that it was fitted on.

    Items are read in the words in which the probe was fitted, whatever the template of that name says now.
    """
    if not file:
        raise CcrankError("which probe? Name its file, with --probe FILE")
    probe = Probe.load(file)
    if probe.about.get("model") not in (None, reader.name):
        raise CcrankError(f"{file} was fitted on the model {probe.about['model']}, not on {reader.name}")
    layer = int(probe.about.get("layer", reader.depth))
    template, templates = _as_fitted(probe, templates)
    if probe.paired:
        states, costs = read_pair_states(tasks, reader, templates, [layer], template, progress)
    else:
        position = str(probe.about.get("position", "slot"))
        states, costs = read_single_states(tasks, reader, templates, [layer], template, position, progress)
    answers = []
    for task, one, cost in zip(tasks, states, costs, strict=True):
        scores = probe(one[:, 0])
        if probe.paired:
            scores = points_of_pairs(scores, len(task.items))
        details = {"probe": str(file), "fitted_by": probe.about.get("method")}
        directed = bool(probe.about.get("directed", False))
        answers.append(Answer(scores, {}, cost, details, directed=directed))
    return answers


def consensus(scores: np.ndarray) -> np.ndarray:
    """One score per item from several layers' scores of unknown signs: their first principal component.

    (L, N) -> (N,); a single layer's scores stay as they are.
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
    """Mean |τ| between the seeds' rankings, direction aside; NaN for a single seed. (S, N) -> scalar"""
    pairs = [
        abs(kendall_tau(first, second)) for first, second in combinations(scores, 2) if _spread(first, second)
    ]
    return float(np.mean(pairs)) if pairs else float("nan")


def _as_fitted(probe: Probe, templates: Templates) -> tuple[str, Templates]:
    """The name of the template that a probe was fitted on, and the templates with that one as it was then."""
    wording = probe.about.get("wording")
    if wording is None:
        # Not every probe has its words written down; one on pairs then has the only template that there was.
        return "pair" if probe.paired else str(probe.about.get("template", "single")), templates
    name = str(probe.about["template"])
    words: dict[str, Any] = {
        key: tuple(value) if key == "candidates" else value for key, value in wording.items()
    }
    return name, Templates({**templates.by_name, name: Template(name, **words)})


def _plus(costs: Sequence[Cost], more: Sequence[Cost]) -> list[Cost]:
    return [first + second for first, second in zip(costs, more, strict=True)]


def _spread(first: np.ndarray, second: np.ndarray) -> bool:
    return len(np.unique(second)) == len(second) and len(np.unique(first)) > 1


def _best_seed(scores: np.ndarray, fits: Fits | None, index: int) -> tuple[np.ndarray, int]:
    """The seed of the lowest loss, where losses are known; else the first."""
    seed = 0 if fits is None else int(fits.loss[index].argmin())
    return scores[seed], seed


def _gold(task: Task, method: str) -> np.ndarray:
    if task.values is None:
        raise CcrankError(
            f"task {task.id!r} has no gold, which {method} is trained on; give `values` or `order`"
        )
    return np.asarray(task.values)


def _what(name: str) -> str:
    loss = objective_of(name).loss
    if loss is None:
        return {"random": "A random direction.", "pca": "The first principal component of the states."}[name]
    kind = (
        "supervised twin of the paper's probe, trained on gold"
        if objective_of(name).supervised
        else "the paper's probe"
    )
    return f"{name}: {kind}, a linear direction in the model's states."
