"""The type of a dataset, and making its tasks from gold.

The items of a task are never in gold order: they are shuffled, by a generator seeded from the task's id, into an order
whose Kendall τ with gold is 0, or as close to 0 as their number allows. A method that merely keeps the order of its
input therefore scores at chance.
"""

from __future__ import annotations

import hashlib
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ccrank.datasets.files import DataFile, DataFolder
from ccrank.errors import CcrankError
from ccrank.task import Criterion, Task
from ccrank.toml import parse_toml

PAPER = "https://arxiv.org/abs/2309.06991"


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset: its metadata, and the function that reads its tasks."""

    name: str
    kind: str
    """"facts" (the model must know the answer), "context" (the task's context contains it) or "relevance" (documents to
    a query)."""
    summary: str
    licence: str
    source: str
    """The URL at which it is published."""
    paper_tasks: int | None
    """The number of tasks in the paper; None for a dataset that is not in the paper."""
    paper_items: float | None
    """The mean number of items per task in the paper."""
    departs: str
    """How the tasks differ from the paper's."""
    read: Callable[..., list[Task]]
    """`read(data_dir, **options)`; use `load`, which validates the options."""
    files: tuple[DataFile | DataFolder, ...] = ()
    """The required data files; empty for packaged datasets."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of `load` with their defaults."""
        parameters = inspect.signature(self.read).parameters.values()
        return MappingProxyType({p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY})

    def load(self, data_dir: str | Path | None = None, **options: Any) -> list[Task]:
        """The tasks; the same options give the same tasks in the same order."""
        if unknown := sorted(set(options) - set(self.options)):
            known = ", ".join(self.options) or "none"
            raise CcrankError(f"dataset {self.name!r} has no option {unknown[0]!r}; its options: {known}")
        return self.read(data_dir, **options)


def counts(tasks: Sequence[Task]) -> tuple[int, float]:
    """(number of tasks, mean number of items), as in the paper's table."""
    if not tasks:
        return 0, 0.0
    return len(tasks), sum(len(task.items) for task in tasks) / len(tasks)


def packaged_lists(name: str) -> list[dict[str, Any]]:
    """The lists of a packaged file, as they are written there."""
    lists: list[dict[str, Any]] = parse_toml(
        resources.files("ccrank") / "datasets" / "data" / f"{name}.toml"
    )["list"]
    return lists


def generator_of(task_id: str) -> random.Random:
    """A generator determined by the task id on every machine."""
    return random.Random(int.from_bytes(hashlib.sha256(task_id.encode("utf-8")).digest()[:8], "big"))


def shuffled(order: Sequence[str], task_id: str) -> list[str]:
    """The items of an order, shuffled until as many pairs are discordant with it as concordant (up to one)."""
    places = list(range(len(order)))
    generator = generator_of(task_id)
    while True:
        generator.shuffle(places)
        if abs(sum(1 if first < second else -1 for first, second in combinations(places, 2))) <= 1:
            return [order[place] for place in places]


def task_of_gold(
    criterion: Criterion,
    gold: Mapping[str, float] | Sequence[str],
    task_id: str,
    context: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> Task:
    """A task from gold values by item, or from items in gold order, highest first."""
    if not isinstance(gold, Mapping):
        gold = {item: float(len(gold) - 1 - place) for place, item in enumerate(gold)}
    order = sorted(gold, key=lambda item: -gold[item])
    items = shuffled(order, task_id)
    values = tuple(float(gold[item]) for item in items)
    return Task(criterion, tuple(items), context, values, task_id, dict(about or {}))


def first_words(text: str, words: int | None) -> str:
    """The text with white space collapsed, cut after `words` words; None keeps all of them."""
    if words is not None and (isinstance(words, bool) or not isinstance(words, int) or words < 1):
        raise CcrankError(f"words must be at least 1, or None for all of them, got {words!r}")
    split = text.split()
    if words is None or len(split) <= words:
        return " ".join(split)
    return " ".join(split[:words]) + " ..."


def check_choice(option: str, value: object, known: Sequence[object]) -> None:
    """Raise an error for a value that is not one of the choices."""
    if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in known):
        raise CcrankError(f"{option} must be one of {', '.join(map(repr, known))}, got {value!r}")
