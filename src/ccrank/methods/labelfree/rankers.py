"""The label-free methods: each signal alone, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.labelfree.anchored import anchored_scores, smoothed
from ccrank.labelfree.answers import answer_of
from ccrank.labelfree.combine import read_signals
from ccrank.labelfree.signals import Wording, read_likelihood, read_poles
from ccrank.labelfree.with_labels import task_labels, with_labels
from ccrank.labelled.kernel import States
from ccrank.labels import Labels
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.layers import middle_and_late
from ccrank.lm.reader import Progress
from ccrank.lm.reading import shares_by_items
from ccrank.prompts import Templates
from ccrank.ranking import Answer
from ccrank.relevance.query_likelihood import query_likelihood
from ccrank.standardise import z_scores
from ccrank.task import Task, by_criterion

LEAST_TASKS = 4
"""Fewer tasks of one criterion are too few to fit a probe on."""


def auto(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    anchor: bool = True,
    exemplars: bool = True,
    labels: Any = None,
    first_stage: str = "auto",
    progress: Progress | None = None,
) -> list[Answer]:
    """The mean of several label-free signals, each of which is directed.

    Without context: the pole words that the model prefers for the item (poles), the items that it finds likely at
    either pole (likelihood, in two wordings), and the item's state between exemplars of both poles (axis). For common
    criteria (politeness, weight) the item's state is also scored by a probe fitted to exemplars that were written for
    them; `exemplars=no` leaves it out. With a context: the items that the context makes likely. Scores are then
    smoothed over items with similar states: within a list, or by a probe across four or more tasks of one criterion
    (see `anchored`). `anchor=no` leaves the plain mean. The words for both poles come from --poles, --comparative or
    the criterion's name.

    A few labels (`labels`: item → value, pairs (higher, lower), best and worst picks, mixed; --labels FILE) turn this
    score into the prior mean of a Gaussian process with a kernel over the states; see docs/labels.md. `labels="tasks"`
    takes the tasks' own values, so that lists with values serve the other lists of the criterion.
    `details["labels"]` says what the labels changed and which of them disagree.

    Tasks with a query are ranked by `query-likelihood`, plus scores of a first stage where they have them, or
    `first_stage=bm25`.
    """
    asked = [index for index, task in enumerate(tasks) if task.query is not None]
    if asked:
        return _with_queries(tasks, asked, reader, templates, anchor, labels, first_stage, progress)
    if labels is not None:
        known = task_labels(tasks, labels)
        if any(map(len, known)):
            return _with_labels(tasks, reader, templates, known, anchor, exemplars, progress)
    return _label_free(tasks, reader, templates, anchor, progress, written=exemplars)[0]


def _with_queries(
    tasks: Sequence[Task],
    asked: Sequence[int],
    reader: ReaderLike,
    templates: Templates,
    anchor: bool,
    labels: Any,
    first_stage: str,
    progress: Progress | None,
) -> list[Answer]:
    """Tasks with a query by query likelihood, the others by signals."""
    if labels is not None:
        raise CcrankError(
            f"task {tasks[asked[0]].id!r} has a query, and labels do not change a ranking by query; leave them out"
        )
    relevance = query_likelihood(
        [tasks[index] for index in asked], reader, templates, first_stage=first_stage, progress=progress
    )
    answers = dict(zip(asked, relevance, strict=True))
    others = [index for index in range(len(tasks)) if index not in answers]
    if others:
        found, _ = _label_free([tasks[index] for index in others], reader, templates, anchor, progress)
        answers.update(zip(others, found, strict=True))
    return [answers[index] for index in range(len(tasks))]


def _label_free(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    anchor: bool,
    progress: Progress | None,
    with_states: bool = False,
    written: bool = True,
) -> tuple[list[Answer], dict[int, States]]:
    """The label-free answers, and the states that were read on the way; of all tasks on request.

    `written`: take the exemplars that were written for a criterion, if there are any.
    """
    groups = by_criterion(tasks)
    pooled = {criterion for criterion, members in groups.items() if anchor and len(members) >= LEAST_TASKS}
    answers: dict[int, Answer] = {}
    states: dict[int, States] = {}
    together = [
        index for criterion, members in groups.items() if criterion not in pooled for index in members
    ]
    if together:
        own = [tasks[index] for index in together]
        read = read_signals(own, reader, templates, progress, with_states, written)
        for place, (index, cost) in enumerate(zip(together, shares_by_items(read.cost, own), strict=True)):
            scores = read.signals[place].total()
            if place in read.states:
                states[index] = read.states[place]
                if anchor and (reader.loaded.missing_head or not tasks[index].context):
                    scores = smoothed(read.states[place][1], scores)
            answers[index] = answer_of(tasks[index], read.signals[place], scores, cost)
    for criterion in pooled:
        own = [tasks[index] for index in groups[criterion]]
        found, own_states = _anchored(own, reader, templates, 1.0, progress, written)
        answers.update(zip(groups[criterion], found, strict=True))
        states.update({groups[criterion][place]: one for place, one in own_states.items()})
    return [answers[index] for index in range(len(tasks))], states


def auto_reads_states(tasks: Sequence[Task], options: Mapping[str, Any]) -> bool:
    """Whether `auto` reads hidden states: for lists without a context, for four or more lists of one criterion, and
    for labels; never for documents with a query.

    Parameters
    ----------
    tasks
        The tasks that are ranked together.
    options
        The options of `auto`.
    """
    plain = [task for task in tasks if task.query is None]
    if plain and (options.get("labels") is not None or not all(task.context for task in plain)):
        return True
    pooled = any(len(members) >= LEAST_TASKS for members in by_criterion(plain).values())
    return pooled and bool(options.get("anchor", True))


def label_free_states(
    task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
) -> tuple[Answer, States]:
    """What `auto` gives for one task, and the task's states at the slot and at the item.

    Parameters
    ----------
    task, reader, templates, progress
        As of any method.
    """
    [answer], states = _label_free([task], reader, templates, True, progress, with_states=True)
    return answer, states[0]


def _with_labels(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    labels: Sequence[Labels],
    anchor: bool,
    written: bool,
    progress: Progress | None,
) -> list[Answer]:
    answers, states = _label_free(
        tasks, reader, templates, anchor, progress, with_states=True, written=written
    )
    return with_labels(tasks, reader, templates, labels, answers, states)


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
    return _anchored(tasks, reader, templates, ridge, progress)[0]


def _anchored(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    ridge: float,
    progress: Progress | None,
    written: bool = True,
) -> tuple[list[Answer], Mapping[int, States]]:
    read = read_signals(tasks, reader, templates, progress, with_states=True, written=written)
    costs = shares_by_items(read.cost, tasks)
    answers: dict[int, Answer] = {}
    for criterion, members in by_criterion(tasks).items():
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
            answers[index] = answer_of(tasks[index], read.signals[index], score, costs[index], probe)
    return [answers[index] for index in range(len(tasks))], read.states


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
    """The item as the answer: its log-probability in prompts for the high pole minus that in prompts for the low pole.

    The mean of the wordings that `auto` uses for such a list, each Z-scored. `template` takes one wording instead;
    `against` is what its log-probabilities are compared with: the low pole (low), the same prompt without the context
    (context), or nothing (nothing).
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


def _plain(tasks: Sequence[Task], scores: Sequence[np.ndarray], cost: Cost) -> list[Answer]:
    return [Answer(one, {}, share) for one, share in zip(scores, shares_by_items(cost, tasks), strict=True)]
