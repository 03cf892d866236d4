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
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from ccrank.errors import CcrankError
from ccrank.study.datasets.locate import DataFile
from ccrank.task import Criterion, Task
from ccrank.util.text import did_you_mean

Member = TypeVar("Member")
MIN_ITEMS = 4
"""Published lists with fewer items, once ties are removed, are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    paper_tasks: int | None = None
    """The number of tasks in the paper; None for a dataset that is not in the paper."""
    paper_items: float | None = None
    """The mean number of items per task in the paper."""
    departs: str
    """How the tasks differ from the paper's."""
    read: Callable[..., list[Task]]
    """`read(data_dir, **options)`; use `load`, which validates the options by their annotations: bool, int | None for a
    number of words, else Literal."""
    files: tuple[DataFile, ...] = ()
    """The required data files; empty for packaged datasets."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of `load` with their defaults."""
        parameters = inspect.signature(self.read).parameters.values()
        return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}

    def load(self, data_dir: str | Path | None = None, **options: Any) -> list[Task]:
        """The tasks; the same options give the same tasks in the same order."""
        return self.read(data_dir, **self.parse_options(options))

    def parse_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options as a user wrote them, converted to the types of the defaults; no file is read for that."""
        kinds, known = get_type_hints(self.read), self.options
        parsed = {}
        for name, value in given.items():
            if name not in known:
                raise CcrankError(
                    f"dataset {self.name!r} has no option {name!r}; {did_you_mean(name, known)}its options: "
                    f"{', '.join(known) or 'none'}"
                )
            parsed[name] = _parse_option(f"{self.name}.{name}", kinds[name], value)
        return parsed


def _parse_option(where: str, kind: Any, value: Any) -> Any:
    """One value of an option, from text or as it is; the error names the option with its dataset."""
    if isinstance(value, str):
        value = {"none": None, "true": True, "false": False}.get(value.lower(), value)
    if kind == int | None:
        words = int(value) if isinstance(value, str) and value.isdecimal() else value
        if words is not None and (isinstance(words, bool) or not isinstance(words, int) or words < 1):
            raise CcrankError(f"{where} must be at least 1, or none for all of them, got {words!r}")
        return words
    choices = (True, False) if kind is bool else get_args(kind)
    if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in choices):
        raise CcrankError(f"{where} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def counts(tasks: Sequence[Task]) -> tuple[int, float]:
    """(number of tasks, mean number of items), as in the paper's table."""
    if not tasks:
        return 0, 0.0
    return len(tasks), sum(len(task.items) for task in tasks) / len(tasks)


def generator_of(task_id: str) -> random.Random:
    """A generator determined by the task id on every machine."""
    return random.Random(int.from_bytes(hashlib.sha256(task_id.encode("utf-8")).digest()[:8], "big"))


def shuffled(order: Sequence[Member], task_id: str) -> list[Member]:
    """The members of an order, shuffled until as many pairs are discordant with it as concordant (up to one)."""
    indices = list(range(len(order)))
    generator = generator_of(task_id)
    while True:
        generator.shuffle(indices)
        if abs(sum(1 if first < second else -1 for first, second in combinations(indices, 2))) <= 1:
            return [order[index] for index in indices]


def task_of_gold(
    criterion: Criterion,
    gold: Mapping[str, float] | Sequence[str],
    task_id: str,
    context: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> Task:
    """A task from gold values by item, or from items in gold order, highest first."""
    if not isinstance(gold, Mapping):
        gold = {item: float(len(gold) - 1 - index) for index, item in enumerate(gold)}
    order = sorted(gold, key=lambda item: -gold[item])
    items = shuffled(order, task_id)
    values = tuple(float(gold[item]) for item in items)
    return Task(criterion, tuple(items), context, values, task_id, dict(about or {}))


def first_words(text: str, words: int | None) -> str:
    """The text with white space collapsed, cut after `words` words; None keeps all of them."""
    split = text.split()
    if words is None or len(split) <= words:
        return " ".join(split)
    return " ".join(split[:words]) + " ..."
