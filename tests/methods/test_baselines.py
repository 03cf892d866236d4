"""Baselines that look at an item's surface alone."""

from __future__ import annotations

import numpy as np
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.prompts import Piece, Prompt
from ccrank.task import Criterion, Task

TASKS = [
    Task(Criterion("size"), ("the tower", "Peru", "fox"), id="first"),
    Task(Criterion("age"), ("blue", "the lazy dog", "Chad", "red"), "The dog is old.", id="second"),
]


def test_length_counts_characters():
    """Longer items are higher; nothing is read."""
    for task, ranking in zip(TASKS, rank_tasks(TASKS, tiny_reader(), "length"), strict=True):
        assert ranking.scores.tolist() == [len(item) for item in task.items]
        assert ranking.cost.prompts == 0


def test_frequency_is_the_log_probability_of_the_item_alone():
    """log p(item | "This is"), as read one item at a time, whatever the criterion and the context."""
    reader = tiny_reader()
    prompt = Prompt((Piece("This is "), Piece("", "slot")))
    for task, ranking in zip(TASKS, rank_tasks(TASKS, reader, "frequency"), strict=True):
        alone = [reader.read([prompt], [item], log_probabilities=True).logits[0, 0] for item in task.items]
        assert max(alone) < 0
        np.testing.assert_allclose(ranking.scores, alone, atol=1e-4)
