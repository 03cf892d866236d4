"""What a ranking is expected to read, against what it reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.io import Rows
from ccrank.methods.estimate import expected_reading
from ccrank.methods.registry import METHODS
from ccrank.models import Reader, ReadingCache
from ccrank.prompts import load_templates
from ccrank.request import RankRequest
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
    expected = expected_reading(tasks, reader, METHODS[method], load_templates()).distinct_tokens
    # Tasks of the same items share all their prompts when they are read together: read them apart.
    read = sum(rank_tasks([task], reader, method)[0].cost.distinct_tokens for task in tasks)
    assert read / factor <= expected <= read * factor


def test_shuffles_multiply_the_estimate():
    """Options that repeat the reading count; the prompts of all shuffles share their first words."""
    reader, tasks, method = tiny_reader(), tasks_of(1, 5), METHODS["prompt-list"]
    once = expected_reading(tasks, reader, method, load_templates(), {"shuffles": 1}).distinct_tokens
    thrice = expected_reading(tasks, reader, method, load_templates(), {"shuffles": 3}).distinct_tokens
    assert 2 * once < thrice < 3 * once
    assert thrice < expected_reading(tasks, reader, method, load_templates()).distinct_tokens < 5 * once


@pytest.mark.parametrize("method", ["auto", "prompt-point", "pca"])
def test_the_estimate_knows_what_the_cache_has(method, tmp_path):
    """Nothing is left to compute of a list that was ranked, about half where half of it was, and all of it before; the
    poles of an unknown adjective, which the model is asked for, are those of the ranking."""
    reader = Reader(tiny_reader().loaded, cache=ReadingCache(tmp_path))
    request = RankRequest(by="zorgiest", items=Rows(NAMES), method=method)
    before = request.expected_reading(reader)
    assert before.computed_tokens == before.distinct_tokens > 0
    replace(request, items=Rows(NAMES[:4])).run(reader)
    assert (
        0.2 * before.distinct_tokens
        < request.expected_reading(reader).computed_tokens
        < before.distinct_tokens
    )
    request.run(reader)
    after = request.expected_reading(reader)
    assert (after.distinct_tokens, after.computed_tokens) == (before.distinct_tokens, 0)
