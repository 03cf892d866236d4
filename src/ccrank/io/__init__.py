"""Rows in, the same rows out with rank and score: CSV, TSV, JSON lines, Parquet, Excel, pandas and polars frames."""

from ccrank.io.cells import cell_text, json_value
from ccrank.io.dataframes import frame_of, rows_of_items
from ccrank.io.reading import read_rows
from ccrank.io.records import FORMAT_OF_SUFFIX, FORMATS
from ccrank.io.table import Entry, RankedRows, Rows, ranked_entries
from ccrank.io.writing import TABLE_FORMATS, encode_rows, encode_table

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
