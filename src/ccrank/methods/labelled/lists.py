"""From labels and label-free scores of lists to scores with uncertainty: one list, or several of one criterion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from ccrank.criteria.exemplars import WRITTEN
from ccrank.errors import CcrankError
from ccrank.labels import ONE_VALUE, Labels
from ccrank.methods.labelled.annotators import agreements
from ccrank.methods.labelled.fit import MAX_SETTINGS, Fitted, fit
from ccrank.methods.labelled.held_out import HeldOut, leave_out
from ccrank.methods.labelled.observations import Observations, join, normal_scores, observe
from ccrank.methods.labelled.prior import GROUPS, Kernel, States, grid
from ccrank.methods.labelled.saved_model import LabelModel
from ccrank.methods.labelled.settled import Said, Settled, settle
from ccrank.models.capacity import available_memory
from ccrank.ranking import Answer, finite
from ccrank.task import Task, by_criterion, normal_form
from ccrank.util.text import one_line
from ccrank.util.zscores import z_scores

MAX_OBSERVATIONS = 5000
"""Rows of a fit, whose time grows with their third power: minutes for this many."""
MATRICES = 20
"""Square matrices of the observations that a fit holds at its peak: measured 2.7 GB for 4,000 pairs."""


FROM_TASKS = "tasks"
"""As `labels`: the values of the tasks themselves."""


def task_labels(tasks: Sequence[Task], labels: object) -> list[Labels]:
    """The labels of each task."""
    if isinstance(labels, str):
        if labels != FROM_TASKS:
            raise CcrankError(
                f"labels={labels!r}: labels in a text are {FROM_TASKS!r}, the tasks' own values"
            )
        return [
            Labels() if task.values is None else Labels.parse(dict(zip(task.items, task.values, strict=True)))
            for task in tasks
        ]
    parsed = Labels.parse(labels)
    if len(tasks) != 1:
        raise CcrankError(
            f"labels are for the items of one list; there are {len(tasks)} tasks: rank them one by one, or put values "
            f"into the tasks and give labels={FROM_TASKS!r}"
        )
    parsed.check(tasks[0].items)
    return [parsed]


def check_size(rows: int, items: int) -> None:
    """Raise if a fit would take too long or more memory than is free, before any is taken."""
    remedy = "give fewer labels: a few hundred say nearly as much"
    if rows > MAX_OBSERVATIONS:
        raise CcrankError(
            f"the labels make {rows:,} observations; a fit takes up to {MAX_OBSERVATIONS:,}: {remedy}"
        )
    labelled = min(2 * rows, items)
    # Square matrices of the observations, for each setting that is kept, and float32 kernels of all items.
    needed = MATRICES * 8 * rows**2 + 4 * items * labelled * (len(GROUPS) + MAX_SETTINGS)
    free = available_memory(torch.device("cpu"))
    if needed > free:
        raise CcrankError(
            f"a fit of {rows:,} labels on {items:,} items takes about {needed / 1e9:.1f} GB of memory, and "
            f"{free / 1e9:.1f} GB are free; {remedy}"
        )


def observations_of(labels: Labels, items: Sequence[str]) -> Observations:
    """Labels as observations of a list's items, in an order that does not depend on that of the labels."""
    labels.check(items)
    check_size(labels.observations, len(items))
    index_of = {normal_form(item): index for index, item in enumerate(items)}
    parts = []
    for number, (_, own) in enumerate(labels.parts):
        seen = observe(
            sorted((index_of[item], value) for item, value in own.values),
            sorted({(index_of[high], index_of[low]) for high, low in own.orders}),
            sorted({index_of[item] for item in own.best}),
            sorted({index_of[item] for item in own.worst}),
            len(items),
            sorted({(index_of[one], index_of[other]) for one, other in own.equal}),
        )
        parts.append(replace(seen, people=np.full(len(seen), number)))
    whole = join(parts, [0] * len(parts))
    target = whole.target.copy()
    target[whole.is_graded] = normal_scores(np.array([value for _, value in grades(labels, index_of)]))
    return replace(whole, target=target, lists=np.zeros(len(whole), int))


def grades(labels: Labels, index_of: Mapping[str, int]) -> list[tuple[int, float]]:
    """(item, value) of all values, in the order of their observations."""
    return [
        pair
        for _, own in labels.parts
        for pair in sorted((index_of[item], value) for item, value in own.values)
    ]


def with_labels(
    tasks: Sequence[Task],
    labels: Sequence[Labels],
    label_free: Sequence[Answer],
    states: Mapping[int, States],
) -> list[Answer]:
    """Answers by labels, from label-free answers and states that have been read; nothing is read here. Lists of one
    fit share a scorer, which makes their `LabelModel`."""
    answers = [*label_free]
    for members in by_criterion(tasks).values():
        pool_labels = [labels[index] for index in members]
        if any(map(len, pool_labels)):
            pool = score_lists(
                [tasks[index].items for index in members],
                pool_labels,
                [answers[index] for index in members],
                [states[index] for index in members],
            )
            for index, answer in zip(members, pool, strict=True):
                answers[index] = answer
    return answers


def score_lists(
    items: Sequence[Sequence[str]],
    labels: Sequence[Labels],
    label_free: Sequence[Answer],
    states: Sequence[States],
) -> list[Answer]:
    """Answers for lists of one criterion, by one fit to the labels on one or more of them."""
    starts = [0, *accumulate(map(len, items))]
    check_size(sum(list_labels.observations for list_labels in labels), starts[-1])
    seen = join(
        [observations_of(list_labels, texts) for list_labels, texts in zip(labels, items, strict=True)],
        starts[:-1],
    )
    prior = np.concatenate([z_scores(np.asarray(answer.scores, float)) for answer in label_free])
    kernel = Kernel(states)
    written = any(WRITTEN in answer.details.get("signals", {}) for answer in label_free)
    fitted = fit(prior, kernel, seen, grid(written))
    shown = prior
    if any(own.moves for own in labels):  # by someone who saw the order by all other labels
        others = [own.without_moves() for own in labels]
        if any(map(len, others)):
            seen_before = score_lists(items, others, label_free, states)
            shown = np.concatenate([answer.scores for answer in seen_before])
    draws = fitted.draws(np.random.default_rng(0))
    held_out = leave_out(fitted)
    alone = np.asarray(label_free[0].scores, float) if len(label_free) == 1 else None
    scorer = partial(LabelModel.fit, fitted, kernel, alone)
    answers = []
    for number, (texts, own) in enumerate(zip(items, labels, strict=True)):
        part = slice(starts[number], starts[number + 1])
        said = Said.of(own, texts)
        settled = settle(shown[part], fitted.mean[part], fitted.deviation[part], draws[part], said)
        details = _details(fitted, held_out, texts, labels, number, starts[number], settled)
        answers.append(
            replace(
                label_free[number],
                scores=settled.scores,
                details={**label_free[number].details, "labels": details},
                scorer=scorer,
                uncertainty=settled.uncertainty,
                warnings=(
                    *label_warnings(details),
                    *([ONE_VALUE] if Labels.joined(labels).teaches_nothing else []),
                ),
                confidence=None,  # how labels change it was not studied
            )
        )
    return answers


def _details(
    fitted: Fitted,
    held_out: HeldOut,
    texts: Sequence[str],
    labels: Sequence[Labels],
    number: int,
    start: int,
    settled: Settled,
) -> dict[str, Any]:
    """As JSON shows it. Labels that disagree are those of this list."""
    seen, own = fitted.observations, labels[number]
    raw = grades(own, {normal_form(item): index for index, item in enumerate(texts)})
    of_this_list = seen.lists == number
    grade_number = np.cumsum(seen.is_graded & of_this_list) - 1

    def words(row: int) -> str:
        first, second = (int(place[row]) - start for place in (seen.first, seen.second))
        if seen.is_graded[row]:
            return f"{texts[first]}: {raw[grade_number[row]][1]:g}"
        if seen.first[row] >= 0 and seen.second[row] >= 0:
            return f"{texts[first]} {'=' if seen.is_value[row] else '>'} {texts[second]}"
        return f"best: {texts[first]}" if seen.first[row] >= 0 else f"worst: {texts[second]}"

    return {
        "labels": sum(map(len, labels)),
        "labelled": len(seen.items),
        "label_free_weight": round(fitted.prior_weight, 4),
        "states_share": round(fitted.kernel_share, 4),
        "left_out_tau": finite(held_out.tau),
        "label_free_tau": finite(held_out.prior_tau),
        "right_pairs": finite(settled.right_pairs),
        "agreements": [found.to_json() for found in agreements(own)],
        "annotator_noise": {
            name or "unnamed": float(seen.distrust[seen.people == person].max(initial=1.0))
            for person, (name, labels_of) in enumerate(own.parts)
            if own.annotators and len(labels_of)
        },
        "disagree": [
            {"label": words(row), "probability": round(float(held_out.probability[row]), 4)}
            for row in map(int, held_out.surprising)
            if of_this_list[row]
        ],
        "reversed": [
            words(int(row))
            for row in np.flatnonzero(seen.is_pair & of_this_list)
            if settled.scores[seen.first[row] - start] <= settled.scores[seen.second[row] - start]
        ],
    }


def label_warnings(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Warnings about single labels: those that disagree with the rest, and pairs that are reversed in the order."""
    return (
        *(
            f"label disagrees with the rest (probability {label['probability']:.3f}), check it: "
            f"{one_line(label['label'])}"
            for label in details["disagree"]
        ),
        *(f"label is reversed in this order: {one_line(label)}" for label in details["reversed"]),
    )
