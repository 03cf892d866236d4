"""The results of a study: one tidy table, one row for each task, seed and layer of a model, method and split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ccrank.text import encodable

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("task", pa.string()),
        ("n_items", pa.int32()),
        ("model", pa.string()),
        ("method", pa.string()),
        ("layer", pa.int32()),  # −1 for methods without layers
        ("seed", pa.int32()),
        ("split", pa.string()),  # none, single, same-task, leave-one-out, across-tasks
        ("fold", pa.int32()),  # of across-tasks: the fold in which the task was held out; else −1
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
PAIR_MEASURES = ("pair_accuracy", "free_pair_accuracy", "chance_free_pair_accuracy")
"""The columns of single pairwise answers."""
DEFAULTS = {"fold": -1, **dict.fromkeys(PAIR_MEASURES, math.nan)}
"""Columns that older studies lack, and their value there."""
RESULTS, TASKS, UNITS, FAILURES = "results.parquet", "tasks.jsonl", "units", "failures.jsonl"
FINGERPRINT, CONFIG, ENVIRONMENT = "fingerprint.json", "config.toml", "environment.json"
"""The files of a study's folder."""


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of the schema."""
    rows = [{**DEFAULTS, **row} for row in rows]
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    columns["task"] = [encodable(text) for text in columns["task"]]
    return pa.table(columns, schema=SCHEMA)


def with_defaults(table: pa.Table) -> pa.Table:
    """The table with the columns of older studies filled in."""
    for name, value in DEFAULTS.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, SCHEMA.field(name), pc.fill_null(table.column(name), value))
    return table
