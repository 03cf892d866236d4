"""Rows of a file in bounded memory: Parquet, CSV, TSV, JSON lines or plain lines, as tables of a few thousand rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError, needs_extra
from ccrank.io.cells import item_text
from ccrank.io.records import (
    READ_ROWS,
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
from ccrank.io.table import pick_column, unique_names
from ccrank.util.text import encodable, quoted

STREAMED = ("lines", "csv", "tsv", "jsonl", "parquet")
ITEM = "item"
"""The name of the column of plain texts."""
_TYPE_ERRORS = (ValueError, TypeError, OverflowError, NotImplementedError)
"""What pyarrow raises for values that no type holds; its own exceptions are of these classes."""


@dataclass(frozen=True)
class Source:
    """A file of rows, one of whose columns has the items."""

    path: Path
    format: str
    """One of `STREAMED`."""
    column: str
    """The column of items."""
    separator: str
    """Between the cells of a CSV."""
    schema: Any
    """The names and types of the columns, as a pyarrow schema."""
    plain: bool = False
    """Whether the file holds texts without columns."""

    def tables(self) -> Iterator[Any]:
        """All rows, as pyarrow tables of the schema, `READ_ROWS` rows or fewer each."""
        if self.format == "parquet":
            for table in parquet_tables(self.content):
                yield table.rename_columns(self.schema.names)
        else:
            for rows in _batches(self._records()):
                yield _table(rows, self)

    def texts(self) -> Iterator[list[str | None]]:
        """The items of all rows, in lists; None where a cell is empty."""
        number = 0
        for values in self._items():
            items = []
            for value in values:
                number += 1
                items.append(item_text(value, f"{self.path}, row {number} of column {self.column!r}"))
            yield items

    @property
    def content(self) -> Content:
        """The file, for reading."""
        return Content(self.path, str(self.path))

    def _items(self) -> Iterator[list[Any]]:
        column = self.schema.names.index(self.column)
        if self.format == "parquet":
            for table in parquet_tables(self.content, self.column):
                with parquet_errors(str(self.path)):
                    values = table.column(0 if table.num_columns == 1 else column).to_pylist()
                yield values
            return
        for rows in _batches(self._records()):
            yield [row.get(self.column) if isinstance(row, dict) else row[column] for row in rows]

    def _records(self) -> Iterator[Any]:
        """Rows: dictionaries of JSON lines with objects, lists of cells of the other formats."""
        content = self.content
        if self.format == "lines":
            yield from ([text] for text in line_items(content) if text is not None)
        elif self.format != "jsonl":
            records = (cells for cells in table_records(content, self.separator) if cells is not None)
            next(records, None)
            yield from records
        elif self.plain:
            texts = (item_text(value, content.where) for _, _, value in json_records(content))
            yield from ([text] for text in texts if text is not None)
        else:
            for _, _, value in json_records(content):
                yield value if isinstance(value, dict) else {self.column: value}


def open_source(path: Path, column: str | None = None, format: str | None = None) -> Source:
    """Open a file for reading in pieces; JSON lines are read once to know their fields and types."""
    with needs_extra("files", "--input"):
        import pyarrow

    if not path.is_file():
        raise CcrankError(
            f"there is no file {path}" if not path.exists() else f"{path} is not a file; --input reads files"
        )
    chosen = format or format_of(path)
    if chosen not in STREAMED:
        raise CcrankError(f"{path}: --input reads {', '.join(STREAMED)}, not {chosen}; give it as --file")
    where = str(path)
    content = Content(path, where)
    if chosen == "parquet":
        schema = parquet_schema(content)
        names = unique_names(schema.names)
        item_column = names[pick_column(schema.names, column, where)]
        fields = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
        return Source(path, chosen, item_column, ",", pyarrow.schema(fields, schema.metadata))
    if chosen == "lines":
        if column is not None:
            raise CcrankError(
                f"{where} is read as plain lines, which have no column {column!r}; give --format"
            )
        return _plain(path, chosen)
    if chosen == "jsonl":
        return _open_json(content, path, column)
    separator = separator_of(content, chosen)
    header = next((cells for cells in table_records(content, separator) if cells is not None), None)
    if header is None:
        raise CcrankError(f"{where} contains no items")
    names = unique_names(map(encodable, header))
    item_column = names[pick_column(header, column, where)]
    return Source(
        path, chosen, item_column, separator, pyarrow.schema([(name, pyarrow.string()) for name in names])
    )


def _plain(path: Path, format: str) -> Source:
    import pyarrow

    return Source(path, format, ITEM, ",", pyarrow.schema([(ITEM, pyarrow.string())]), plain=True)


def _open_json(content: Content, path: Path, column: str | None) -> Source:
    """The fields of all lines, and types that hold their values."""
    import pyarrow

    schema, empty, texts = pyarrow.schema([]), True, False
    for rows in _batches(json_records(content)):
        objects = [value for _, _, value in rows if isinstance(value, dict)]
        empty, texts = False, texts or len(objects) < len(rows)
        for name in dict.fromkeys(name for value in objects for name in value):
            values = [value.get(name) for value in objects]
            try:
                schema = _with_field(schema, name, values)
            except _TYPE_ERRORS as error:
                misfit = objects[_first_misfit(schema, name, values)]
                number = next(number for number, _, value in rows if value is misfit)
                raise CcrankError(
                    f"{path}, line {number}: field {quoted(name)} cannot be written as Parquet, which has one type for "
                    f"each column: {quoted(misfit[name])} does not fit ({str(error).splitlines()[0]})"
                ) from None
    if empty:
        raise CcrankError(f"{path} contains no items")
    if not schema.names and texts:
        if column is not None:
            raise CcrankError(f"{path} holds plain texts, which have no field {column!r}; leave it out")
        return _plain(path, "jsonl")
    item_field = schema.names[pick_column(schema.names, column, str(path))]
    # A column that is empty throughout has no type of its own; items are texts, which keep the digits of numbers.
    fields = [
        part.with_type(pyarrow.string())
        if part.type == pyarrow.null()
        or (part.name == item_field and (texts or pyarrow.types.is_floating(part.type)))
        else part
        for part in schema
    ]
    return Source(path, "jsonl", item_field, ",", pyarrow.schema(fields))


def _with_field(schema: Any, name: str, values: list[Any]) -> Any:
    """The schema, widened so that its field holds these values too."""
    import pyarrow

    field = pyarrow.schema([(encodable(name), pyarrow.array(values).type)])
    return pyarrow.unify_schemas([schema, field], promote_options="permissive")


def _first_misfit(schema: Any, name: str, values: list[Any]) -> int:
    """The index of the first value that fits neither the schema nor the values before it; there must be one."""

    def misfits(count: int) -> bool:
        try:
            _with_field(schema, name, values[:count])
        except _TYPE_ERRORS:
            return True
        return False

    return bisect_left(range(len(values)), True, key=lambda index: misfits(index + 1))


def _batches(records: Iterator[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for record in records:
        batch.append(record)
        if len(batch) == READ_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _table(rows: list[Any], source: Source) -> Any:
    import pyarrow

    if source.format == "jsonl" and not source.plain:
        columns = [[row.get(name) for row in rows] for name in source.schema.names]
        item_column = source.schema.names.index(source.column)
        if source.schema.types[item_column] == pyarrow.string():
            columns[item_column] = [
                value if isinstance(value, str) else item_text(value, str(source.path))
                for value in columns[item_column]
            ]
    else:
        columns = [[encodable(cell) for cell in cells] for cells in zip(*rows, strict=True)]
    arrays = []
    for field, cells in zip(source.schema, columns, strict=True):
        try:
            arrays.append(pyarrow.array(cells, field.type))
        except _TYPE_ERRORS as error:  # such as an integer that is too large for a column with fractions
            raise CcrankError(
                f"{source.path}: field {quoted(field.name)} cannot be written as Parquet, which has one type for each "
                f"column: {str(error).splitlines()[0]}"
            ) from None
    return pyarrow.Table.from_arrays(arrays, schema=source.schema)
