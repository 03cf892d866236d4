"""Reading tasks and items from files, and writing tasks."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ccrank.criterion_phrase import resolved
from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.labels import Labels
from ccrank.task import Task, normal_form
from ccrank.text import quoted, shortened

FORMATS = ("lines", "csv", "tsv", "jsonl")
"""The formats that `read_items` reads."""

_FORMAT_OF_SUFFIX = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of a JSONL file, one JSON object per line (see `Task.parse`).

    Blank lines are skipped; a task without an id is called `line-K` after its line; two tasks with one id are an
    error, since results are kept by id.
    """
    tasks: list[Task] = []
    line_of_id: dict[str, int] = {}
    for number, value in _json_lines(read_text(path), str(path)):
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
                f"{where}: the id {task.id!r} is taken by line {line_of_id[task.id]}; give each task its own"
            )
        line_of_id[task.id] = number
        tasks.append(task)
    if not tasks:
        raise CcrankError(f"{path} holds no tasks; give one JSON object per line")
    return tasks


def write_tasks(tasks: Iterable[Task], path: str | Path) -> None:
    """Write a task file that `read_tasks` reads back: whole or, if anything fails, not at all."""
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
    """The items of a file or stream; `-` is the standard input.

    `format` is one of `FORMATS`; without it the suffix of the file decides, and a stream is lines. A CSV or TSV has a
    header; `column` names the column of items and may be left out where there is but one. A JSONL line is a text, or
    an object whose field `column` is one.
    """
    if isinstance(source, (str, Path)):
        is_stdin = str(source) == "-"
        where = "standard input" if is_stdin else str(source)
        text = _decode(sys.stdin.buffer.read(), where) if is_stdin else read_text(source)
        chosen = format or _guess_format(source)
    else:
        where = str(getattr(source, "name", "the stream"))
        content = source.read()
        text = _decode(content, where) if isinstance(content, bytes) else content.removeprefix("\ufeff")
        chosen = format or "lines"
    if chosen == "lines":
        if column is not None:
            raise CcrankError(
                f"{where} is read as plain lines, which have no column {column!r}; "
                "give the format: csv, tsv or jsonl"
            )
        items = [line.strip() for line in io.StringIO(text, newline=None) if line.strip()]
    elif chosen in ("csv", "tsv"):
        items = list(_table_items(text, "\t" if chosen == "tsv" else ",", column, where))
    elif chosen == "jsonl":
        items = list(_json_items(text, column, where))
    else:
        raise CcrankError(f"unknown format {chosen!r}; known are {', '.join(FORMATS)}")
    if not items:
        raise CcrankError(f"{where} holds no items")
    return items


def read_labels(path: str | Path, items: Sequence[str]) -> Labels:
    """A few labels for some of the items: values as CSV or TSV (`item,value`, a header or none) or as one JSON object,
    or orders, one per line: `Russia > Brazil > Chad`. Items are matched as `normal_form` has them."""
    text, where = read_text(path), str(path)
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".json" or text.lstrip().startswith("{"):
            labels = Labels.of_values(_json_labels(text))
        elif _FORMAT_OF_SUFFIX.get(suffix) not in ("csv", "tsv") and ">" in text:
            lines = [line for line in io.StringIO(text, newline=None) if line.strip()]
            labels = Labels.of_chains(_chain(line) for line in lines)
        else:
            tabs = _FORMAT_OF_SUFFIX.get(suffix) == "tsv" or (suffix != ".csv" and "\t" in text)
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
        raise CcrankError(f"labels are a JSON object of items and values, got {quoted(value)}")
    return value


def _chain(line: str) -> list[str]:
    parts = [part.strip() for part in line.split(">")]
    if len(parts) < 2 or not all(parts):
        raise CcrankError(f"an order reads A > B or A > B > C, got {shortened(line.strip())!r}")
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
                    "put a cell that holds the separator in double quotes"
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


def _guess_format(path: str | Path) -> str:
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        raise CcrankError(
            f"{path}: items are read from JSON lines, not from one JSON document; "
            "write one item per line, or give the format jsonl if it is JSON lines"
        )
    return _FORMAT_OF_SUFFIX.get(suffix, "lines")


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file; every way in which that can fail is a CcrankError."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise CcrankError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise CcrankError(f"{path} is a folder; give a file") from None
    except OSError as error:
        raise CcrankError(f"cannot read {path}: {error.strerror or error}") from None
    return _decode(content, str(path))


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # `utf-8-sig` counts from after the mark that it takes off.
        start = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        guess = "utf-16" if content.startswith(_UTF16_MARKS) else "latin1"
        raise CcrankError(
            f"{where} is not UTF-8 text: byte 0x{content[start]:02x} at offset {start}; "
            f"convert it, for example with `iconv -f {guess} -t utf-8`"
        ) from None


def _json_lines(text: str, where: str) -> Iterator[tuple[int, Any]]:
    """(line number, value) of each line that is not blank."""
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CcrankError(
                f"{where}, line {number}: not JSON ({error}): {shortened(line.strip())}"
            ) from None


def _json_line(task: Task) -> bytes:
    line = json.dumps(task.to_json(), ensure_ascii=False)
    try:
        return line.encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair has an escape in JSON but no UTF-8 form
        return json.dumps(task.to_json()).encode("ascii") + b"\n"


def _json_items(text: str, column: str | None, where: str) -> Iterator[str]:
    for number, value in _json_lines(text, where):
        place = f"{where}, line {number}"
        if isinstance(value, dict):
            value = value[_pick_column(list(value), column, place)]
        if not isinstance(value, str):
            raise CcrankError(f"{place}: an item is a text, got {quoted(value)}")
        if not value.strip():
            raise CcrankError(f"{place}: the item is empty")
        yield value.strip()


def _table_items(text: str, delimiter: str, column: str | None, where: str) -> Iterator[str]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    index = -1
    header: list[str] = []
    try:
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if index < 0:
                header = [cell.strip() for cell in row]
                index = header.index(_pick_column(header, column, f"{where}, line {rows.line_num}"))
                continue
            if len(row) > len(header):
                raise CcrankError(
                    f"{where}, line {rows.line_num}: {len(row)} cells under {len(header)} columns; "
                    "put a cell that holds the separator in double quotes"
                )
            item = row[index].strip() if index < len(row) else ""
            if not item:
                raise CcrankError(
                    f"{where}, line {rows.line_num}: nothing in column {header[index]!r}; fill it or drop the row"
                )
            yield item
    except csv.Error as error:
        raise CcrankError(f"{where}, line {rows.line_num}: not a well-formed table ({error})") from None


def _pick_column(columns: list[str], column: str | None, where: str) -> str:
    named = ", ".join(repr(name) for name in columns)
    if column is None:
        if len(columns) != 1:
            raise CcrankError(f"{where}: which column holds the items? There are {named}")
        return columns[0]
    if columns.count(column) > 1:
        raise CcrankError(f"{where}: two columns are called {column!r}; rename one")
    if column not in columns:
        raise CcrankError(f"{where}: there is no column {column!r}; there are {named}")
    return column
