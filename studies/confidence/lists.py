"""The lists that the confidence of `auto` is fitted on (choose) and reported on (report): `lists(half)`.

Each list is ranked alone, as a user would rank it, with all that is known of its criterion (full), with its name and
category (category), with its name alone (name), as if its name were not known (unknown), and with poles that were
chosen carelessly (careless). Shorter lists are drawn from longer ones, so that 4 to 200 items are covered. Whole
criteria belong to one half in `everyday`, in the lists of `unseen.py` and in the task files with human ratings of
texts; tasks alternate in the datasets of the paper, most of which have one criterion.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from ccrank import Criterion, Task, load_dataset
from ccrank.criteria.lexicon import FALLBACK, poles_of
from ccrank.io.taskfiles import read_tasks
from ccrank.study.datasets.dataset import task_of_gold
from studies.label_free import unseen

HALVES = ("choose", "report")
FULL, CATEGORY, NAME, UNKNOWN, CARELESS = "full", "category", "name", "unknown", "careless"
CARELESS_POLES = (
    ("not {high}", "{high}"),
    ("little {name}", "much {name}"),
    ("normal", "{high}"),
    ("low {name}", "high {name}"),
    ("no {name}", "a lot of {name}"),
)
"""What people give as poles who do not think of adjectives; each criterion has one of them."""
LONGEST, CLOSEST = 100, 0.002
"""Items of the longest list of names, and how near two values may be, as a share of the span."""
TEXTS = {
    "choose": ("convincing", "difficulty", "headline-positive", "politeness"),
    "report": ("formality", "joke-funny", "offensive", "tweet-joy"),
}
"""Task files with human ratings of texts; all tasks of a file are on one scale."""
POOLS = {FULL: 200, NAME: 50, CARELESS: 35}
"""How many texts of a file are read, by what is given of the criterion."""
DRAWN = ((5, 4), (8, 3), (12, 3), (20, 3), (35, 3), (50, 2), (100, 2), (200, 1))
"""How many lists of which length are drawn from a pool of texts."""


@dataclass(frozen=True)
class Listed:
    """A list and where it is from."""

    task: Task
    source: str
    detail: str
    """full, category or name: what is given of the criterion; unknown: its name, as if no table knew poles for it;
    careless: see `CARELESS_POLES`."""


def lists(half: str, texts: Path | None) -> Iterator[Listed]:
    """All lists of one half; `texts` is the folder of the task files of `TEXTS`, which are left out without it."""
    for task in load_dataset("everyday", half=half):
        yield from shorter(Listed(task, "everyday", FULL))
        yield Listed(with_detail(task, CATEGORY), "everyday", CATEGORY)
        yield from shorter(Listed(with_detail(task, NAME), "everyday", NAME))
        yield Listed(with_detail(task, CARELESS), "everyday", CARELESS)
        yield Listed(with_detail(task, UNKNOWN), "everyday", UNKNOWN)
    for short, long in unseen_lists(half):
        yield from shorter(Listed(long, "unseen", FULL))
        yield from shorter(Listed(with_detail(short, NAME), "unseen", NAME))
        yield Listed(with_detail(long, CARELESS), "unseen", CARELESS)
        yield Listed(with_detail(short, CATEGORY), "unseen", CATEGORY)
    for name, step in (("wikilists", 2), ("scalaradj", 1), ("entsalience", 12), ("reviews", 7)):
        for number, task in enumerate(_half_of(name, half)[::step]):
            yield Listed(task, name, FULL)
            if number % 3 == 0:
                yield Listed(with_detail(task, NAME), name, NAME)
    for name in TEXTS[half] if texts is not None else ():
        assert texts is not None
        tasks = read_tasks(texts / f"{name}.jsonl")
        for detail, size in POOLS.items():
            yield from drawn(with_detail(pooled(tasks, size), detail), name, detail)


def with_detail(task: Task, detail: str) -> Task:
    """The task with less said about its criterion; its id names the detail."""
    own = task.criterion
    known = {
        FULL: own,
        CATEGORY: Criterion(own.name, category=own.category),
        NAME: Criterion(own.name),
        UNKNOWN: Criterion(own.name, poles=(FALLBACK.low[0], FALLBACK.high[0])),
        CARELESS: Criterion(own.name, poles=careless(own), category=own.category),
    }
    return replace(task, criterion=known[detail])


def careless(criterion: Criterion) -> tuple[str, str]:
    """Poles that a person might give without much thought."""
    low, high = random.Random(criterion.name).choice(CARELESS_POLES)
    words = {"name": criterion.name, "high": poles_of(criterion).high[0]}
    return low.format(**words), high.format(**words)


def shorter(listed: Listed) -> Iterator[Listed]:
    """The list, one of 5 to 7 of its items and, if it is long, some of 10 to 15 and of 25 to 40."""
    yield listed
    size, generator = len(listed.task.items), random.Random(f"{listed.task.id} {listed.detail}")
    for low, high in ((5, 7), (10, 15), (25, 40)):
        if size > high:
            yield replace(listed, task=_some(listed.task, generator.randint(low, high), generator))


def drawn(pool: Task, source: str, detail: str) -> Iterator[Listed]:
    """Lists of several lengths from a pool of texts."""
    generator = random.Random(f"{pool.id} {detail}")
    for size, count in DRAWN:
        for number in range(count if size <= len(pool.items) else 0):
            task = _some(pool, size, generator)
            yield Listed(replace(task, id=f"{task.id} {number}"), source, detail)


def pooled(tasks: Sequence[Task], size: int) -> Task:
    """The first items of several tasks on one scale as one task; equal values keep their order."""
    pairs = [pair for task in tasks for pair in zip(task.items, task.values or (), strict=True)]
    gold = [item for item, _ in sorted(dict(pairs[:size]).items(), key=itemgetter(1), reverse=True)]
    return task_of_gold(tasks[0].criterion, gold, f"{tasks[0].id} and others")


def unseen_lists(half: str) -> Iterator[tuple[Task, Task]]:
    """Each list of `unseen.py` in one half, as it is and with up to `LONGEST` items."""
    lists = unseen.tomllib.loads(unseen.LISTS.read_text(encoding="utf-8"))
    halves = unseen.halves(f"{entry['name']} / {entry['category']}" for entry in lists["list"])
    wanted = dict(zip(HALVES, ("first", "second"), strict=True))[half]
    for entry in lists["list"]:
        if halves[f"{entry['name']} / {entry['category']}"] != wanted:
            continue
        criterion = Criterion(entry["name"], entry["comparative"], tuple(entry["poles"]), entry["category"])
        pool = entry["items"]
        values = unseen.values_of(entry, lists["pools"][pool] if isinstance(pool, str) else pool)
        log = entry.get("scale") == "log"
        share = entry.get("share", unseen.SHARE)
        short = unseen.spread(values, most=entry.get("most", unseen.MOST), share=share, log=log)
        long = unseen.spread(values, most=LONGEST, share=min(share, CLOSEST), log=log)
        yield tuple(task_of_gold(criterion, gold, entry["id"]) for gold in (short, long))


def _half_of(dataset: str, half: str) -> list[Task]:
    return load_dataset(dataset)[HALVES.index(half) :: 2]


def _some(task: Task, size: int, generator: random.Random) -> Task:
    places = generator.sample(range(len(task.items)), size)
    assert task.values is not None
    return replace(
        task,
        items=tuple(task.items[place] for place in places),
        values=tuple(task.values[place] for place in places),
        id=f"{task.id}, {size} of {len(task.items)}",
    )
