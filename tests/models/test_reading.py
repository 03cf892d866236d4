"""What a reading costs, and whose cost it is."""

from __future__ import annotations

import pytest
from tiny import tiny_model

from ccrank.api import rank_tasks
from ccrank.models import Cost, Reader
from ccrank.models.reading import share_of, shares_by_items
from ccrank.task import Criterion, Task

TASKS = [
    Task(Criterion("size"), ("Russia", "Canada", "Brazil", "Chad", "Peru", "Monaco"), id="long"),
    Task(Criterion("age"), ("fox", "dog", "tower"), id="short"),
]


@pytest.mark.parametrize(
    "method",
    ["prompt-pair", "prompt-point", "prompt-list", "auto", "likelihood", "triplet", "ccs-pair", "frequency"],
)
def test_tasks_share_what_was_read(method):
    """The tasks' costs add up to all that the reader has read, and the longer task bears more of it."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512))
    options = {"epochs": 1, "seeds": 1} if method in ("triplet", "ccs-pair") else {}
    long, short = rank_tasks(TASKS, reader, method, options=options)
    for name in ("prompt_tokens", "distinct_tokens", "computed_tokens"):
        shares = [getattr(ranking.cost, name) for ranking in (long, short)]
        assert sum(shares) == pytest.approx(getattr(reader.spent, name), abs=4)  # each share is rounded
        assert shares[0] > shares[1] > 0


def test_shares_are_in_proportion():
    """Of a cost shared by items, prompts are shared too: an item is asked about more than once."""
    cost = Cost(prompts=30, prompt_tokens=900, distinct_tokens=90, computed_tokens=60)
    assert share_of(cost, 10, 30) == Cost(10, 300, 30, 20)
    assert shares_by_items(cost, TASKS) == [Cost(20, 600, 60, 40), Cost(10, 300, 30, 20)]
    assert share_of(Cost(), 0, 0) == Cost()
