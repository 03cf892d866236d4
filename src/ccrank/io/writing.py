"""Ranked rows to files: the cells as they were read, with rank and score added."""

from __future__ import annotations

import datetime
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ccrank.errors import CcrankError, needs_extra
from ccrank.io.cells import cell_text, is_missing, json_value
from ccrank.io.table import RankedRows, unique_names
from ccrank.util.files import arrow
from ccrank.util.text import encodable, quoted

TABLE_FORMATS = ("csv", "tsv", "jsonl", "parquet", "xlsx")
"""The formats that `encode_rows` writes."""
MAX_CHARACTERS = 32_767
"""Excel's limit for the text of one cell; openpyxl cuts longer ones without a word."""
MAX_DIGITS = 15
"""Excel keeps numbers as doubles; whole numbers with more digits are written as text, so that none is lost."""
FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")
"""What makes spreadsheet programs run a cell of a CSV as a formula; some take the wide signs of East Asian scripts."""


def encode_rows(ranked: RankedRows, format: str, safe: bool = False) -> bytes:
    """The content of a file with ranked rows. Parquet to Parquet keeps types, JSONL to JSONL the spelling of every
    value, CSV to CSV the separator.
    """
    rows = ranked.rows
    if rows.columns and format == rows.format == "parquet":
        return _parquet_bytes(_extended(ranked))
    if rows.columns and format == rows.format == "jsonl":
        return _joined(_spliced(ranked))
    separator = rows.separator if rows.format == "csv" else ","
    return encode_table(ranked.columns, ranked.records, format, separator, safe)


def encode_table(
    columns: Sequence[Any],
    records: Sequence[Sequence[Any]],
    format: str,
    separator: str = ",",
    safe: bool = False,
) -> bytes:
    """The content of a file with a table."""
    if format in ("csv", "tsv"):
        between = "\t" if format == "tsv" else separator
        return _joined(
            between.join(_quoted_cell(cell, between, safe) for cell in cells) for cells in (columns, *records)
        )
    if format == "xlsx":
        return _excel_bytes(columns, records)
    names = unique_names(columns)
    if format == "jsonl":
        objects = (
            {encodable(name): json_value(cell) for name, cell in zip(names, cells, strict=True)}
            for cells in records
        )
        return _joined(json.dumps(record, ensure_ascii=False) for record in objects)
    if format == "parquet":
        return _parquet_bytes(_arrow_table(names, records))
    raise CcrankError(f"unknown format {format!r}; known are {', '.join(TABLE_FORMATS)}")


def _quoted_cell(value: Any, separator: str, safe: bool) -> str:
    """A cell, in quotes where it needs them. The standard library's writer leaves a lone carriage return without."""
    text = cell_text(value)
    if safe and not isinstance(value, (int, float)) and text.startswith(FORMULA_STARTS):
        text = f"'{text}"
    if any(char in text for char in (separator, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


def _joined(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _spliced(ranked: RankedRows) -> Iterable[str]:
    """The lines as they were written, rank and score put in before the closing brace."""
    rows = ranked.rows
    item_name = rows.columns[rows.item_column]
    for row, *values in zip(ranked.order, *ranked.added.values(), strict=True):
        line = rows.source[row]
        if line is None:  # it was a text, not an object
            line = json.dumps(
                {item_name: json_value(rows.records[row][rows.item_column])}, ensure_ascii=False
            )
        start = line[:-1].rstrip()
        added = json.dumps(dict(zip(ranked.added, values, strict=True)))
        yield f"{start}{'' if start == '{' else ', '}{added[1:]}"


def _extended(ranked: RankedRows) -> Any:
    pyarrow = arrow()
    table = ranked.rows.source.take(pyarrow.array(ranked.order, pyarrow.int64()))
    for index, (name, values) in enumerate(ranked.added.items()):
        # Ranks are integers even where no row has one; other added columns keep their type.
        kind = (pyarrow.int64(), pyarrow.float64())[index] if index < 2 else None
        table = table.append_column(name, pyarrow.array(values, kind))
    return table


def _arrow_table(names: Sequence[str], records: Sequence[Sequence[Any]]) -> Any:
    pyarrow = arrow()
    arrays = []
    for index, name in enumerate(names):
        values = [encodable(cell) if isinstance(cell := record[index], str) else cell for record in records]
        try:
            arrays.append(pyarrow.array(values, from_pandas=True))
        except (pyarrow.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise CcrankError(
                f"column {quoted(name)} cannot be written as Parquet, which has one type for each column: "
                f"{str(error).splitlines()[0]}; write .jsonl or .csv instead"
            ) from None
    return pyarrow.Table.from_arrays(arrays, names=[encodable(name) for name in names])


def _parquet_bytes(table: Any) -> bytes:
    pyarrow, buffer = arrow(), io.BytesIO()
    try:
        pyarrow.parquet.write_table(table, buffer)
        pyarrow.parquet.read_schema(buffer)  # lists nested 50 deep are written, but cannot be read
    except (pyarrow.ArrowException, OSError) as error:
        raise CcrankError(f"the rows cannot be written as Parquet: {error}; write .jsonl instead") from None
    return buffer.getvalue()


def _excel_bytes(columns: Sequence[Any], records: Iterable[Sequence[Any]]) -> bytes:
    """A file with one sheet, through openpyxl: values, no formulas, no formatting."""
    with needs_extra("excel", "an Excel file"):
        import openpyxl
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.utils.exceptions import IllegalCharacterError

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("ranking")

    def cell_of(value: Any, number: int) -> Any:
        other, value = "write .csv, .jsonl or .parquet instead", _excel_value(value)
        if isinstance(value, str) and len(value) > MAX_CHARACTERS:
            raise CcrankError(
                f"row {number} has a cell of {len(value):,} characters, and Excel holds {MAX_CHARACTERS:,}; {other}"
            )
        try:
            cell = WriteOnlyCell(sheet, value=value)
        except IllegalCharacterError:
            raise CcrankError(
                f"row {number} has control characters, which Excel does not hold: {value[:60]!r}; {other}"
            ) from None
        if isinstance(value, str):
            cell.data_type = "s"  # a text that starts with = is not a formula
        return cell

    rows = enumerate([columns, *records], start=1)
    lines = [[cell_of(value, number) for value in cells] for number, cells in rows]
    # Only now that nothing can fail: a sheet that was begun has to be finished.
    for line in lines:
        sheet.append(line)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def _excel_value(value: Any) -> Any:
    if is_missing(value) or value == "":
        return None
    if isinstance(value, int):
        return value if len(str(abs(value))) <= MAX_DIGITS else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, datetime.datetime):
        return cell_text(value) if value.tzinfo else value  # Excel knows no time zones
    if isinstance(value, (datetime.date, datetime.time)):
        return value
    return cell_text(value)
