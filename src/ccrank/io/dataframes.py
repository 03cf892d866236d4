"""Frames of pandas and polars as rows, and back. Neither library is imported: a frame brings its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ccrank.errors import CcrankError, check_kind, needs_extra
from ccrank.io.cells import item_text
from ccrank.io.table import RankedRows, Rows, pick_column


def rows_of_items(items: Iterable[Any], column: Any | None = None) -> Rows:
    """Rows of a pandas or polars frame, or of a list of texts, which may repeat."""
    if isinstance(items, str):
        raise CcrankError(f"items must be a list of texts, not one text: {items[:40]!r}")
    if _is_polars(items) and type(items).__name__ == "LazyFrame":
        raise CcrankError("items is a LazyFrame; call its collect() first")
    if hasattr(items, "columns") and (_is_polars(items) or _is_pandas(items)):
        return _rows_of_frame(items, column)
    if column is not None:
        raise CcrankError(
            f"column {column!r} belongs to a pandas or polars frame, got {type(items).__name__}; leave it out"
        )
    check_kind("items", items, Iterable, "a list of texts, or a frame")
    texts = tuple(items)
    for position, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise CcrankError(f"item {position} is not text: {text!r:.60}")
        if item_text(text, "") is None:
            raise CcrankError(f"item {position} is empty: {text!r}")
    return Rows(texts)


def _is_polars(items: Any) -> bool:
    return type(items).__module__.partition(".")[0] == "polars"


def _is_pandas(items: Any) -> bool:
    """Whether it is a frame of pandas, or of a class made of one."""
    return any(base.__module__.partition(".")[0] == "pandas" for base in type(items).__mro__)


def _rows_of_frame(frame: Any, column: Any) -> Rows:
    columns = tuple(frame.columns)
    index = pick_column(columns, column, "the frame")
    texts = tuple(
        item_text(value, f"the frame, row {number} of column {columns[index]!r}")
        for number, value in enumerate(_cells(frame, index), start=1)
    )
    if all(text is None for text in texts):
        raise CcrankError(f"the frame contains no items: there is no text in column {columns[index]!r}")
    return Rows(texts, columns, item_column=index, format="frame", source=frame)


def _cells(frame: Any, column: int) -> list[Any]:
    return list(frame[:, column].to_list() if _is_polars(frame) else frame.iloc[:, column].tolist())


def cells_of(rows: Rows, column: int) -> list[Any]:
    """The cells of a column, one for each row."""
    return _cells(rows.source, column) if rows.format == "frame" else [row[column] for row in rows.records]


def rows_at(rows: Rows, indices: Sequence[int]) -> Rows:
    """Some of the rows of a table, as a table."""
    chosen = replace(rows, texts=tuple(rows.texts[row] for row in indices), blank=0)
    if rows.format != "frame":
        return replace(chosen, records=[rows.records[row] for row in indices], format="", source=None)
    return replace(chosen, source=(rows.source if _is_polars(rows.source) else rows.source.iloc)[[*indices]])


def frame_of(ranked: RankedRows) -> Any:
    """The rows as a frame of the kind that was given, rank and score added; a pandas frame for anything else."""
    rows = ranked.rows
    if rows.format == "frame" and _is_polars(rows.source):
        series = type(rows.source.to_series(0))
        added = [series(name, values) for name, values in ranked.added.items()]
        return rows.source[list(ranked.order)].hstack(added)
    with needs_extra("frames", "to_frame()"):
        import pandas as pd

    if rows.format != "frame":
        return pd.DataFrame(ranked.records, columns=pd.Index(ranked.columns))
    frame = rows.source.iloc[list(ranked.order)].copy()
    for name, values in ranked.added.items():
        whole = any(isinstance(value, int) for value in values)
        kind = "float64" if not whole else "Int64" if None in values else "int64"
        frame.insert(len(frame.columns), name, pd.array(values, dtype=kind))
    return frame
