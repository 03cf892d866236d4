"""Frames of pandas and polars as rows, and back. Neither library is imported: a frame brings its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ccrank.errors import CcrankError, check_kind, needs_extra
from ccrank.io.cells import item_text
from ccrank.io.ranked import RankedRows
from ccrank.io.table import Rows, pick_column


def rows_of_items(items: Iterable[Any], column: Any | None = None) -> Rows:
    """Rows of a pandas or polars frame, or of a list of texts, which may repeat."""
    if isinstance(items, str):
        raise CcrankError(f"items must be a list of texts, not one text: {items[:40]!r}")
    if _library_of(items) is not None:
        return _rows_of_frame(items, column)
    if column is not None:
        raise CcrankError(
            f"column {column!r} belongs to a pandas or polars frame, got {type(items).__name__}; leave it out"
        )
    check_kind("items", items, Iterable, "a list of texts, or a frame")
    texts: list[str] = []
    for position, text in enumerate(items, start=1):
        if not isinstance(text, str):
            raise CcrankError(f"item {position} is not text: {text!r:.60}")
        if item_text(text, "") is None:
            raise CcrankError(f"item {position} is empty: {text!r}")
        texts.append(text)
    return Rows(tuple(texts))


def _library_of(items: Any) -> str | None:
    library = type(items).__module__.partition(".")[0]
    name = type(items).__name__
    if library == "polars" and name == "LazyFrame":
        raise CcrankError("items is a LazyFrame; call its collect() first")
    known = library in ("pandas", "polars") or any(
        base.__module__.startswith("pandas.") and base.__name__ == "DataFrame" for base in type(items).__mro__
    )
    return (library if library == "polars" else "pandas") if known and hasattr(items, "columns") else None


def _rows_of_frame(frame: Any, column: Any) -> Rows:
    columns = tuple(frame.columns)
    where = "the frame"
    place = pick_column(columns, column, where)
    values = _cells(frame, place)
    texts = tuple(
        item_text(value, f"{where}, row {number} of column {columns[place]!r}")
        for number, value in enumerate(values, start=1)
    )
    if all(text is None for text in texts):
        raise CcrankError(f"{where} contains no items: there is no text in column {columns[place]!r}")
    return Rows(texts, columns, item_column=place, format="frame", source=frame)


def _cells(frame: Any, place: int) -> list[Any]:
    return list(
        frame[:, place].to_list() if _library_of(frame) == "polars" else frame.iloc[:, place].tolist()
    )


def cells_of(rows: Rows, place: int) -> list[Any]:
    """The cells of a column, one for each row."""
    return _cells(rows.source, place) if rows.format == "frame" else [one[place] for one in rows.records]


def rows_at(rows: Rows, places: Sequence[int]) -> Rows:
    """Some of the rows of a table, as a table."""
    own = replace(rows, texts=tuple(rows.texts[row] for row in places), blank=0)
    if rows.format != "frame":
        return replace(own, records=[rows.records[row] for row in places], format="", source=None)
    frame, chosen = rows.source, list(places)
    return replace(own, source=frame[chosen] if _library_of(frame) == "polars" else frame.iloc[chosen])


def frame_of(ranked: RankedRows) -> Any:
    """The rows as a frame of the kind that was given, rank and score added; a pandas frame for anything else."""
    rows = ranked.rows
    if rows.format == "frame" and _library_of(rows.source) == "polars":
        series = type(rows.source.to_series(0))
        added = [series(name, list(values)) for name, values in ranked.added.items()]
        return rows.source[list(ranked.order)].hstack(added)
    with needs_extra("frames", "to_frame()"):
        import pandas as pd

    if rows.format != "frame":
        return pd.DataFrame(ranked.records, columns=pd.Index(ranked.columns))
    frame = rows.source.iloc[list(ranked.order)].copy()
    whole = "int64" if None not in ranked.ranks else "Int64"
    for name, values in ranked.added.items():
        kind = (
            "float64" if isinstance(next((one for one in values if one is not None), 0.0), float) else whole
        )
        frame.insert(len(frame.columns), name, pd.array(list(values), dtype=kind))
    return frame
