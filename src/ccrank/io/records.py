"""Files as records, one after the other: one reader for each format, for lists and for files of any length."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ccrank.errors import CcrankError, needs_extra
from ccrank.io.cells import WrittenFloat, item_text
from ccrank.util.files import conversion, csv_rows, json_lines, open_bytes
from ccrank.util.text import quoted

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

READ_ROWS = 8192
"""Rows of a Parquet file that are decoded at a time."""
_OTHER_SEPARATORS = (";", "\t", "|")


def format_of(path: str | Path) -> str:
    """The format of a file by the end of its name."""
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        raise CcrankError(
            f"{path}: items are read from JSON lines, not from one JSON document; "
            "write one item per line, or give the format jsonl if it is JSON lines"
        )
    if suffix in (".xls", ".ods"):
        raise CcrankError(f"{path}: {suffix} files are not read; save it as .xlsx or .csv")
    return FORMAT_OF_SUFFIX.get(suffix, "lines")


@dataclass(frozen=True)
class Content:
    """The content of a file or stream, which can be read from its start any number of times."""

    held: Path | bytes | str
    """The path of a file, which is read in pieces, or the whole content of a stream."""
    where: str
    """Its name, for error messages."""

    def binary(self) -> AbstractContextManager[IO[bytes]]:
        """The bytes, as a stream."""
        if isinstance(self.held, Path):
            return open_bytes(self.held)
        return io.BytesIO(self.held if isinstance(self.held, bytes) else self.held.encode())

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """The lines of UTF-8 text, without a byte order mark."""
        if isinstance(self.held, str):
            yield from io.StringIO(self.held.removeprefix("\ufeff"), newline=newline)
            return
        try:
            with self.binary() as stream:
                yield from io.TextIOWrapper(stream, encoding="utf-8-sig", newline=newline)
        except UnicodeDecodeError:
            raise self._not_text() from None

    def _not_text(self) -> CcrankError:
        """The error of a file that is not UTF-8. It is read again, since decoding in pieces does not tell the line."""
        offset = 0
        with self.binary() as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    return CcrankError(
                        f"{self.where} is not UTF-8 text: byte 0x{line[error.start]:02x} at offset "
                        f"{offset + error.start}, in line {number}; {conversion(line if number == 1 else b'')}"
                    )
                offset += len(line)
        return CcrankError(f"{self.where} is not UTF-8 text; {conversion(b'')}")


def line_items(content: Content) -> Iterator[str | None]:
    """The item of each line; None for a blank one."""
    return (item_text(line, content.where) for line in content.lines())


def separator_of(content: Content, format: str) -> str:
    """The separator of a CSV or TSV. A comma separates a CSV, unless the header has none and another
    separator fits every line: each then has the same number of cells, more than one.
    """
    if format == "tsv":
        return "\t"
    try:
        header = next(_filled(content, ","), [])
    except CcrankError:  # such as "a";b
        header = []
    if len(header) < 2:
        for other in _OTHER_SEPARATORS:
            try:
                cells = _filled(content, other)
                width = len(next(cells, []))
                if width > 1 and all(len(one) == width for one in cells):
                    return other
            except CcrankError:
                continue
    return ","


def _filled(content: Content, separator: str) -> Iterator[list[str]]:
    rows = csv_rows(content.lines(newline=""), separator, content.where)
    return (cells for _, cells in rows if _has_text(cells))


def _has_text(cells: Iterable[str]) -> bool:
    return any(cell.strip() for cell in cells)


def table_records(content: Content, separator: str) -> Iterator[list[str] | None]:
    """The header of a CSV or TSV, then as many cells for each row; None for a blank line."""
    width = None
    for number, cells in csv_rows(content.lines(newline=""), separator, content.where):
        if not _has_text(cells):
            yield None
            continue
        width = width or len(cells)
        if len(cells) > width:
            raise CcrankError(
                f"{content.where}, line {number}: {len(cells)} cells under {width} columns; put a cell that holds the "
                "separator in double quotes"
            )
        yield [*cells, *[""] * (width - len(cells))]


def json_records(content: Content) -> Iterator[tuple[int, str, Any]]:
    """(line number, the line, its value) of each line of JSON that is not blank: an object, a text or a number, which
    keeps its digits, or None.
    """
    for number, line, value in json_lines(content.lines(), content.where, WrittenFloat):
        if isinstance(value, (list, bool)):
            raise CcrankError(
                f"{content.where}, line {number}: a line is a text or an object, got {quoted(value)}"
            )
        yield number, line, value


def parquet_schema(content: Content) -> Any:
    """The columns of a Parquet file."""
    with _parquet(content) as file:
        return file.schema_arrow


def parquet_tables(content: Content, column: str | None = None) -> Iterator[Any]:
    """The rows of a Parquet file, as pyarrow tables of `READ_ROWS` rows or fewer."""
    with needs_extra("files", "a Parquet file"):
        import pyarrow

    with _parquet(content) as file:
        # A dot in a name would choose a field of another column.
        alone = column is not None and "." not in column and file.schema_arrow.names.count(column) == 1
        for batch in file.iter_batches(READ_ROWS, columns=[column] if alone else None):
            batch.validate(full=True)  # texts that are not UTF-8 would be written on as they are
            yield pyarrow.Table.from_batches([batch])


@contextmanager
def _parquet(content: Content) -> Iterator[Any]:
    with needs_extra("files", "a Parquet file"):
        from pyarrow import parquet

    with content.binary() as stream, parquet_errors(content.where), parquet.ParquetFile(stream) as file:
        yield file


@contextmanager
def parquet_errors(where: str) -> Iterator[None]:
    """Turn what pyarrow raises for damaged files, pages and values into a CcrankError."""
    with needs_extra("files", "a Parquet file"):
        import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise CcrankError(f"{where} cannot be read as Parquet: {error}; is it whole?") from None
