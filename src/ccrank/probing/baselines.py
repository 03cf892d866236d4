"""Surface baselines: an item's length, and its likelihood under the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccrank.lm import ReaderLike
from ccrank.lm.reader import Progress
from ccrank.lm.reading import Request, share_of
from ccrank.prompts import Form, Piece, Prompt, Templates
from ccrank.ranking import Answer
from ccrank.task import Task

LEAD = "This is"


def item_length(
    tasks: Sequence[Task], reader: ReaderLike, templates: Templates, *, progress: Progress | None = None
) -> list[Answer]:
    """The number of characters: the ranking of a method that uses surface features only."""
    return [Answer(np.array([float(len(item)) for item in task.items])) for task in tasks]


def item_frequency(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    lead: str = LEAD,
    progress: Progress | None = None,
) -> list[Answer]:
    """The item's log-probability under the model after a neutral prefix, without context or criterion.

    It approximates the item's frequency in the training data; a probe that does no better measures frequency.
    """
    prompts = [_lead_prompt(task, lead) for task in tasks]
    readings = reader.read(
        prompts,
        [[item.strip() for item in task.items] for task in tasks],
        log_probabilities=True,
        progress=progress,
    )
    assert readings.logits is not None
    total = sum(len(task.items) for task in tasks)
    return [
        Answer(row[: len(task.items)].astype(float), {}, share_of(readings.cost, len(task.items), total))
        for task, row in zip(tasks, readings.logits, strict=True)
    ]


def _lead_prompt(task: Task, lead: str) -> Prompt:
    return Prompt((Piece(f"{lead} "), Piece("", "slot")), task=task.id)


def frequency_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `frequency` for a task."""
    return [([_lead_prompt(task, LEAD)], [item.strip() for item in task.items])]


def no_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of a method that reads no model: none."""
    return []
