"""The label-free methods: each signal alone, and all of them together; and their prompts, for `ccrank cost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.labelfree.anchored import LEAST_SMOOTHED, anchored_scores, smoothed
from ccrank.methods.labelfree.combine import RawSignals, SignalModel, answer_of, read_signals
from ccrank.methods.labelfree.projections import Positions, axis_of
from ccrank.methods.labelfree.scorer import Plan, SignalScorer, labelled_scorer
from ccrank.methods.labelfree.signals import (
    Wording,
    likelihood_prompts,
    pole_prompts,
    read_likelihood,
    read_poles,
    texts_for,
    wordings_of,
)
from ccrank.methods.labelled.lists import task_labels, with_labels
from ccrank.methods.labelled.prior import States
from ccrank.methods.probing.scorer import ProbeScorer
from ccrank.methods.query_likelihood import query_likelihood, query_likelihood_requests
from ccrank.models import Cost, ReaderLike
from ccrank.models.reader_like import middle_and_late
from ccrank.models.reading import Progress, Request, shares_by_items
from ccrank.prompts import Form, Templates
from ccrank.ranking import Answer, MakeScorer
from ccrank.task import Task, by_criterion

MIN_TASKS = 4
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
    score into the prior mean of a Gaussian process with a kernel over the states; see docs/how-to/give-labels.md.
    `labels="tasks"` takes the tasks' own values, so that lists with values serve the other lists of the criterion.
    `details["labels"]` says what the labels changed and which of them disagree.

    Tasks with a query are ranked by `query-likelihood`, plus scores of a first stage where they have them, or
    `first_stage=bm25`.
    """
    by_query = [index for index, task in enumerate(tasks) if task.query is not None]
    if by_query and labels is not None:
        raise CcrankError(
            f"task {tasks[by_query[0]].id!r} has a query, and labels do not change a ranking by query; leave them out"
        )
    answers: dict[int, Answer] = {}
    if by_query:
        some = [tasks[index] for index in by_query]
        found = query_likelihood(some, reader, templates, first_stage=first_stage, progress=progress)
        answers = dict(zip(by_query, found, strict=True))
    others = [index for index in range(len(tasks)) if index not in answers]
    if others:
        some = [tasks[index] for index in others]
        known = [] if labels is None else task_labels(some, labels)
        labelled = any(map(len, known))
        found, states = _label_free(some, reader, templates, anchor, progress, labelled, exemplars)
        if labelled:
            plain = [answer.scorer for answer in found]
            found = with_labels(some, known, found, states)
            found = _with_label_scorers(some, reader, plain, found)
        answers.update(zip(others, found, strict=True))
    return [answers[index] for index in range(len(tasks))]


def _with_label_scorers(
    tasks: Sequence[Task],
    reader: ReaderLike,
    label_free: Sequence[MakeScorer | None],
    answers: Sequence[Answer],
) -> list[Answer]:
    """Answers whose scorers take labels and signals together; lists that share labels share one scorer."""
    scorers: dict[int, MakeScorer] = {}
    for index, answer in enumerate(answers):
        if answer.scorer is not None and answer.scorer is not label_free[index]:
            alone = sum(other.scorer is answer.scorer for other in answers) == 1
            plan = Plan.of_auto(tasks[index], reader, states=True)
            made: Any = partial(labelled_scorer, plan, label_free[index] if alone else None, answer.scorer)
            scorers.setdefault(id(answer.scorer), made)
    return [replace(answer, scorer=scorers.get(id(answer.scorer), answer.scorer)) for answer in answers]


def _label_free(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    anchor: bool,
    progress: Progress | None,
    with_states: bool = False,
    written: bool = True,
) -> tuple[list[Answer], dict[int, States]]:
    """The label-free answers, and the states that were read on the way: of all tasks if `with_states`.

    `written`: take the exemplars that were written for a criterion, if there are any.
    """
    groups = by_criterion(tasks)
    pooled = {criterion for criterion, members in groups.items() if anchor and len(members) >= MIN_TASKS}
    answers: dict[int, Answer] = {}
    states: dict[int, States] = {}
    alone = [index for criterion, members in groups.items() if criterion not in pooled for index in members]
    if alone:
        some = [tasks[index] for index in alone]
        read = read_signals(some, reader, templates, progress, with_states, written)
        for row, (index, cost) in enumerate(zip(alone, shares_by_items(read.cost, some), strict=True)):
            total = scores = read.signals[row].total()
            smooth = False
            if row in read.states:
                states[index] = read.states[row]
                if anchor and (reader.loaded.missing_head or not tasks[index].context):
                    scores, smooth = smoothed(read.states[row][1], total), len(total) >= LEAST_SMOOTHED
            plan = Plan.of_auto(tasks[index], reader)
            scorer = partial(SignalScorer.fit, plan, read.raw[row], total if smooth else None)
            answers[index] = answer_of(tasks[index], read.signals[row], scores, cost, scorer)
    for criterion in pooled:
        members = groups[criterion]
        pool_answers, pool_states = _anchored(
            [tasks[index] for index in members], reader, templates, 1.0, progress, written
        )
        answers.update(zip(members, pool_answers, strict=True))
        states.update({members[row]: task_states for row, task_states in pool_states.items()})
    return [answers[index] for index in range(len(tasks))], states


def auto_reads_states(tasks: Sequence[Task], options: Mapping[str, Any]) -> bool:
    """Whether `auto` reads hidden states: for lists without a context, for four or more lists of one criterion, and
    for labels; never for documents with a query.
    """
    plain = [task for task in tasks if task.query is None]
    if plain and (options.get("labels") is not None or not all(task.context for task in plain)):
        return True
    pooled = any(len(members) >= MIN_TASKS for members in by_criterion(plain).values())
    return pooled and bool(options.get("anchor", True))


def label_free_states(
    task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
) -> tuple[Answer, States]:
    """What `auto` gives for one task, and the task's states at the slot and at the item."""
    [answer], states = _label_free([task], reader, templates, True, progress, with_states=True)
    return answer, states[0]


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
    for members in by_criterion(tasks).values():
        anchors = [read.signals[index].total() for index in members]
        scorer: MakeScorer | None = None
        if len(members) >= MIN_TASKS:
            states = [np.concatenate(read.states[index], axis=1) for index in members]
            places = [(position, layer) for position in ("slot", "item") for layer in read.layers]
            fitted = anchored_scores(states, anchors, places, ridge)
            scores = fitted.scores
            scorer = partial(ProbeScorer.of_pool, fitted.probe(template="poles"), states, fitted.best)
        else:
            scores = [
                smoothed(read.states[index][1], total) for index, total in zip(members, anchors, strict=True)
            ]
        for index, anchor, score in zip(members, anchors, scores, strict=True):
            own = scorer
            if own is None:
                smooth = anchor if len(anchor) >= LEAST_SMOOTHED else None
                own = partial(
                    SignalScorer.fit, Plan.of_auto(tasks[index], reader, states=True), read.raw[index], smooth
                )
            answers[index] = answer_of(tasks[index], read.signals[index], score, costs[index], own)
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
    readings = read_poles(tasks, reader, templates, template, progress=progress)
    return _plain(tasks, readings.poles, readings.cost, [None] * len(tasks))


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
    likelihoods, cost = read_likelihood(tasks, reader, templates, wordings, progress)
    scores, scorers = [], []
    for task, by_wording in zip(tasks, likelihoods, strict=True):
        raw = RawSignals(by_wording)
        scores.append(SignalModel.fit(raw)(raw))
        plan = Plan(wordings=wordings_of(task) if wordings is None else tuple(wordings))
        scorers.append(partial(SignalScorer.fit, plan, raw))
    return _plain(tasks, scores, cost, scorers)


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
    readings = read_poles(tasks, reader, templates, template, False, layers, progress)
    plan = Plan(template, layers=tuple(layers))
    made = [*zip(readings.made, readings.states, strict=True)]
    scores = [axis_of(*one)(*one[1]) for one in made]
    return _plain(tasks, scores, readings.cost, [partial(_axis_scorer, plan, *one) for one in made])


def _axis_scorer(plan: Plan, made: Positions, states: Positions) -> SignalScorer:
    return SignalScorer(plan, SignalModel(axis=axis_of(made, states)))


def _plain(
    tasks: Sequence[Task], scores: Sequence[np.ndarray], cost: Cost, scorers: Sequence[MakeScorer | None]
) -> list[Answer]:
    shares = shares_by_items(cost, tasks)
    return [
        Answer(row, {}, share, scorer=scorer)
        for row, share, scorer in zip(scores, shares, scorers, strict=True)
    ]


def auto_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `auto`: pole words and states in one reading, then items as answers."""
    if task.query is not None:
        return query_likelihood_requests(task, form, templates)
    return (likelihood_requests if task.context else anchored_requests)(task, form, templates)


def anchored_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `anchored`: like `auto`, with states even if there is a context."""
    by_states = pole_prompts(task, form, templates, with_exemplars=True, texts=texts_for(task))
    return [by_states, *likelihood_requests(task, form, templates)]


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
