"""Reading tasks and items from files, and writing tasks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ccrank.criterion_phrase import resolved
from ccrank.errors import CcrankError
from ccrank.files import json_lines, read_text, write_atomically
from ccrank.labels import Labels
from ccrank.rows import FORMAT_OF_SUFFIX, read_rows
from ccrank.task import Task, normal_form
from ccrank.text import quoted, shortened


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
    """Write a task file that `read_tasks` reads, atomically.

    Parameters
    ----------
    tasks
        Tasks with distinct ids.
    path
        The file to write.
    """
    lines: list[bytes] = []
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise CcrankError(f"cannot write {path}: two tasks have the id {task.id!r}; give each its own")
        seen.add(task.id)
        lines.append(_json_line(task))
    write_atomically(path, b"".join(lines))


def read_items(
    source: str | Path | IO[str] | IO[bytes], column: str | None = None, format: str | None = None
) -> list[str]:
    """The items of a file or stream, without empty ones; see `read_rows`, which keeps their rows too.

    Parameters
    ----------
    source, column, format
        As in `read_rows`.
    """
    return [text for text in read_rows(source, column, format).texts if text is not None]


def read_labels(path: str | Path, items: Sequence[str]) -> Labels:
    """A few labels for some of the items: values as CSV or TSV (`item,value`, a header or none) or as one JSON object,
    or orders, one per line: `Russia > Brazil > Chad`. Items are matched as `normal_form` has them."""
    text, where = read_text(path), str(path)
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".json" or text.lstrip().startswith("{"):
            labels = Labels.of_values(_json_labels(text))
        elif FORMAT_OF_SUFFIX.get(suffix) not in ("csv", "tsv") and ">" in text:
            lines = [line for line in io.StringIO(text, newline=None) if line.strip()]
            labels = Labels.of_chains(_chain(line) for line in lines)
        else:
            tabs = FORMAT_OF_SUFFIX.get(suffix) == "tsv" or (suffix != ".csv" and "\t" in text)
            labels = Labels.of_values(_table_labels(text, "\t" if tabs else ",", items))
        labels.check(items)
    except CcrankError as error:
        raise CcrankError(f"{where}: {error}") from None
    return labels


def _json_labels(text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for name, _ in pairs:
            if [other for other, _ in pairs].count(name) > 1:
                raise CcrankError(f"{name!r} is labelled twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise CcrankError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise CcrankError(f"labels must be a JSON object of items and values, got {quoted(value)}")
    return value


def _chain(line: str) -> list[str]:
    parts = [part.strip() for part in line.split(">")]
    if len(parts) < 2 or not all(parts):
        raise CcrankError(f"an order must have the form A > B or A > B > C, got {shortened(line.strip())!r}")
    return parts


def _table_labels(text: str, delimiter: str, items: Sequence[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    known = {normal_form(item) for item in items}
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    first = True
    try:
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != 2:
                raise CcrankError(
                    f"line {rows.line_num}: labels have two columns, item and value, got {len(row)} cells; "
                    "put a cell that contains the separator in double quotes"
                )
            item, number = normal_form(row[0]), row[1].strip()
            try:
                value = float(number)
            except ValueError:
                if first and item not in known:  # a header
                    first = False
                    continue
                raise CcrankError(
                    f"line {rows.line_num}: the value of {item!r} is not a number: {number!r}"
                ) from None
            first = False
            if item in values:
                raise CcrankError(f"line {rows.line_num}: {item!r} is labelled twice")
            values[item] = value
    except csv.Error as error:
        raise CcrankError(f"line {rows.line_num}: not a well-formed table ({error})") from None
    return values


def _json_line(task: Task) -> bytes:
    line = json.dumps(task.to_json(), ensure_ascii=False)
    try:
        return line.encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # a lone surrogate can be escaped in JSON but not encoded in UTF-8
        return json.dumps(task.to_json()).encode("ascii") + b"\n"
