"""Estimating how many tokens a ranking reads: the method is run on a reader that counts and answers with zeros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ccrank.methods.registry import Method
from ccrank.models import Cost
from ccrank.models.prompter import Candidates, Prompter
from ccrank.models.reading import Readings
from ccrank.models.remote import OpenModel
from ccrank.prompts import Prompt, Templates
from ccrank.task import Task, check_text

Options = Mapping[str, Any]
SAMPLE_TASKS = 8
SAMPLE_ITEMS = (6, 24)
"""A long list is tokenized at two lengths only; the total is extrapolated linearly."""


class CountingReader:
    """Counts what the prompts that it is given would cost. Its answers and its states, (P, L, width), are zeros."""

    def __init__(self, reader: OpenModel, width: int = 2) -> None:
        self.reader, self.width, self.cost = reader, width, Cost()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)

    def read(
        self,
        prompts: Sequence[Prompt],
        candidates: Candidates | None = None,
        layers: Iterable[int] = (),
        *,
        items: bool = False,
        progress: object = None,
        **others: bool,
    ) -> Readings:
        """As `Reader.read`, without the model."""
        self.cost += self.reader.cost_of(prompts, candidates, layers, items=items, **others)
        layers, columns = tuple(layers), 0
        if candidates:
            columns = len(candidates) if isinstance(candidates[0], str) else max(map(len, candidates))
        logits = None if candidates is None else np.zeros((len(prompts), columns), np.float32)
        states = np.zeros((len(prompts), len(layers), self.width), np.float32) if layers else None
        lengths = None if logits is None else np.ones(logits.shape, int)
        return Readings(logits, states, states if items else None, layers, Cost(), lengths)


def expected_cost(
    task: Task, reader: OpenModel, method: Method, templates: Templates, options: Options | None = None
) -> Cost:
    """What a method reads for a task."""
    counting: Any = CountingReader(reader)
    chosen = {name: value for name, value in (options or {}).items() if name != "labels"}
    if method.objective is not None:
        chosen["epochs"] = 0
    with np.errstate(all="ignore"):
        method.run([task], Prompter(counting, templates), **chosen)
    cost: Cost = counting.cost
    return cost


def expected_reading(
    tasks: Sequence[Task],
    reader: OpenModel,
    method: Method,
    templates: Templates,
    options: Options | None = None,
) -> Cost:
    """About how many distinct tokens a method reads for these tasks, and how many of them the cache does not have."""
    step = max(1, len(tasks) // SAMPLE_TASKS)
    sample = tasks[::step][:SAMPLE_TASKS]

    def tokens(task: Task) -> np.ndarray:
        cost = expected_cost(task, reader, method, templates, options)
        return np.array([cost.distinct_tokens, cost.computed_tokens])

    total = np.zeros(2)
    for task in sample:
        check_text(task)
        count = len(task.items)
        few, many = (min(size, count) for size in SAMPLE_ITEMS)
        if count == many:
            total += tokens(task)
            continue
        # Items of average length: the first items of a sorted list are often the shortest or the longest.
        spread = tuple(task.items[index * count // many] for index in range(many))
        plain = replace(task, items=spread, values=None, first_stage=None, item_ids=None)
        low, high = tokens(replace(plain, items=spread[:few])), tokens(plain)
        per_prompt = (high - low) / max(1.0, method.prompts(many) - method.prompts(few))
        total += high + per_prompt * (method.prompts(count) - method.prompts(many))
    distinct, computed = (total * len(tasks) / max(1, len(sample))).round().astype(int).tolist()
    return Cost(distinct_tokens=distinct, computed_tokens=computed)
