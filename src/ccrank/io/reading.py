"""Files to rows. Text formats are read as text, so that "007" stays "007"."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO, TypeVar

from ccrank.errors import CcrankError, needs_extra
from ccrank.io.cells import cell_text, is_missing, item_text
from ccrank.io.excel import read_excel
from ccrank.io.records import (
    Content,
    format_of,
    json_records,
    line_items,
    parquet_errors,
    parquet_schema,
    parquet_tables,
    separator_of,
    table_records,
)
from ccrank.io.table import Rows, pick_column
from ccrank.util.files import read_bytes

FORMATS = ("lines", "csv", "tsv", "jsonl", "parquet", "xlsx")
"""The formats that `read_rows` reads."""

Line = TypeVar("Line")


def read_rows(
    source: str | Path | IO[str] | IO[bytes],
    column: str | None = None,
    format: str | None = None,
    id: str | None = None,
) -> Rows:
    """The rows of a file or stream, with the item of each."""
    content = _content(source)
    where = content.where
    chosen = format or (format_of(source) if isinstance(source, (str, Path)) else "lines")
    if chosen not in FORMATS:
        raise CcrankError(f"unknown format {chosen!r}; known are {', '.join(FORMATS)}")
    if chosen == "lines":
        for name in (column, id):
            if name is not None:
                raise CcrankError(
                    f"{where} is read as plain lines, which have no column {name!r}; "
                    "give the format: csv, tsv, jsonl, parquet or xlsx"
                )
        return _plain(line_items(content), 0, chosen, where)
    if chosen == "jsonl":
        rows = _read_json(content, column)
        if not rows.columns:
            if id is not None:
                raise CcrankError(f"{where} holds plain texts, which have no field {id!r}; leave it out")
            return rows
    elif chosen == "parquet":
        rows = _read_parquet(content)
    elif chosen == "xlsx":
        rows = _read_sheet(content)
    else:
        rows = _read_separated(content, chosen)
    item_column = pick_column(rows.columns, column, where)
    id_column = None if id is None else pick_column(rows.columns, id, where)
    name = str(rows.columns[item_column])
    texts = tuple(
        item_text(record[item_column], f"{where}, row {number} of column {name!r}")
        for number, record in enumerate(rows.records, start=1)
    )
    if all(text is None for text in texts):
        raise CcrankError(f"{where} contains no items: there is no text in column {name!r}")
    return replace(rows, texts=texts, item_column=item_column, id_column=id_column, format=chosen)


def _plain(texts: Iterable[str | None], blank: int, format: str, where: str) -> Rows:
    items, empty = _without_blanks(texts)
    if not items:
        raise CcrankError(f"{where} contains no items")
    return Rows(tuple(items), blank=blank + empty, format=format)


def _content(source: str | Path | IO[str] | IO[bytes]) -> Content:
    """The whole of it, since a pipe can be read only once."""
    if not isinstance(source, (str, Path)):
        return Content(source.read(), str(getattr(source, "name", "the stream")))
    if str(source) == "-":
        return Content(sys.stdin.buffer.read(), "standard input")
    return Content(read_bytes(source), str(source))


def _without_blanks(lines: Iterable[Line | None]) -> tuple[list[Line], int]:
    """The lines that are not None, and the number of others before the last of them."""
    kept: list[Line] = []
    blank = pending = 0
    for line in lines:
        if line is None:
            pending += 1
        else:
            kept.append(line)
            blank, pending = blank + pending, 0
    return kept, blank


def _read_separated(content: Content, format: str) -> Rows:
    """The rows, as the other readers give them too: the column of items is chosen later."""
    separator = separator_of(content, format)
    lines, blank = _without_blanks(table_records(content, separator))
    if not lines:
        raise CcrankError(f"{content.where} contains no items")
    if len(lines) == 1:
        raise CcrankError(f"{content.where} contains no items: it has a header and no rows")
    return Rows((), tuple(lines[0]), [*map(tuple, lines[1:])], blank=blank, separator=separator)


def _read_json(content: Content, column: str | None) -> Rows:
    """Objects as rows, each key a column; texts alone as a plain list. A text among objects is an item without
    further columns."""
    where = content.where
    values = list(json_records(content))
    blank = values[-1][0] - len(values) if values else 0
    if not any(isinstance(value, dict) for _, _, value in values):
        if column is not None and values:
            raise CcrankError(f"{where} holds plain texts, which have no field {column!r}; leave it out")
        return _plain((item_text(value, where) for _, _, value in values), blank, "jsonl", where)
    columns = list(dict.fromkeys(name for _, _, value in values if isinstance(value, dict) for name in value))
    item_field = columns[pick_column(columns, column, where)]
    objects = [value if isinstance(value, dict) else {item_field: value} for _, _, value in values]
    # Written numbers and their like survive in the lines themselves; a line that is a text becomes an object.
    lines = [line if isinstance(value, dict) else None for _, line, value in values]
    records = [tuple(record.get(name) for name in columns) for record in objects]
    return Rows((), tuple(columns), records, blank=blank, source=lines)


def _read_parquet(content: Content) -> Rows:
    with needs_extra("files", "a Parquet file"):
        import pyarrow

    schema = parquet_schema(content)
    table = pyarrow.concat_tables([schema.empty_table(), *parquet_tables(content)])
    with parquet_errors(content.where):
        values = [column.to_pylist() for column in table.columns]
    return Rows((), tuple(table.column_names), list(zip(*values, strict=True)), source=table)


def _read_sheet(content: Content) -> Rows:
    with content.binary() as stream:
        cells = read_excel(stream.read(), content.where)
    lines, blank = _without_blanks(
        line if any(cell_text(cell).strip() for cell in line) else None for line in cells
    )
    if len(lines) < 2:
        raise CcrankError(f"{content.where} contains no items: the first sheet needs a header and rows")
    width = max(
        column for cells in lines for column, cell in enumerate(cells, start=1) if not is_missing(cell)
    )
    padded = [(*cells, *[None] * (width - len(cells)))[:width] for cells in lines]
    return Rows((), tuple(map(cell_text, padded[0])), padded[1:], blank=blank)
