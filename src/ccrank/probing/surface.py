"""What can be had without looking inside: an item's length, and how likely the model finds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccrank.lm import Reader
from ccrank.lm.reader import Progress
from ccrank.prompting.asking import share_of
from ccrank.prompts import Piece, Prompt, Templates
from ccrank.ranking import Answer
from ccrank.task import Task


def item_length(
    tasks: Sequence[Task], reader: Reader, templates: Templates, *, progress: Progress | None = None
) -> list[Answer]:
    """The number of characters: what a method that looks at surfaces would find."""
    return [Answer(np.array([float(len(item)) for item in task.items])) for task in tasks]


def item_frequency(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    *,
    lead: str = "This is",
    progress: Progress | None = None,
) -> list[Answer]:
    """The item's log-probability under the model after a neutral lead, without context or criterion.

    It stands for how often the model has met the item; a probe that does no better has found fame, not the criterion.
    """
    prompts = [Prompt((Piece(f"{lead} "), Piece("", "slot")), task=task.id) for task in tasks]
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
