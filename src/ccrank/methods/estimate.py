"""Estimating how many tokens a ranking reads, for progress bars and the announced duration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ccrank.methods.registry import Method
from ccrank.models import Cost
from ccrank.models.remote import OpenModel
from ccrank.prompts import Templates
from ccrank.task import Task, check_text

SAMPLE_TASKS = 8
SAMPLE_ITEMS = (6, 24)
"""A long list is tokenized at two lengths only; the total is extrapolated linearly."""


def expected_tokens(
    tasks: Sequence[Task],
    reader: OpenModel,
    method: Method,
    templates: Templates,
    options: Mapping[str, Any] | None = None,
) -> int:
    """The approximate number of distinct tokens that a method reads for these tasks."""
    step = max(1, len(tasks) // SAMPLE_TASKS)
    sample = tasks[::step][:SAMPLE_TASKS]
    for task in sample:
        check_text(task)
    tokens = sum(_task_tokens(task, reader, method, templates) for task in sample) * len(tasks) / len(sample)
    repeats = {**method.options, **(options or {})}.get(method.repeats_option or "", 1)
    return round(tokens * int(repeats))


def _task_tokens(task: Task, reader: OpenModel, method: Method, templates: Templates) -> float:
    few, many = (min(size, len(task.items)) for size in SAMPLE_ITEMS)
    if len(task.items) == many:
        return _distinct(task, reader, method, templates)
    # Items of average length: the first items of a sorted list are often the shortest or the longest.
    spread = [task.items[index * len(task.items) // many] for index in range(many)]
    plain = replace(task, items=tuple(spread), values=None, first_stage=None, item_ids=None)
    low = _distinct(replace(plain, items=plain.items[:few]), reader, method, templates)
    high = _distinct(plain, reader, method, templates)
    per_prompt = (high - low) / max(1.0, method.prompts(many) - method.prompts(few))
    return high + per_prompt * (method.prompts(len(task.items)) - method.prompts(many))


def _distinct(task: Task, reader: OpenModel, method: Method, templates: Templates) -> int:
    requests = method.requests(task, reader.form, templates)
    cost = sum((reader.cost_of(prompts, candidates) for prompts, candidates in requests), Cost())
    return cost.distinct_tokens
