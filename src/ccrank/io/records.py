"""Files as records, one after the other: one reader for each format, for lists and for files of any length."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ccrank.errors import CcrankError, needs_extra
from ccrank.io.cells import WrittenFloat, item_text
from ccrank.util.files import arrow, csv_rows, encoding_of, json_lines, not_utf8, open_bytes
from ccrank.util.text import quoted

FORMATS = ("lines", "csv", "tsv", "jsonl", "parquet", "xlsx")
"""The formats that are read."""
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
MAX_UNPACKED = 256 << 20
"""Bytes of a workbook's parts, unpacked: a hostile archive of kilobytes can unpack to gigabytes."""
MAX_CELLS = 5_000_000
"""Cells of a sheet, the empty ones between others included: a single cell far to the right or below makes many."""


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

    held: Path | bytes
    """The path of a file, which is read in pieces, or the whole content of a stream."""
    where: str
    """Its name, for error messages."""

    def binary(self) -> AbstractContextManager[IO[bytes]]:
        """The bytes, as a stream."""
        return open_bytes(self.held) if isinstance(self.held, Path) else io.BytesIO(self.held)

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """The lines of text in UTF-8, or in UTF-16 with a byte order mark, without the mark."""
        try:
            with self.binary() as stream:
                encoding = encoding_of(stream.read(2))
                stream.seek(0)
                yield from io.TextIOWrapper(stream, encoding=encoding, newline=newline)
        except UnicodeDecodeError:  # decoding in pieces does not tell the line
            with self.binary() as stream:
                raise not_utf8(stream, self.where) from None


def line_items(content: Content) -> Iterator[str | None]:
    """The item of each line; None for a blank one."""
    return (item_text(line, content.where) for line in content.lines())


def separator_of(content: Content, format: str) -> str:
    """The separator of a CSV or TSV. A comma separates a CSV, unless the header has none and another
    separator fits every line: each then has the same number of cells, more than one.
    """
    if format == "tsv":
        return "\t"
    for separator in (",", ";", "\t", "|"):
        with suppress(CcrankError):  # such as "a";b, which commas do not separate
            rows = csv_rows(content.lines(newline=""), separator, content.where)
            widths = (len(cells) for _, cells in rows if _has_text(cells))
            width = next(widths, 0)
            if width > 1 and (separator == "," or all(other == width for other in widths)):
                return separator
    return ","


def _has_text(cells: Iterable[str]) -> bool:
    return any(cell.strip() for cell in cells)


def table_records(content: Content, separator: str) -> Iterator[list[str] | None]:
    """The header of a CSV or TSV, then its rows, padded to the width of the header; None for a blank line."""
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
    """The rows of a Parquet file, as pyarrow tables of `READ_ROWS` rows or fewer; with `column`, of it alone where its
    name is clear."""
    pyarrow = arrow()
    with _parquet(content) as file:
        # A dot in a name would choose a field of another column.
        alone = column is not None and "." not in column and file.schema_arrow.names.count(column) == 1
        missing = file.metadata.num_rows
        for batch in file.iter_batches(READ_ROWS, columns=[column] if alone else None):
            batch.validate(full=True)  # texts that are not UTF-8 would be written on as they are
            missing -= batch.num_rows
            yield pyarrow.Table.from_batches([batch])
        if missing:  # a damaged page can end a column early without an error
            raise pyarrow.ArrowInvalid(f"{missing} of {file.metadata.num_rows} rows are missing")


@contextmanager
def _parquet(content: Content) -> Iterator[Any]:
    with (
        content.binary() as stream,
        parquet_errors(content.where),
        arrow().parquet.ParquetFile(stream) as file,
    ):
        yield file


@contextmanager
def parquet_errors(where: str) -> Iterator[None]:
    """Turn what pyarrow raises for damaged files, pages and values into a CcrankError."""
    try:
        yield
    except (arrow().ArrowException, OSError, ValueError, OverflowError) as error:
        raise CcrankError(f"{where} cannot be read as Parquet: {error}; is it whole?") from None


def sheet_records(content: Content) -> Iterator[tuple[Any, ...]]:
    """The cells of each row of a workbook's first sheet, through openpyxl; formulas as the values that Excel saved."""
    with needs_extra("excel", "an Excel file"):
        import openpyxl
    where = content.where
    try:
        with content.binary() as stream:
            with zipfile.ZipFile(stream) as archive:
                unpacked = sum(part.file_size for part in archive.infolist())
            if unpacked > MAX_UNPACKED:
                raise CcrankError(
                    f"{where} unpacks to {unpacked >> 20:,} MiB, and at most {MAX_UNPACKED >> 20} are read; save it as "
                    ".csv"
                )
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # some programs write wrong ones
            cells = 0
            for row in sheet.iter_rows(values_only=True):
                cells += 1 + len(row)
                if cells > MAX_CELLS:
                    raise CcrankError(
                        f"{where} has more than {MAX_CELLS:,} cells, empty ones included; save it as .csv"
                    )
                yield row
    except CcrankError:
        raise
    except Exception as error:  # a damaged zip, XML or sheet raises various exceptions
        raise CcrankError(
            f"{where} cannot be read as an Excel file: {error}; is it a whole .xlsx, and without a password?"
        ) from None
