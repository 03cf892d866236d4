"""Files to rows: one reader for each format. Text formats are read as text, so that "007" stays "007"."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ccrank.errors import CcrankError
from ccrank.files import csv_rows, decode, json_lines, read_bytes
from ccrank.rows.cells import WrittenFloat, cell_text, is_missing, item_text
from ccrank.rows.excel import read_excel
from ccrank.rows.table import Rows, pick_column
from ccrank.text import quoted

FORMATS = ("lines", "csv", "tsv", "jsonl", "parquet", "xlsx")
"""The formats that `read_rows` reads."""

FORMAT_OF_SUFFIX = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}
"""The format of a file by the end of its name; anything else is read as plain lines."""

_OTHER_SEPARATORS = (";", "\t", "|")


@dataclass(frozen=True)
class _Table:
    """What a file holds, before the column of items is chosen."""

    columns: Sequence[str]
    records: Sequence[tuple[Any, ...]]
    blank: int = 0
    separator: str = ","
    source: Any = None


def read_rows(
    source: str | Path | IO[str] | IO[bytes],
    column: str | None = None,
    format: str | None = None,
    id: str | None = None,
) -> Rows:
    """The rows of a file or stream, with the item of each.

    Parameters
    ----------
    source
        A path, `-` for the standard input, or an open stream.
    column
        The column (or JSON field) of items; it may be left out where there is but one.
    format
        One of `FORMATS`. Without it the suffix of the file decides, and a stream is lines. A CSV or TSV has a header;
        a line of JSONL is an object or a text; of an Excel file the first sheet is read, its first row is the header.
    id
        The column that names the rows, for joining.
    """
    content, where = _content(source)
    chosen = format or (_guess_format(source) if isinstance(source, (str, Path)) else "lines")
    if chosen not in FORMATS:
        raise CcrankError(f"unknown format {chosen!r}; known are {', '.join(FORMATS)}")
    if chosen == "lines":
        for name in (column, id):
            if name is not None:
                raise CcrankError(
                    f"{where} is read as plain lines, which have no column {name!r}; "
                    "give the format: csv, tsv, jsonl, parquet or xlsx"
                )
        lines, blank = _without_blanks(io.StringIO(_text(content, where), newline=None), str.strip)
        return _plain([line.strip() for line in lines], blank, chosen, where)
    if chosen == "jsonl":
        found = _read_json(_text(content, where), column, where)
        if isinstance(found, Rows):
            if id is not None:
                raise CcrankError(f"{where} holds plain texts, which have no field {id!r}; leave it out")
            return found
        table = found
    elif chosen == "parquet":
        table = _read_parquet(_bytes(content), where)
    elif chosen == "xlsx":
        table = _read_sheet(_bytes(content), where)
    else:
        table = _read_separated(_text(content, where), "\t" if chosen == "tsv" else None, where)
    return _rows(table, column, id, chosen, where)


def _rows(table: _Table, column: str | None, id: str | None, format: str, where: str) -> Rows:
    item_column = pick_column(table.columns, column, where)
    id_column = None if id is None else pick_column(table.columns, id, where)
    name = str(table.columns[item_column])
    texts = tuple(
        item_text(record[item_column], f"{where}, row {number} of column {name!r}")
        for number, record in enumerate(table.records, start=1)
    )
    if all(text is None for text in texts):
        raise CcrankError(f"{where} contains no items: there is no text in column {name!r}")
    return Rows(
        texts,
        tuple(table.columns),
        table.records,
        item_column,
        id_column,
        table.blank,
        format,
        table.separator,
        table.source,
    )


def _plain(texts: Sequence[str], blank: int, format: str, where: str) -> Rows:
    if not texts:
        raise CcrankError(f"{where} contains no items")
    return Rows(tuple(texts), blank=blank, format=format)


def _content(source: str | Path | IO[str] | IO[bytes]) -> tuple[bytes | str, str]:
    if not isinstance(source, (str, Path)):
        return source.read(), str(getattr(source, "name", "the stream"))
    if str(source) == "-":
        return sys.stdin.buffer.read(), "standard input"
    return read_bytes(source), str(source)


def _text(content: bytes | str, where: str) -> str:
    return decode(content, where) if isinstance(content, bytes) else content.removeprefix("\ufeff")


def _bytes(content: bytes | str) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _guess_format(path: str | Path) -> str:
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        raise CcrankError(
            f"{path}: items are read from JSON lines, not from one JSON document; "
            "write one item per line, or give the format jsonl if it is JSON lines"
        )
    if suffix in (".xls", ".ods"):
        raise CcrankError(f"{path}: {suffix} files are not read; save it as .xlsx or .csv")
    return FORMAT_OF_SUFFIX.get(suffix, "lines")


def _without_blanks(lines: Iterable[Any], content: Any) -> tuple[list[Any], int]:
    """The lines with content, and the number of blank ones before the last of them."""
    kept: list[Any] = []
    blank = pending = 0
    for line in lines:
        if content(line):
            kept.append(line)
            blank, pending = blank + pending, 0
        else:
            pending += 1
    return kept, blank


def _read_separated(text: str, separator: str | None, where: str) -> _Table:
    """A CSV or TSV. A comma separates unless the header has none and another separator fits every line."""
    chosen = separator or ","
    try:
        lines = _cells(text, chosen, where)
        failed = None
    except CcrankError as error:
        lines, failed = [], error
    if separator is None and (failed or (lines and len(lines[0][1]) == 1)):
        for other in _OTHER_SEPARATORS:
            found = _fitting(text, other, where)
            if found:
                chosen, lines, failed = other, found, None
                break
    if failed:
        raise failed
    lines, blank = _without_blanks(lines, lambda line: any(cell.strip() for cell in line[1]))
    if not lines:
        raise CcrankError(f"{where} contains no items")
    header = lines[0][1]
    records = []
    for number, cells in lines[1:]:
        if len(cells) > len(header):
            raise CcrankError(
                f"{where}, line {number}: {len(cells)} cells under {len(header)} columns; "
                "put a cell that holds the separator in double quotes"
            )
        records.append((*cells, *[""] * (len(header) - len(cells))))
    if not records:
        raise CcrankError(f"{where} contains no items: it has a header and no rows")
    return _Table(header, records, blank, chosen)


def _fitting(text: str, separator: str, where: str) -> list[tuple[int, list[str]]] | None:
    """The cells, if all lines have the same number of them and more than one."""
    try:
        lines = _cells(text, separator, where)
    except CcrankError:
        return None
    widths = {len(cells) for _, cells in lines if any(cell.strip() for cell in cells)}
    return lines if len(widths) == 1 and widths.pop() > 1 else None


def _cells(text: str, separator: str, where: str) -> list[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row."""
    return list(csv_rows(io.StringIO(text, newline=""), separator, where))


def _read_json(text: str, column: str | None, where: str) -> _Table | Rows:
    """Objects as rows, each key a column; texts alone as a plain list. A text among objects is an item without
    further columns."""
    values: list[tuple[str, Any]] = []
    number = 0
    for number, line, value in json_lines(text, where, WrittenFloat):
        if isinstance(value, (list, bool)):
            raise CcrankError(f"{where}, line {number}: a line is a text or an object, got {quoted(value)}")
        values.append((line, value))
    blank = number - len(values)
    if not any(isinstance(value, dict) for _, value in values):
        if column is not None and values:
            raise CcrankError(f"{where} holds plain texts, which have no field {column!r}; leave it out")
        texts, empty = _without_blanks([item_text(value, where) for _, value in values], bool)
        return _plain(texts, blank + empty, "jsonl", where)
    columns = list(dict.fromkeys(name for _, value in values if isinstance(value, dict) for name in value))
    own = columns[pick_column(columns, column, where)]
    objects = [value if isinstance(value, dict) else {own: value} for _, value in values]
    # Written numbers and their like survive in the lines themselves; a line that is a text becomes an object.
    lines = [line if isinstance(value, dict) else None for line, value in values]
    records = [tuple(one.get(name) for name in columns) for one in objects]
    return _Table(columns, records, blank, source=lines)


def _read_parquet(content: bytes, where: str) -> _Table:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise CcrankError(f"{where} cannot be read as Parquet: {error}; is it whole?") from None
    values = [column.to_pylist() for column in table.columns]
    return _Table(table.column_names, list(zip(*values, strict=True)), source=table)


def _read_sheet(content: bytes, where: str) -> _Table:
    lines, blank = _without_blanks(
        read_excel(content, where), lambda cells: any(cell_text(cell).strip() for cell in cells)
    )
    if len(lines) < 2:
        raise CcrankError(f"{where} contains no items: the first sheet needs a header and rows")
    width = max(place for cells in lines for place, cell in enumerate(cells, start=1) if not is_missing(cell))
    padded = [(*cells, *[None] * (width - len(cells)))[:width] for cells in lines]
    return _Table([cell_text(cell) for cell in padded[0]], padded[1:], blank)
