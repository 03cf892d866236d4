"""The results of a study: one tidy table, one row for each task, seed and layer of a model, method and split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ccrank.errors import CcrankError
from ccrank.task import Task

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("task", pa.string()),
        ("n_items", pa.int32()),
        ("model", pa.string()),
        ("method", pa.string()),
        ("layer", pa.int32()),  # −1 where a method has none
        ("seed", pa.int32()),
        ("split", pa.string()),  # none, same-task, leave-one-out, across-tasks
        ("tau", pa.float64()),  # NaN, like the next three, for a task without gold
        ("abs_tau", pa.float64()),
        ("accuracy", pa.float64()),
        ("free_accuracy", pa.float64()),
        ("chance_abs_tau", pa.float64()),
        ("chance_free_accuracy", pa.float64()),
        ("consistency", pa.float64()),  # both_orders_agree, shuffles_agree or seeds_agree; else NaN
        ("distinct_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("directed", pa.bool_()),
        ("kind", pa.string()),  # facts, context, other
        ("family", pa.string()),  # prompting, probing, supervised, baseline, other
        ("scores", pa.list_(pa.float64())),  # aligned with the task's items
    ]
)
RESULTS, TASKS, UNITS, FAILURES = "results.parquet", "tasks.jsonl", "units", "failures.jsonl"


def load_results(folder: str | Path) -> pd.DataFrame:
    """The results of a study's folder, as a pandas DataFrame; of a study that is not done, what there is so far."""
    folder = Path(folder)
    if folder.is_file() and folder.suffix == ".parquet":
        folder = folder.parent
    whole = folder / RESULTS
    paths = [whole] if whole.exists() else sorted((folder / UNITS).glob("*.parquet"))
    if not paths:
        raise CcrankError(
            f"{folder} holds no results: neither {RESULTS} nor units of a study; run `ccrank bench --out {folder}`"
        )
    try:
        table = pa.concat_tables([pq.read_table(path, schema=SCHEMA) for path in paths])
    except (pa.ArrowException, OSError) as error:
        raise CcrankError(f"the results in {folder} cannot be read: {error}") from None
    frame: pd.DataFrame = table.to_pandas(split_blocks=True)
    return frame


def load_tasks(folder: str | Path) -> dict[tuple[str, str], Task]:
    """The tasks of a study by (dataset, id)."""
    path = Path(folder) / TASKS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CcrankError(f"cannot read {path}: {error.strerror or error}") from None
    tasks = [Task.parse(json.loads(line)) for line in lines]
    return {(str(task.about["dataset"]), plain_text(task.id)): task for task in tasks}


def load_failures(folder: str | Path) -> list[dict[str, Any]]:
    """What went wrong in a study: model, dataset, method, split, task (None for a whole unit), reason."""
    path = Path(folder) / FAILURES
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the schema."""
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    columns["task"] = [plain_text(text) for text in columns["task"]]
    return pa.table(columns, schema=SCHEMA)


def plain_text(text: str) -> str:
    """A text with halves of surrogate pairs, which JSON can hold but UTF-8 cannot, written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
