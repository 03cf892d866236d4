"""Excel files, through openpyxl where it is installed: values in and out, no formulas, no formatting."""

from __future__ import annotations

import datetime
import io
import math
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

from ccrank.errors import CcrankError, needs_extra
from ccrank.io.cells import cell_text, is_missing

MAX_CHARACTERS = 32_767
"""Excel's limit for the text of one cell; openpyxl cuts longer ones without a word."""
MAX_UNPACKED = 256 << 20
"""Bytes of a workbook's parts, unpacked: a hostile archive of kilobytes can unpack to gigabytes."""
MAX_CELLS = 5_000_000
"""Cells of a sheet, the empty ones between others included: a single cell far to the right or below makes many."""
MAX_DIGITS = 15
"""Excel keeps numbers as doubles; whole numbers with more digits are written as text, so that none is lost."""


def read_excel(content: bytes, where: str) -> list[tuple[Any, ...]]:
    """The cells of the first sheet, row by row; formulas as the values that Excel saved for them."""
    with needs_extra("excel", "an Excel file"):
        import openpyxl
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
        if unpacked > MAX_UNPACKED:
            raise CcrankError(
                f"{where} unpacks to {unpacked >> 20:,} MiB, and at most {MAX_UNPACKED >> 20} are read; save it as .csv"
            )
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong ones
        rows, cells = [], 0
        for row in sheet.iter_rows(values_only=True):
            rows.append(row)
            cells += 1 + len(row)
            if cells > MAX_CELLS:
                raise CcrankError(
                    f"{where} has more than {MAX_CELLS:,} cells, empty ones included; save it as .csv"
                )
        return rows
    except CcrankError:
        raise
    except Exception as error:  # a damaged zip, XML or sheet raises various exceptions
        raise CcrankError(
            f"{where} cannot be read as an Excel file: {error}; is it a whole .xlsx, and without a password?"
        ) from None


def excel_bytes(columns: Sequence[Any], records: Iterable[Sequence[Any]]) -> bytes:
    """A file with one sheet."""
    with needs_extra("excel", "an Excel file"):
        import openpyxl
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.utils.exceptions import IllegalCharacterError

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("ranking")
    lines = []
    for number, cells in enumerate([columns, *records], start=1):
        line = []
        for value in map(_excel_value, cells):
            if isinstance(value, str) and len(value) > MAX_CHARACTERS:
                raise CcrankError(
                    f"row {number} has a cell of {len(value):,} characters, and Excel holds {MAX_CHARACTERS:,}; "
                    "write .csv, .jsonl or .parquet instead"
                )
            try:
                cell = WriteOnlyCell(sheet, value=value)
            except IllegalCharacterError:
                raise CcrankError(
                    f"row {number} has control characters, which Excel does not hold: {value[:60]!r}; "
                    "write .csv, .jsonl or .parquet instead"
                ) from None
            if isinstance(value, str):
                cell.data_type = "s"  # a text that starts with = is not a formula
            line.append(cell)
        lines.append(line)
    # Only now that nothing can fail: a sheet that was begun has to be finished.
    for line in lines:
        sheet.append(line)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def _excel_value(value: Any) -> Any:
    if is_missing(value) or value == "":
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if len(str(abs(value))) <= MAX_DIGITS else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, datetime.datetime):
        return cell_text(value) if value.tzinfo else value  # Excel knows no time zones
    if isinstance(value, (datetime.date, datetime.time)):
        return value
    return cell_text(value)
