"""Reading tasks and items from files, and writing tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

from ccrank.criteria import resolved
from ccrank.errors import CcrankError
from ccrank.io import read_rows
from ccrank.task import Task
from ccrank.util.files import json_lines, read_text, write_atomically
from ccrank.util.text import encodable


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of a JSONL file, one JSON object per line (see `Task.parse`).

    Blank lines are skipped. A task without an id is named `line-K` after its line. Two tasks with the same id are an
    error, since results are stored by id.

    Parameters
    ----------
    path
        The file.
    """
    tasks: list[Task] = []
    line_of_id: dict[str, int] = {}
    for number, _, value in json_lines(read_text(path), str(path)):
        where = f"{path}, line {number}"
        if isinstance(value, dict) and value.get("id") is None:
            value.pop("id", None)
        try:
            task = Task.parse(value, default_id=f"line-{number}")
            task = replace(task, criterion=resolved(task.criterion))
        except CcrankError as error:
            raise CcrankError(f"{where}: {error}") from None
        if task.id in line_of_id:
            raise CcrankError(
                f"{where}: the id {task.id!r} is already used in line {line_of_id[task.id]}; give each task its own"
            )
        line_of_id[task.id] = number
        tasks.append(task)
    if not tasks:
        raise CcrankError(f"{path} contains no tasks; give one JSON object per line")
    return tasks


def write_tasks(tasks: Iterable[Task], path: str | Path) -> None:
    """Write a task file that `read_tasks` reads, atomically."""
    lines: list[str] = []
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise CcrankError(f"cannot write {path}: two tasks have the id {task.id!r}; give each its own")
        seen.add(task.id)
        lines.append(encodable(json.dumps(task.to_json(), ensure_ascii=False)) + "\n")
    write_atomically(path, lines)


def read_items(
    source: str | Path | IO[str] | IO[bytes], column: str | None = None, format: str | None = None
) -> list[str]:
    """The items of a file or stream, without empty ones; see `read_rows`, which keeps their rows too."""
    return [text for text in read_rows(source, column, format).texts if text is not None]
