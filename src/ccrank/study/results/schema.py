"""Storing results: one tidy table with a row for each task, seed and layer of a model, method and split.

Each unit of a study is one file; a finished study is one table of all units.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccrank.errors import needs_extra
from ccrank.util.files import write_atomically
from ccrank.util.text import encodable

with needs_extra("report", "a study"):
    import pyarrow as pa
    import pyarrow.parquet as pq

_FAILURES_KEY = b"ccrank.failures"

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("task", pa.string()),
        ("n_items", pa.int32()),
        ("model", pa.string()),
        ("method", pa.string()),
        ("layer", pa.int32()),  # −1 for methods without layers
        ("seed", pa.int32()),
        ("split", pa.string()),  # none, single, same-task, leave-one-out, across-tasks, across-items
        ("fold", pa.int32()),  # of across-…: the fold in which the task was held out; else −1
        ("tau", pa.float64()),  # NaN, like the next three, for tasks without gold
        ("abs_tau", pa.float64()),
        ("accuracy", pa.float64()),
        ("free_accuracy", pa.float64()),
        ("chance_abs_tau", pa.float64()),
        ("chance_free_accuracy", pa.float64()),
        ("pair_accuracy", pa.float64()),  # of the single pairwise answers; NaN for methods without them
        ("free_pair_accuracy", pa.float64()),
        ("chance_free_pair_accuracy", pa.float64()),
        ("consistency", pa.float64()),  # the method's consistency measure (`Method.consistency`), or NaN
        ("distinct_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("directed", pa.bool_()),
        ("kind", pa.string()),  # facts, context, other
        ("family", pa.string()),  # label-free, prompting, probing, supervised, baseline
        ("scores", pa.list_(pa.float64())),  # aligned with the task's items
    ]
)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of the schema."""
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    columns["task"] = [encodable(text) for text in columns["task"]]
    return pa.table(columns, schema=SCHEMA)


def save_unit(path: Path, rows: Sequence[Mapping[str, Any]], failures: Mapping[str, str]) -> None:
    """Store a unit's rows, with its failures (task → reason) in the same file."""
    _write_table(path, table_of(rows).replace_schema_metadata({_FAILURES_KEY: json.dumps(dict(failures))}))


def unit_failures(path: Path) -> dict[str, str] | None:
    """The failures that a unit's file records; None if the file is missing or damaged."""
    try:
        metadata = pq.read_schema(path.absolute()).metadata or {}
    except (FileNotFoundError, pa.ArrowException, OSError):
        return None
    failures: dict[str, str] | None = (
        json.loads(metadata[_FAILURES_KEY]) if _FAILURES_KEY in metadata else None
    )
    return failures


def unit_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a unit's file."""
    rows: list[dict[str, Any]] = pq.read_table(path.absolute(), schema=SCHEMA).to_pylist()
    return rows


def join_units(paths: Sequence[Path], target: Path) -> int:
    """Write one table of all units, in their order; returns its number of rows."""
    table = pa.concat_tables(
        [pq.read_table(path.absolute(), schema=SCHEMA) for path in paths] or [table_of([])]
    )
    _write_table(target, table.replace_schema_metadata(None).combine_chunks())
    return int(table.num_rows)


def _write_table(path: Path, table: pa.Table) -> None:
    write_atomically(path, lambda partial: pq.write_table(table, partial, compression="zstd"), sync=True)
