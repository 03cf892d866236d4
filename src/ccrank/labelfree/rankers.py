"""The label-free methods: each signal alone, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, nan
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.labelfree.anchored import anchored_scores, smoothed
from ccrank.labelfree.combine import DOUBT, Signals, read_signals
from ccrank.labelfree.reweighting import fit_signal_weights
from ccrank.labelfree.signals import (
    Wording,
    likelihood_prompts,
    pole_prompts,
    read_likelihood,
    read_poles,
    wordings_of,
)
from ccrank.labels import Labels
from ccrank.lexicon import poles_of
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.layers import middle_and_late
from ccrank.lm.reader import Progress
from ccrank.lm.reading import Request, shares_by_items
from ccrank.prompts import Form, Templates
from ccrank.ranking import Answer
from ccrank.standardise import z_scores
from ccrank.task import Criterion, Task

LEAST_TASKS = 4
"""Fewer tasks of one criterion are too few to fit a probe on."""


def auto(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    anchor: bool = True,
    labels: Any = None,
    progress: Progress | None = None,
) -> list[Answer]:
    """The mean of several label-free signals, each of which is directed.

    Without context: the pole words that the model prefers for the item (poles), the items that it finds likely at
    either pole (likelihood, in two wordings), and the item's state between exemplars of both poles (axis). With a
    context: the items that the context makes likely. Scores are then smoothed over items with similar states: within a
    list, or by a probe across four or more tasks of one criterion (see `anchored`). `anchor=no` leaves the plain
    mean. The words for both poles come from --poles, --comparative or the criterion's name.

    A few labels for one list (`labels`: item → value, or pairs (higher, lower); --labels FILE) reweight the signals,
    and reverse the order if they say so; `details["labels"]` reports how well each label is predicted by the others.
    """
    if labels is not None:
        return [_with_labels(tasks, reader, templates, labels, anchor, progress)]
    groups = _by_criterion(tasks)
    pooled = {criterion for criterion, members in groups.items() if anchor and len(members) >= LEAST_TASKS}
    answers: dict[int, Answer] = {}
    together = [
        index for criterion, members in groups.items() if criterion not in pooled for index in members
    ]
    if together:
        own = [tasks[index] for index in together]
        read = read_signals(own, reader, templates, progress)
        for place, (index, cost) in enumerate(zip(together, shares_by_items(read.cost, own), strict=True)):
            scores = read.signals[place].total()
            if anchor and place in read.states:
                scores = smoothed(read.states[place][1], scores)
            answers[index] = _answer(tasks[index], read.signals[place], scores, cost)
    for criterion in pooled:
        own = [tasks[index] for index in groups[criterion]]
        found = anchored(own, reader, templates, progress=progress)
        answers.update(zip(groups[criterion], found, strict=True))
    return [answers[index] for index in range(len(tasks))]


def _with_labels(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    labels: object,
    anchor: bool,
    progress: Progress | None,
) -> Answer:
    if len(tasks) != 1:
        raise CcrankError(
            f"labels are for the items of one list; there are {len(tasks)} tasks: rank them one by one"
        )
    [task] = tasks
    pairs = Labels.parse(labels).places(task.items)
    read = read_signals(tasks, reader, templates, progress)
    [signals] = read.signals
    fitted = fit_signal_weights(signals.scores, pairs)
    scores = smoothed(read.states[0][1], fitted.scores) if anchor and read.states else fitted.scores
    answer = _answer(task, signals, scores, read.cost)
    return replace(answer, details={**answer.details, "labels": fitted.details([*signals.scores])})


def anchored(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    ridge: float = 1.0,
    progress: Progress | None = None,
) -> list[Answer]:
    """A probe from hidden states to the signals' mean (the anchor), fitted on the other tasks of the same criterion.

    The probe sees many tasks, so it keeps what their anchors have in common and averages out the noise of each. A task
    is scored by probes that have not seen it, averaged over the layers and positions whose probes predict the anchors
    of other tasks best, plus half its own anchor. Criteria with fewer than 4 tasks fall back on smoothing within each
    list, each item predicted from the others.
    """
    read = read_signals(tasks, reader, templates, progress, with_states=True)
    costs = shares_by_items(read.cost, tasks)
    answers: dict[int, Answer] = {}
    for criterion, members in _by_criterion(tasks).items():
        anchors = [read.signals[index].total() for index in members]
        probe = None
        if len(members) >= LEAST_TASKS:
            states = [np.concatenate(read.states[index], axis=1) for index in members]
            places = [(position, layer) for position in ("slot", "item") for layer in read.layers]
            fitted = anchored_scores(states, anchors, places, ridge)
            scores = fitted.scores
            notes = {"directed": True, "reversed": criterion.reversed}
            probe = fitted.probe(model=reader.name, template="poles", **notes)
        else:
            scores = [
                smoothed(read.states[index][1], own) for index, own in zip(members, anchors, strict=True)
            ]
        for index, score in zip(members, scores, strict=True):
            answers[index] = _answer(tasks[index], read.signals[index], score, costs[index], probe)
    return [answers[index] for index in range(len(tasks))]


def poles(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    template: str = "poles",
    progress: Progress | None = None,
) -> list[Answer]:
    """The words that the model prefers for the item: log-odds of the high pole's words against the low pole's."""
    if reader.loaded.missing_head:
        raise CcrankError(
            f"poles needs logits, and {reader.name} has no language-model head; use axis or auto, which read states"
        )
    found = read_poles(tasks, reader, templates, template, progress=progress)
    return _plain(tasks, found.poles, found.cost)


def likelihood(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    template: str = "",
    against: str = "low",
    progress: Progress | None = None,
) -> list[Answer]:
    """The item as the answer: its log-probability where the high pole is named less that where the low pole is.

    The mean of the wordings that `auto` takes for such a list, each Z-scored; or one `template`, its log-probabilities
    compared with (`against`) the low pole (low), the same prompt without the context (context) or nothing.
    """
    wordings = [Wording(template, against)] if template else None  # type: ignore[arg-type]
    found, cost = read_likelihood(tasks, reader, templates, wordings, progress)
    scores = [np.mean([z_scores(one) for one in own.values()], axis=0) for own in found]
    return _plain(tasks, scores, cost)


def axis(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    template: str = "poles",
    progress: Progress | None = None,
) -> list[Answer]:
    """The item's state between those of exemplars: from "a very small country" to "a very large country"."""
    layers = middle_and_late(reader.depth)
    found = read_poles(tasks, reader, templates, template, False, layers, progress)
    return _plain(tasks, found.axis, found.cost)


def _answer(task: Task, signals: Signals, scores: np.ndarray, cost: Cost, probe: object = None) -> Answer:
    mean, p_value = signals.agreement()
    words = poles_of(task.criterion)
    details: dict[str, object] = {
        "poles": [words.low[0], words.high[0]],
        "signals": {
            name: {item: round(float(one), 4) for item, one in zip(task.items, row, strict=True)}
            for name, row in signals.scores.items()
        },
    }
    if p_value > DOUBT:
        details["warning"] = "the signals agree no better than chance: do not rely on this order"
    return Answer(scores, {"signals_agree": mean, "signals_p_value": p_value}, cost, details, probe)


def _plain(tasks: Sequence[Task], scores: Sequence[np.ndarray], cost: Cost) -> list[Answer]:
    return [Answer(one, {}, share) for one, share in zip(scores, shares_by_items(cost, tasks), strict=True)]


def _by_criterion(tasks: Sequence[Task]) -> dict[Criterion, list[int]]:
    groups: dict[Criterion, list[int]] = {}
    for index, task in enumerate(tasks):
        groups.setdefault(task.criterion, []).append(index)
    return groups


def auto_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `auto`: pole words and states in one reading, then items as answers."""
    likely = likelihood_requests(task, form, templates)
    return likely if task.context else [*_with_exemplars(task, form, templates), *likely]


def anchored_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `anchored`: like `auto`, with states even if there is a context."""
    return [*_with_exemplars(task, form, templates), *likelihood_requests(task, form, templates)]


def poles_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `poles`."""
    return [pole_prompts(task, form, templates)]


def axis_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `axis`."""
    prompts, _ = pole_prompts(task, form, templates, with_exemplars=True)
    return [(prompts, None)]


def likelihood_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `likelihood`."""
    return [(likelihood_prompts(task, form, templates, wordings_of(task)), task.items)]


def _with_exemplars(task: Task, form: Form, templates: Templates) -> list[Request]:
    return [pole_prompts(task, form, templates, with_exemplars=True)]


def describe_signals(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """The poles, how far the signals agree and what labels changed, as phrases."""
    phrases = []
    if isfinite(agree := consistency.get("signals_agree", nan)):
        low, high = details["poles"]
        phrases += [f"from {low} to {high}", f"the signals agree (mean τ = {agree:.2f}; 0 by chance)"]
    if "labels" in details:
        labels = details["labels"]
        phrases.append(
            f"{labels['labelled']} labelled items: τ = {labels['leave_one_out_tau']:+.2f} where left out of the fit "
            f"({labels['without_labels_tau']:+.2f} without labels)"
        )
    return phrases
