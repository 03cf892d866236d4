"""Storing results: one file for each unit of a study, and one table of all units."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ccrank.files import write_atomically
from ccrank.results.schema import SCHEMA, table_of, with_defaults

_FAILURES_KEY = b"ccrank.failures"


def save_unit(path: Path, rows: Sequence[Mapping[str, Any]], failures: Mapping[str, str]) -> None:
    """Store a unit's rows, with its failures (task → reason) in the same file."""
    table = table_of(rows).replace_schema_metadata({_FAILURES_KEY: json.dumps(dict(failures))})
    _write_table(path, table)


def unit_failures(path: Path) -> dict[str, str] | None:
    """The failures that a unit's file records; None if the file is missing or damaged."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (FileNotFoundError, pa.ArrowException, OSError):
        return None
    found: dict[str, str] | None = json.loads(metadata[_FAILURES_KEY]) if _FAILURES_KEY in metadata else None
    return found


def join_units(paths: Sequence[Path], target: Path) -> int:
    """Write one table of all units, in their order; returns its number of rows."""
    tables = [pq.read_table(path, schema=SCHEMA) for path in paths]
    table = with_defaults(pa.concat_tables(tables)) if tables else table_of([])
    table = table.replace_schema_metadata(None).combine_chunks()
    _write_table(target, table)
    return int(table.num_rows)


def _write_table(path: Path, table: pa.Table) -> None:
    write_atomically(path, lambda partial: pq.write_table(table, partial, compression="zstd"), sync=True)
