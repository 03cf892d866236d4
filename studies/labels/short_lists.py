"""The short lists of `corrections.py`: as long as those that people type, read once and kept as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ccrank import Reader, ReaderOptions, Task
from ccrank.criteria.exemplars import WRITTEN
from ccrank.io.taskfiles import read_tasks
from ccrank.methods.labelfree.rankers import label_free_states
from ccrank.models.prompter import Prompter
from ccrank.ranking import canonical
from ccrank.study.datasets.lists import read_everyday
from ccrank.task import normal_form
from ccrank.util.zscores import z_scores
from studies.labels.lists import TEXTS, LongList

TEXT_LISTS = 6
"""Lists of eight texts of each text criterion."""
JOINED, JOINED_TASKS = 2, 3
"""Lists of 24 texts of each, and the tasks of eight that are joined into one."""


def tasks_of(half: str) -> Iterator[Task]:
    """The lists of names of a half of Everyday, and lists of texts of the criteria of the same half."""
    yield from read_everyday(half=half)  # type: ignore[arg-type]
    for name in TEXTS[half]:
        tasks = read_tasks(Path(os.environ["CCRANK_DATA"], "textcriteria") / f"{name}.jsonl")
        yield from tasks[:TEXT_LISTS]
        for number in range(JOINED):
            start = TEXT_LISTS + number * JOINED_TASKS
            values: dict[str, tuple[str, float]] = {}
            for task in tasks[start : start + JOINED_TASKS]:
                for item, value in zip(task.items, task.values or (), strict=True):
                    values.setdefault(normal_form(item), (item, value))
            items, golds = zip(*values.values(), strict=True)
            yield Task(tasks[0].criterion, items, values=golds, id=f"{name}-joined-{number + 1}")


def read(folder: Path, half: str, model: str = "default") -> None:
    """Label-free scores and states of every list of a half that is not in the folder yet."""
    reader = Reader.open(model, ReaderOptions(dtype="float32"))
    (folder / half).mkdir(parents=True, exist_ok=True)
    for given in tasks_of(half):
        path = folder / half / f"{given.id}.npz"
        if path.exists():
            continue
        task, _ = canonical(given)
        answer, (slot, item) = label_free_states(task, Prompter(reader))
        np.savez(
            path,
            values=np.array(task.values),
            auto=np.asarray(answer.scores),
            written=np.array(WRITTEN in answer.details.get("signals", {})),
            slot=slot.astype(np.float16),
            item=item.astype(np.float16),
        )
        print(f"{given.id}: {len(task.items)} items", flush=True)


def load(folder: Path, half: str) -> list[LongList]:
    """The lists of a half that were read."""
    found = []
    for path in sorted((folder / half).glob("*.npz")):
        arrays = np.load(path)
        states = (arrays[name].astype(np.float32) for name in ("slot", "item"))
        scores = z_scores(arrays["auto"].astype(float))
        empty = np.zeros((len(scores), 0))
        found.append(
            LongList(path.stem, arrays["values"], scores, empty.T, bool(arrays["written"]), *states, empty)
        )
    return found
