"""Small task files and tiny models for studies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import tiny_model

from ccrank.io.taskfiles import write_tasks
from ccrank.models import Reader, ReadingCache
from ccrank.study.experiment.runner import StudyWatcher
from ccrank.task import Criterion, Task

WORDS = (
    "red",
    "blue",
    "green",
    "warm",
    "cold",
    "rich",
    "poor",
    "dark",
    "bright",
    "tower",
    "bridge",
    "fox",
    "dog",
)
WORDS += ("Chad", "Peru", "Canada")


class Interrupting(StudyWatcher):
    """Counts the units that are done, and may interrupt the run after some of them."""

    def __init__(self, most: int | None = None) -> None:
        self.done, self.most = 0, most

    def finish(self, *_: object) -> None:  # type: ignore[override]
        self.done += 1
        if self.done == self.most:
            raise KeyboardInterrupt


def small_tasks(count: int = 5, start: int = 0, context: str | None = None) -> list[Task]:
    """Tasks of 3 to 5 short items with gold."""
    tasks = []
    for number in range(start, start + count):
        items = tuple(WORDS[(3 * number + place) % len(WORDS)] for place in range(3 + number % 3))
        values = tuple(float((7 * place + number) % 11) for place in range(len(items)))
        tasks.append(Task(Criterion("size", "larger"), items, context, values, f"task-{number}"))
    return tasks


def two_task_files(folder: Path, first: int, second: int, start: int) -> tuple[str, str]:
    """Two files of so many tasks, the second with a context."""
    paths = folder / "first.jsonl", folder / "second.jsonl"
    write_tasks(small_tasks(first), paths[0])
    write_tasks(small_tasks(second, start=start, context="The tower is dark."), paths[1])
    return str(paths[0]), str(paths[1])


@pytest.fixture
def task_files(tmp_path: Path) -> tuple[str, str]:
    """Two task files, the second with a context."""
    return two_task_files(tmp_path, 5, 3, start=1)


@pytest.fixture
def open_tiny(tmp_path: Path) -> Callable[[str], Reader]:
    """Opens tiny models by the name of their family, with a common cache of readings."""
    cache = ReadingCache(tmp_path / "readings")

    def opener(name: str) -> Reader:
        loaded = tiny_model(name, max_position_embeddings=512)
        object.__setattr__(loaded, "name", name)
        return Reader(loaded, cache=cache, batch_tokens=512)

    return opener
