"""Rows in, the same rows out with rank and score: CSV, TSV, JSON lines, Parquet, Excel, pandas and polars frames."""

from ccrank.rows.cells import cell_text, json_value
from ccrank.rows.frames import frame_of, rows_of_items
from ccrank.rows.ranked import Entry, RankedRows, ranked_entries
from ccrank.rows.reading import FORMAT_OF_SUFFIX, FORMATS, read_rows
from ccrank.rows.table import Rows
from ccrank.rows.writing import TABLE_FORMATS, encode_rows, encode_table

__all__ = [
    "FORMATS",
    "FORMAT_OF_SUFFIX",
    "TABLE_FORMATS",
    "Entry",
    "RankedRows",
    "Rows",
    "cell_text",
    "encode_rows",
    "encode_table",
    "frame_of",
    "json_value",
    "ranked_entries",
    "read_rows",
    "rows_of_items",
]
