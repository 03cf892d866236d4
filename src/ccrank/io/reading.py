"""Files to rows: all at once, or in bounded memory. Text formats are read as text, so that "007" stays "007"."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeVar

from ccrank.errors import CcrankError
from ccrank.io.cells import cell_text, is_missing, item_text
from ccrank.io.records import (
    FORMATS,
    READ_ROWS,
    Content,
    format_of,
    json_records,
    line_items,
    parquet_errors,
    parquet_schema,
    parquet_tables,
    separator_of,
    sheet_records,
    table_records,
)
from ccrank.io.table import Rows, pick_column, unique_names
from ccrank.util.files import arrow, read_bytes
from ccrank.util.text import encodable, quoted

STREAMED = FORMATS[:-1]
"""The formats that are read in bounded memory."""
ITEM = "item"
"""The name of the column of plain texts."""
_TYPE_ERRORS = (ValueError, TypeError, OverflowError, NotImplementedError)
"""What pyarrow raises for values that no type holds; its own exceptions are of these classes."""
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
        _refuse_columns(where, chosen, column, id)
        return _plain_rows(line_items(content), 0, chosen, where)
    if chosen == "jsonl":
        rows = _json_rows(content, column)
        if not rows.columns:
            _refuse_columns(where, chosen, column, id)
            return rows
    elif chosen == "parquet":
        rows = _parquet_rows(content)
    else:
        rows = _sheet_rows(content) if chosen == "xlsx" else _separated_rows(content, chosen)
    item_column = pick_column(rows.columns, column, where)
    id_column = None if id is None else pick_column(rows.columns, id, where)
    name = str(rows.columns[item_column])
    texts = tuple(_items((record[item_column] for record in rows.records), where, name))
    if all(text is None for text in texts):
        raise CcrankError(f"{where} contains no items: there is no text in column {name!r}")
    return replace(rows, texts=texts, item_column=item_column, id_column=id_column, format=chosen)


def _content(source: str | Path | IO[str] | IO[bytes]) -> Content:
    """The whole of it, since a pipe can be read only once."""
    if not isinstance(source, (str, Path)):
        content = source.read()
        where = str(getattr(source, "name", "the stream"))
        return Content(encodable(content).encode() if isinstance(content, str) else content, where)
    if str(source) == "-":
        return Content(sys.stdin.buffer.read(), "standard input")
    return Content(read_bytes(source), str(source))


def _refuse_columns(where: str, format: str, *names: str | None) -> None:
    """Raise an error for the first column that is asked of a list of texts."""
    for name in names:
        if name is not None and format == "lines":
            raise CcrankError(
                f"{where} is read as plain lines, which have no column {name!r}; "
                "give the format: csv, tsv, jsonl, parquet or xlsx"
            )
        if name is not None:
            raise CcrankError(f"{where} holds plain texts, which have no field {name!r}; leave it out")


def _items(values: Iterable[Any], where: str, column: str, first: int = 1) -> Iterator[str | None]:
    for number, value in enumerate(values, start=first):
        yield item_text(value, f"{where}, row {number} of column {column!r}")


def _without_blanks(lines: Iterable[Line | None]) -> tuple[list[Line], int]:
    """The lines that are not None, and the number of others before the last of them."""
    every = [*lines]
    while every and every[-1] is None:
        every.pop()
    kept = [line for line in every if line is not None]
    return kept, len(every) - len(kept)


def _plain_rows(texts: Iterable[str | None], blank: int, format: str, where: str) -> Rows:
    items, empty = _without_blanks(texts)
    if not items:
        raise CcrankError(f"{where} contains no items")
    return Rows(tuple(items), blank=blank + empty, format=format)


def _separated_rows(content: Content, format: str) -> Rows:
    separator = separator_of(content, format)
    lines, blank = _without_blanks(table_records(content, separator))
    if len(lines) < 2:
        header = ": it has a header and no rows" if lines else ""
        raise CcrankError(f"{content.where} contains no items{header}")
    return Rows((), tuple(lines[0]), [*map(tuple, lines[1:])], blank=blank, separator=separator)


def _json_rows(content: Content, column: str | None) -> Rows:
    """Objects as rows, each key a column; texts alone as a plain list. A text among objects is an item without
    further columns."""
    values = list(json_records(content))
    blank = values[-1][0] - len(values) if values else 0
    objects = [value for _, _, value in values if isinstance(value, dict)]
    if not objects:
        return _plain_rows(
            (item_text(value, content.where) for _, _, value in values), blank, "jsonl", content.where
        )
    columns = tuple(dict.fromkeys(chain.from_iterable(objects)))
    item_field = columns[pick_column(columns, column, content.where)]
    records = [_cells(value, columns, item_field) for _, _, value in values]
    # Written numbers and their like survive in the lines themselves; a line that is a text becomes an object.
    lines = [line if isinstance(value, dict) else None for _, line, value in values]
    return Rows((), columns, records, blank=blank, source=lines)


def _cells(value: Any, columns: Sequence[str], item_field: str) -> tuple[Any, ...]:
    """The cells of a line of JSON, which is an object or an item alone."""
    return tuple(map((value if isinstance(value, dict) else {item_field: value}).get, columns))


def _parquet_rows(content: Content) -> Rows:
    table = arrow().concat_tables([parquet_schema(content).empty_table(), *parquet_tables(content)])
    with parquet_errors(content.where):
        values = [column.to_pylist() for column in table.columns]
    return Rows((), tuple(table.column_names), list(zip(*values, strict=True)), source=table)


def _sheet_rows(content: Content) -> Rows:
    lines, blank = _without_blanks(
        cells if any(cell_text(cell).strip() for cell in cells) else None for cells in sheet_records(content)
    )
    if len(lines) < 2:
        raise CcrankError(f"{content.where} contains no items: the first sheet needs a header and rows")
    width = max(
        column for cells in lines for column, cell in enumerate(cells, start=1) if not is_missing(cell)
    )
    padded = [(*cells, *[None] * (width - len(cells)))[:width] for cells in lines]
    return Rows((), tuple(map(cell_text, padded[0])), padded[1:], blank=blank)


@dataclass(frozen=True)
class Source:
    """A file of rows, one of whose columns has the items, that is read in bounded memory."""

    path: Path
    format: str
    """One of `STREAMED`."""
    column: str
    """The column of items."""
    schema: Any
    """The names and types of the columns, as a pyarrow schema."""
    separator: str = ","
    """Between the cells of a CSV."""
    plain: bool = False
    """Whether the file holds texts without columns."""

    def tables(self, items_alone: bool = False) -> Iterator[Any]:
        """All rows, as pyarrow tables of `READ_ROWS` rows or fewer; with `items_alone` they have that column alone."""
        content = Content(self.path, str(self.path))
        if self.format == "parquet":
            for table in parquet_tables(content, self.column if items_alone else None):
                names = self.schema.names if table.num_columns == len(self.schema) else [self.column]
                yield table.rename_columns(names)
            return
        fields = [field for field in self.schema if field.name == self.column or not items_alone]
        records = self._records(content)
        while rows := [*islice(records, READ_ROWS)]:
            yield self._table(fields, rows)

    def texts(self) -> Iterator[list[str | None]]:
        """The items of all rows, in lists; None where a cell is empty."""
        first = 1
        for table in self.tables(items_alone=True):
            yield self.items_of(table, first)
            first += table.num_rows

    def items_of(self, table: Any, first: int = 1) -> list[str | None]:
        """The items of a table, whose first row has this number."""
        with parquet_errors(str(self.path)):
            values = table.column(self.column).to_pylist()
        return [*_items(values, str(self.path), self.column, first)]

    def _records(self, content: Content) -> Iterator[Sequence[Any]]:
        """The cells of each row of a text file."""
        if self.format == "jsonl" and not self.plain:
            names = self.schema.names
            return (_cells(value, names, self.column) for _, _, value in json_records(content))
        if self.format in ("csv", "tsv"):
            records = (cells for cells in table_records(content, self.separator) if cells is not None)
            return islice(records, 1, None)
        texts = line_items(content)
        if self.format == "jsonl":
            texts = (item_text(value, content.where) for _, _, value in json_records(content))
        return ((text,) for text in texts if text is not None)

    def _table(self, fields: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Any:
        pyarrow, arrays = arrow(), []
        for field in fields:
            column = self.schema.names.index(field.name)
            cells = [row[column] for row in rows]
            if self.format != "jsonl" or self.plain:
                cells = [*map(encodable, cells)]
            elif field.name == self.column and field.type == pyarrow.string():
                where = str(self.path)
                cells = [cell if isinstance(cell, str) else item_text(cell, where) for cell in cells]
            try:
                arrays.append(pyarrow.array(cells, field.type))
            except _TYPE_ERRORS as error:  # such as an integer that is too large for a column with fractions
                raise CcrankError(f"{self.path}: {_no_type(field.name, error)}") from None
        return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))


def open_source(path: Path, column: str | None = None, format: str | None = None) -> Source:
    """Open a file for reading in pieces; JSON lines are read once to know their fields and types."""
    pyarrow = arrow("--input")
    if not path.is_file():
        raise CcrankError(
            f"there is no file {path}" if not path.exists() else f"{path} is not a file; --input reads files"
        )
    chosen, where = format or format_of(path), str(path)
    if chosen not in STREAMED:
        raise CcrankError(f"{path}: --input reads {', '.join(STREAMED)}, not {chosen}; give it as --file")
    content, separator = Content(path, where), ","
    if chosen == "lines":
        _refuse_columns(where, chosen, column)
        return _plain_source(path, chosen)
    if chosen == "jsonl":
        schema = _json_schema(content, column)
        if schema is None:
            _refuse_columns(where, chosen, column)
            return _plain_source(path, chosen)
    elif chosen == "parquet":
        schema = parquet_schema(content)
    else:
        separator = separator_of(content, chosen)
        header = next(filter(None, table_records(content, separator)), None)
        if header is None:
            raise CcrankError(f"{where} contains no items")
        schema = pyarrow.schema([(encodable(name), pyarrow.string()) for name in header])
    names = unique_names(schema.names)
    item_column = names[pick_column(schema.names, column, where)]
    fields = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
    return Source(path, chosen, item_column, pyarrow.schema(fields, schema.metadata), separator)


def _plain_source(path: Path, format: str) -> Source:
    return Source(path, format, ITEM, arrow().schema([(ITEM, arrow().string())]), plain=True)


def _json_schema(content: Content, column: str | None) -> Any:
    """The fields of all lines, with types that hold their values; None if all are plain texts."""
    pyarrow, count, texts = arrow(), 0, 0
    schema = pyarrow.schema([])
    records = json_records(content)
    while rows := [*islice(records, READ_ROWS)]:
        objects = [(number, value) for number, _, value in rows if isinstance(value, dict)]
        count, texts = count + len(rows), texts + len(rows) - len(objects)
        for name in dict.fromkeys(chain.from_iterable(value for _, value in objects)):
            values = [value.get(name) for _, value in objects]
            try:
                schema = _with_field(schema, name, values)
            except _TYPE_ERRORS as error:
                number, misfit = objects[_first_misfit(schema, name, values)]
                reason = f"{quoted(misfit[name])} does not fit ({str(error).splitlines()[0]})"
                raise CcrankError(f"{content.where}, line {number}: {_no_type(name, reason)}") from None
    if not count:
        raise CcrankError(f"{content.where} contains no items")
    if not schema.names and texts:
        return None
    item_field = pick_column(schema.names, column, content.where)
    # An empty column has no type, so it becomes text; so do items, which keep the digits of numbers.
    for index, field in enumerate(schema):
        of_items = index == item_field and (texts or pyarrow.types.is_floating(field.type))
        if of_items or field.type == pyarrow.null():
            schema = schema.set(index, field.with_type(pyarrow.string()))
    return schema


def _with_field(schema: Any, name: str, values: Sequence[Any]) -> Any:
    """The schema, widened so that its field holds these values too; raises one of `_TYPE_ERRORS` if no type does."""
    pyarrow = arrow()
    field = pyarrow.schema([(encodable(name), pyarrow.array(values).type)])
    return pyarrow.unify_schemas([schema, field], promote_options="permissive")


def _first_misfit(schema: Any, name: str, values: Sequence[Any]) -> int:
    """The index of the first value that fits neither the schema nor the values before it; there must be one."""
    for count in range(1, len(values)):
        try:
            _with_field(schema, name, values[:count])
        except _TYPE_ERRORS:
            return count - 1
    return len(values) - 1


def _no_type(name: str, reason: object) -> str:
    return (
        f"field {quoted(name)} cannot be written as Parquet, which has one type for each column: "
        f"{str(reason).splitlines()[0]}"
    )
