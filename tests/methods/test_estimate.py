"""What a ranking is expected to read, against what it reads."""

from __future__ import annotations

import pytest
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.methods.estimate import expected_tokens
from ccrank.methods.registry import METHODS
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task

SIZE = Criterion("size", poles=("small", "large"), category="country")
NAMES = ("Russia", "Canada", "Chad", "Peru", "Monaco", "the tower", "a fox", "the old stone bridge")


def tasks_of(count: int, items: int, context: str | None = None) -> list[Task]:
    return [
        Task(
            SIZE, tuple(f"{NAMES[place % 8]} {place}" for place in range(items)), context, id=f"task {number}"
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    "method", ["auto", "poles", "likelihood", "axis", "prompt-point", "frequency", "pca"]
)
@pytest.mark.parametrize(("count", "items", "factor"), [(1, 5, 1.01), (3, 5, 1.01), (1, 60, 1.5)])
def test_the_estimate_is_close(method, count, items, factor):
    """Short lists are counted; of long ones, whose names share their beginnings more and more, a line is drawn."""
    reader, tasks = tiny_reader(), tasks_of(count, items)
    expected = expected_tokens(tasks, reader, METHODS[method], load_templates())
    # Tasks of the same items share all their prompts when they are read together: read them apart.
    read = sum(rank_tasks([task], reader, method)[0].cost.distinct_tokens for task in tasks)
    assert read / factor <= expected <= read * factor


def test_shuffles_multiply_the_estimate():
    """Options that repeat the reading count."""
    reader, tasks, method = tiny_reader(), tasks_of(1, 5), METHODS["prompt-list"]
    once = expected_tokens(tasks, reader, method, load_templates(), {"shuffles": 1})
    assert expected_tokens(tasks, reader, method, load_templates(), {"shuffles": 3}) == 3 * once
    assert expected_tokens(tasks, reader, method, load_templates()) == 5 * once
