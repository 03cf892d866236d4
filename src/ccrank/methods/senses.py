"""The sense of an adjective that fits the items, as the model has it: a dry wine is not sweet, a dry climate not wet.

The model continues three sentences with the opposite of each sense: "Some wines are very dry, others are very …", the
same after the items, and "This wine is not dry at all. On the contrary, it is very …". The mean log-probability is the
score of the sense. Nothing is read for a criterion whose words have one sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccrank.criteria import resolved
from ccrank.criteria.inflection import plural
from ccrank.criteria.senses import adjective_and_opposites, in_best_sense
from ccrank.models.reader_like import ReaderLike
from ccrank.prompts import Piece, Prompt
from ccrank.task import Criterion, Task
from ccrank.util.text import one_line

MAX_ITEMS = 8
"""Items that the model sees before it answers."""
MAX_CHARACTERS = 60
"""Of each of them."""


def with_senses(tasks: Sequence[Task], reader: ReaderLike) -> list[Task]:
    """The tasks with their criteria in the sense that fits their items; tasks of one criterion share one sense."""
    tasks = [replace(task, criterion=resolved(task.criterion)) for task in tasks]
    if reader.form != "causal" or reader.loaded.missing_head:
        return tasks
    items: dict[Criterion, list[str]] = {}
    for task in tasks:
        if _is_open(task.criterion):
            items.setdefault(task.criterion, []).extend(task.items)
    settled = {criterion: _settled(criterion, own, reader) for criterion, own in items.items()}
    return [
        replace(task, criterion=settled[task.criterion]) if _is_open(task.criterion) else task
        for task in tasks
    ]


def _is_open(criterion: Criterion) -> bool:
    """Whether the words have several senses of which none was chosen."""
    understood = criterion.understood
    return understood is not None and bool(understood.alternatives) and understood.source == "lexicon"


def _settled(criterion: Criterion, items: Sequence[str], reader: ReaderLike) -> Criterion:
    understood = criterion.understood
    assert understood is not None
    adjective, opposites = adjective_and_opposites((understood, *understood.alternatives))
    category = criterion.category or understood.describes
    prompts = _prompts(adjective, category, sorted({*items}))
    readings = reader.read(prompts, opposites, log_probabilities=True)
    assert readings.logits is not None
    scores = np.asarray(readings.logits[:, : len(opposites)], float).mean(axis=0)
    return in_best_sense(criterion, scores.tolist())


def _prompts(adjective: str, category: str, items: Sequence[str]) -> list[Prompt]:
    shown = [items[index] for index in np.linspace(0, len(items) - 1, min(MAX_ITEMS, len(items))).astype(int)]
    listed = ", ".join(one_line(item)[:MAX_CHARACTERS] for item in shown)
    if not category:
        return [_prompt(f"{listed}: some are very ", adjective, ", others are very ")]
    several = plural(category)
    return [
        _prompt(f"{listed}: some of these {several} are very ", adjective, ", others are very "),
        _prompt(f"Some {several} are very ", adjective, ", others are very "),
        _prompt(f"This {category} is not ", adjective, " at all. On the contrary, it is very "),
    ]


def _prompt(before: str, adjective: str, after: str) -> Prompt:
    pieces = (Piece(before), Piece(adjective, "criterion"), Piece(after), Piece("", "slot"))
    return Prompt(pieces, task="senses")
