"""The label-free routes as methods, alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.gold import Gold
from ccrank.labelfree.anchored import anchored_scores, with_neighbours
from ccrank.labelfree.combine import DOUBT, Parts, read_parts
from ccrank.labelfree.gold import fit_gold
from ccrank.labelfree.routes import Wording, middle_and_late, read_likelihood, read_poles, standard
from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.prompting.asking import shares_by_items
from ccrank.prompts import Templates
from ccrank.ranking import Answer
from ccrank.task import Criterion, Task
from ccrank.words import ends_of

LEAST_TASKS = 4
"""Fewer tasks of one criterion are no pool to fit on."""


def auto(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    anchor: bool = True,
    gold: Any = None,
    progress: Progress | None = None,
) -> list[Answer]:
    """The mean of several label-free routes, each of which knows direction.

    Without context: the words that the model would use for the item (poles), the items that come to its mind at either
    end (likelihood, in two wordings), and where the item's state lies between made-up items of both ends (axis). With
    a context: which items the context makes likely. Items that the model holds alike then lend each other their
    scores: within a list, or by a probe across four or more tasks of one criterion (see `anchored`). `anchor=no` leaves
    the plain mean. The words for both ends come from --poles, --more or the criterion's name.

    A few labels for one list (`gold`: item → value, or pairs (higher, lower); --gold FILE) weigh the routes anew, and
    turn the order round if they say so; `details["gold"]` tells how well each label is foretold by the others.
    """
    if gold is not None:
        return [_with_gold(tasks, reader, templates, gold, anchor, progress)]
    groups = _by_criterion(tasks)
    pooled = {criterion for criterion, members in groups.items() if anchor and len(members) >= LEAST_TASKS}
    answers: dict[int, Answer] = {}
    together = [
        index for criterion, members in groups.items() if criterion not in pooled for index in members
    ]
    if together:
        own = [tasks[index] for index in together]
        read = read_parts(own, reader, templates, progress)
        for place, (index, cost) in enumerate(zip(together, shares_by_items(read.cost, own), strict=True)):
            scores = read.parts[place].total()
            if anchor and place in read.states:
                scores = with_neighbours(read.states[place][1], scores)
            answers[index] = _answer(tasks[index], read.parts[place], scores, cost)
    for criterion in pooled:
        own = [tasks[index] for index in groups[criterion]]
        found = anchored(own, reader, templates, progress=progress)
        answers.update(zip(groups[criterion], found, strict=True))
    return [answers[index] for index in range(len(tasks))]


def _with_gold(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    gold: object,
    anchor: bool,
    progress: Progress | None,
) -> Answer:
    if len(tasks) != 1:
        raise CcrankError(
            f"gold labels the items of one list; there are {len(tasks)} tasks: rank them one by one"
        )
    [task] = tasks
    pairs = Gold.parse(gold).places(task.items)
    read = read_parts(tasks, reader, templates, progress)
    [parts] = read.parts
    fitted = fit_gold(parts.scores, pairs)
    scores = with_neighbours(read.states[0][1], fitted.scores) if anchor and read.states else fitted.scores
    answer = _answer(task, parts, scores, read.cost)
    return replace(answer, details={**answer.details, "gold": fitted.details([*parts.scores])})


def anchored(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    ridge: float = 1.0,
    progress: Progress | None = None,
) -> list[Answer]:
    """A probe from hidden states to the routes' mean, fitted on the other tasks of the same criterion.

    The probe sees many tasks, so it keeps what their anchors have in common and drops what is noise in each. A task's
    score is that of probes that have not seen it, averaged over those layers and positions whose probes foretell the
    anchors of other tasks best, plus half its own anchor. Criteria with fewer than 4 tasks fall back on a fit among the
    items of each list, every item by the others.
    """
    read = read_parts(tasks, reader, templates, progress, with_states=True)
    costs = shares_by_items(read.cost, tasks)
    answers: dict[int, Answer] = {}
    for members in _by_criterion(tasks).values():
        anchors = [read.parts[index].total() for index in members]
        probe = None
        if len(members) >= LEAST_TASKS:
            states = [np.concatenate(read.states[index], axis=1) for index in members]
            places = [(position, layer) for position in ("slot", "item") for layer in read.layers]
            fitted = anchored_scores(states, anchors, places, ridge)
            scores = fitted.scores
            probe = fitted.probe(model=reader.name, template="poles", directed=True)
        else:
            scores = [
                with_neighbours(read.states[index][1], own)
                for index, own in zip(members, anchors, strict=True)
            ]
        for index, score in zip(members, scores, strict=True):
            answers[index] = _answer(tasks[index], read.parts[index], score, costs[index], probe)
    return [answers[index] for index in range(len(tasks))]


def poles(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    template: str = "poles",
    progress: Progress | None = None,
) -> list[Answer]:
    """Which end's word the model would use for the item: log-odds of the high end's words against the low end's."""
    if reader.loaded.missing_head:
        raise CcrankError(
            f"poles asks for words, and {reader.name} has no language-model head; use axis or auto, which take states"
        )
    looks = read_poles(tasks, reader, templates, template, progress=progress)
    return _plain(tasks, looks.poles, looks.cost)


def likelihood(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    template: str = "",
    against: str = "low",
    progress: Progress | None = None,
) -> list[Answer]:
    """The item as the answer: its log-probability where the high end is named less that where the low end is.

    The mean of the wordings that `auto` takes for such a list, each Z-scored; or the one `template` that is named, its
    log-probabilities `against` the low end (low), the same without the context (context) or nothing.
    """
    wordings = [Wording(template, against)] if template else None  # type: ignore[arg-type]
    found, cost = read_likelihood(tasks, reader, templates, wordings, progress)
    scores = [np.mean([standard(one) for one in own.values()], axis=0) for own in found]
    return _plain(tasks, scores, cost)


def axis(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    template: str = "poles",
    progress: Progress | None = None,
) -> list[Answer]:
    """Where the item's state lies between those of made-up items: from "a very small country" to "a very large one"."""
    layers = middle_and_late(reader.depth)
    looks = read_poles(tasks, reader, templates, template, False, layers, progress)
    return _plain(tasks, looks.axis, looks.cost)


def _answer(task: Task, parts: Parts, scores: np.ndarray, cost: Cost, probe: object = None) -> Answer:
    mean, p_value = parts.agreement()
    ends = ends_of(task.criterion)
    details: dict[str, object] = {
        "ends": [ends.low[0], ends.high[0]],
        "parts": {
            name: {item: round(float(one), 4) for item, one in zip(task.items, row, strict=True)}
            for name, row in parts.scores.items()
        },
    }
    if ends.source == "fallback":
        details["hint"] = (
            f"no words are known for the two ends of {task.criterion.name!r}; name them with --poles LOW HIGH"
        )
    if p_value > DOUBT:
        details["warning"] = "the parts agree no better than chance would: do not rely on this order"
    return Answer(scores, {"parts_agree": mean, "parts_p_value": p_value}, cost, details, probe)


def _plain(tasks: Sequence[Task], scores: Sequence[np.ndarray], cost: Cost) -> list[Answer]:
    return [Answer(one, {}, share) for one, share in zip(scores, shares_by_items(cost, tasks), strict=True)]


def _by_criterion(tasks: Sequence[Task]) -> dict[Criterion, list[int]]:
    groups: dict[Criterion, list[int]] = {}
    for index, task in enumerate(tasks):
        groups.setdefault(task.criterion, []).append(index)
    return groups
