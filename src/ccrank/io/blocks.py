"""Rows of a file in bounded memory: Parquet, CSV, TSV, JSON lines or plain lines, as tables of a few thousand rows."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.files import conversion, csv_rows
from ccrank.rows import FORMAT_OF_SUFFIX
from ccrank.rows.cells import item_text
from ccrank.rows.table import pick_column, unique_names
from ccrank.text import encodable, quoted, shortened

READ_ROWS = 8192
"""Rows that are read at a time."""
STREAMED = ("lines", "csv", "tsv", "jsonl", "parquet")
ITEM = "item"
"""The name of the column of plain texts."""
_OTHER_SEPARATORS = (";", "\t", "|")
_TYPE_ERRORS = (ValueError, TypeError, OverflowError, NotImplementedError)
"""What pyarrow raises for values that no type holds; its own exceptions are of these classes."""


@dataclass(frozen=True)
class Source:
    """A file of rows, one of whose columns has the items.

    Parameters
    ----------
    path
        The file.
    format
        One of `STREAMED`.
    column
        The column of items.
    separator
        What stands between the cells of a CSV.
    schema
        The names and types of the columns.
    plain
        Whether the file has texts alone, and no columns.
    """

    path: Path
    format: str
    column: str
    separator: str
    schema: Any
    plain: bool = False

    def tables(self) -> Iterator[Any]:
        """All rows, as pyarrow tables of the schema, `READ_ROWS` rows or fewer each."""
        import pyarrow

        if self.format == "parquet":
            for batch in _parquet(self.path).iter_batches(READ_ROWS):
                yield pyarrow.Table.from_batches([batch])
            return
        for rows in _batches(_records(self)):
            yield _table(rows, self)

    def texts(self) -> Iterator[list[str | None]]:
        """The items of all rows, in lists; None where a cell is empty."""
        number = 0
        for table in self._items():
            found = []
            for value in table:
                number += 1
                found.append(item_text(value, f"{self.path}, row {number} of column {self.column!r}"))
            yield found

    def _items(self) -> Iterator[list[Any]]:
        if self.format == "parquet":
            for batch in _parquet(self.path).iter_batches(READ_ROWS, columns=[self.column]):
                yield batch.column(0).to_pylist()
            return
        place = self.schema.names.index(self.column)
        for rows in _batches(_records(self)):
            yield [row.get(self.column) if isinstance(row, dict) else row[place] for row in rows]


def open_source(path: Path, column: str | None = None, format: str | None = None) -> Source:
    """Open a file for reading in pieces; JSON lines are read once to know their fields and types.

    Parameters
    ----------
    path
        The file.
    column
        The column (or JSON field) of items; it may be left out where there is but one.
    format
        One of `STREAMED`; None goes by the suffix.
    """
    import pyarrow

    if not path.is_file():
        raise CcrankError(
            f"there is no file {path}" if not path.exists() else f"{path} is not a file; --input reads files"
        )
    chosen = format or FORMAT_OF_SUFFIX.get(path.suffix.lower(), "lines")
    if chosen not in STREAMED:
        raise CcrankError(f"{path}: --input reads {', '.join(STREAMED)}, not {chosen}; give it as --file")
    where = str(path)
    if chosen == "parquet":
        schema = _parquet(path).schema_arrow
        return Source(path, chosen, schema.names[pick_column(schema.names, column, where)], ",", schema)
    if chosen == "lines":
        if column is not None:
            raise CcrankError(
                f"{where} is read as plain lines, which have no column {column!r}; give --format"
            )
        return Source(path, chosen, ITEM, ",", pyarrow.schema([(ITEM, pyarrow.string())]), plain=True)
    if chosen == "jsonl":
        return _open_json(path, column)
    separator, header = _header(path, chosen)
    names = unique_names(header)
    own = names[pick_column(header, column, where)]
    return Source(path, chosen, own, separator, pyarrow.schema([(name, pyarrow.string()) for name in names]))


def _parquet(path: Path) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise CcrankError(f"{path} cannot be read as Parquet: {error}; is it whole?") from None


def _header(path: Path, format: str) -> tuple[str, list[str]]:
    """The separator and the header. A comma separates unless the header has none and another separator."""
    separator = "\t" if format == "tsv" else ","
    first = next(_cells(path, separator), None)
    if first is None:
        raise CcrankError(f"{path} contains no items")
    header = first[1]
    if format == "csv" and len(header) == 1:
        for other in _OTHER_SEPARATORS:
            if other in header[0]:
                return other, next(_cells(path, other))[1]
    return separator, header


def _cells(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for number, cells in csv_rows(stream, separator, str(path)):
                if any(cell.strip() for cell in cells):
                    yield number, cells
    except UnicodeDecodeError:
        raise _not_text(path) from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline=None) as stream:
            for number, line in enumerate(stream, start=1):
                if written := line.strip():
                    yield number, written
    except UnicodeDecodeError:
        raise _not_text(path) from None


def _not_text(path: Path) -> CcrankError:
    """The error of a file that is not UTF-8. It is read again, because decoding in pieces does not tell the line."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                remedy = conversion(line if number == 1 else b"")
                return CcrankError(
                    f"{path}, line {number}: not UTF-8 text: byte 0x{line[error.start]:02x}; {remedy}"
                )
    return CcrankError(f"{path} is not UTF-8 text; {conversion(b'')}")


def _records(source: Source) -> Iterator[Any]:
    """Rows: dictionaries of JSON lines, lists of cells of the other formats."""
    if source.format == "jsonl":
        yield from (value for _, value in _objects(source.path, source.column))
    elif source.format == "lines":
        yield from ([line] for _, line in _lines(source.path))
    else:
        width = len(source.schema.names)
        lines = _cells(source.path, source.separator)
        next(lines, None)
        for number, cells in lines:
            if len(cells) > width:
                raise CcrankError(
                    f"{source.path}, line {number}: {len(cells)} cells under {width} columns; put a cell that holds "
                    "the separator in double quotes"
                )
            yield [*cells, *[""] * (width - len(cells))]


def _objects(path: Path, own: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line; a text is an object with the item alone."""
    for number, line in _lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CcrankError(f"{path}, line {number}: not JSON ({error}): {shortened(line)}") from None
        if isinstance(value, (list, bool)) or value is None:
            raise CcrankError(f"{path}, line {number}: a line is a text or an object, got {quoted(value)}")
        yield number, value if isinstance(value, dict) else {own: value}


def _open_json(path: Path, column: str | None) -> Source:
    """The fields of all lines, and types that hold their values."""
    import pyarrow

    schema, plain = pyarrow.schema([]), True
    for rows in _batches(_objects(path, ITEM)):
        objects = [value for _, value in rows]
        plain = plain and all(set(value) == {ITEM} for value in objects)
        names = list(dict.fromkeys(name for value in objects for name in value))
        for name in names:
            values = [value.get(name) for value in objects]
            try:
                schema = _with_field(schema, name, values)
            except _TYPE_ERRORS as error:
                number, value = rows[_first_misfit(schema, name, values)]
                raise CcrankError(
                    f"{path}, line {number}: field {quoted(name)} cannot be written as Parquet, which has one type for "
                    f"each column: {quoted(value[name])} does not fit ({str(error).splitlines()[0]})"
                ) from None
    if not schema.names:
        raise CcrankError(f"{path} contains no items")
    own = schema.names[pick_column(schema.names, column, str(path))]
    # A column that is empty throughout has no type of its own.
    fields = [one if one.type != pyarrow.null() else one.with_type(pyarrow.string()) for one in schema]
    return Source(path, "jsonl", own, ",", pyarrow.schema(fields), plain and own == ITEM)


def _with_field(schema: Any, name: str, values: list[Any]) -> Any:
    """The schema, widened so that its field holds these values too."""
    import pyarrow

    field = pyarrow.schema([(encodable(name), pyarrow.array(values).type)])
    return pyarrow.unify_schemas([schema, field], promote_options="permissive")


def _first_misfit(schema: Any, name: str, values: list[Any]) -> int:
    """The place of the first value that fits neither the schema nor the values before it; one of them must not."""

    def misfits(count: int) -> bool:
        try:
            _with_field(schema, name, values[:count])
        except _TYPE_ERRORS:
            return True
        return False

    return bisect_left(range(len(values)), True, key=lambda place: misfits(place + 1))


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

    if source.format == "jsonl":
        columns = [[row.get(name) for row in rows] for name in source.schema.names]
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
