"""The lists that the intervals of `auto` are fitted on (choose) and reported on (report), each ranked alone.

Texts with human ratings are pooled by criterion, and lists of 8, 20, 50 and up to 200 items are drawn from each pool;
lists of names are taken as they are. Whole criteria belong to one half.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccrank import Task, load_dataset
from ccrank.io.taskfiles import read_tasks
from ccrank.study.datasets.dataset import task_of_gold
from studies.confidence.lists import TEXTS

POOL = 200
DRAWN = ((POOL, 1), (50, 6), (20, 6), (8, 12))
"""How many lists of which length are drawn from a pool; the longest comes first, so that the rest is read already."""
REVIEWS = slice(0, 144, 12)
"""Which lists of reviews are read."""


def lists(half: str, texts: Path) -> Iterator[tuple[str, Task]]:
    """(source, list) of one half; `texts` is the folder of the task files of `TEXTS`."""
    if half == "choose":
        yield from (("scalaradj", task) for task in load_dataset("scalaradj"))
        yield from (("reviews", task) for task in load_dataset("reviews")[REVIEWS])
    else:
        yield from (("everyday", task) for task in load_dataset("everyday"))
    for name in sorted(TEXTS[half], key=("convincing", "difficulty").__contains__):
        yield from ((name, task) for task in drawn(read_tasks(texts / f"{name}.jsonl"), name))


def drawn(tasks: Sequence[Task], name: str) -> Iterator[Task]:
    """Lists of several lengths from all items of a criterion."""
    generator = random.Random(name)
    gold = {item: value for task in tasks for item, value in zip(task.items, task.values or (), strict=True)}
    for size, count in DRAWN:
        for number in range(count):
            some = generator.sample(sorted(gold), min(size, len(gold)))
            ordered = sorted(some, key=lambda item: -gold[item])  # ties stay in random order
            yield task_of_gold(tasks[0].criterion, ordered, f"{name}, {size} items, {number}")
