"""Rankings with a few labels, from label-free scores and states that have been read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ccrank.errors import CcrankError
from ccrank.exemplars import WRITTEN
from ccrank.labelled.kernel import States
from ccrank.labelled.lists import label_warnings, score_lists
from ccrank.labelled.probe import UnsavedProbe
from ccrank.labels import Labels
from ccrank.lm import ReaderLike
from ccrank.lm.layers import middle_and_late
from ccrank.prompts import Templates
from ccrank.ranking import Answer, Uncertainty
from ccrank.task import Task, by_criterion

FROM_TASKS = "tasks"
"""As `labels`: the values of the tasks themselves."""


def task_labels(tasks: Sequence[Task], labels: object) -> list[Labels]:
    """The labels of each task.

    Parameters
    ----------
    tasks
        The tasks; labels that are given are those of the only one.
    labels
        As `auto` takes them.
    """
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


def with_labels(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    labels: Sequence[Labels],
    label_free: Sequence[Answer],
    states: Mapping[int, States],
) -> list[Answer]:
    """Answers by labels, from label-free answers and states that have been read; nothing is read here.

    Parameters
    ----------
    tasks, reader, templates
        As of any method.
    labels
        Those of each task; empty where nothing is known.
    label_free
        What `auto` gives for each task without labels.
    states
        Task → its states at the slot and at the item.
    """
    answers = [*label_free]
    for members in by_criterion(tasks).values():
        own = [labels[index] for index in members]
        if not any(map(len, own)):
            continue
        found = score_lists(
            [answers[index].scores for index in members],
            [states[index] for index in members],
            [tasks[index].items for index in members],
            own,
            any(WRITTEN in answers[index].details.get("signals", {}) for index in members),
        )
        about = {"model": reader.name, "template": "poles", "wording": templates["poles"].notes()}
        probe = UnsavedProbe(found.fitted, found.kernel, tuple(middle_and_late(reader.depth)), about)
        for index, one in zip(members, found.lists, strict=True):
            answers[index] = replace(
                answers[index],
                scores=one.scores,
                details={**answers[index].details, "labels": one.details},
                probe=probe,
                uncertainty=Uncertainty(one.deviation, one.rank_low, one.rank_high),
                warnings=label_warnings(one.details),
                confidence=None,  # how labels change it was not studied
            )
    return answers
