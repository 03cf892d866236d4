"""Loading the files of a study's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ccrank.errors import CcrankError
from ccrank.results.schema import (
    DEFAULTS,
    ENVIRONMENT,
    FAILURES,
    RESULTS,
    SCHEMA,
    TASKS,
    UNITS,
    with_defaults,
)
from ccrank.task import Task
from ccrank.text import encodable

if TYPE_CHECKING:
    import pandas as pd


def load_results(folder: str | Path) -> pd.DataFrame:
    """The results of a study; for an unfinished study, the results so far.

    Parameters
    ----------
    folder
        The study's folder (`ccrank bench --out`), or a results.parquet in it.

    Returns
    -------
    pandas.DataFrame
        One row for each task, seed and layer of a model, method and split; the columns are in `ccrank.results.SCHEMA`.
    """
    folder = Path(folder)
    if folder.is_file() and folder.suffix == ".parquet":
        folder = folder.parent
    whole = folder / RESULTS
    paths = [whole] if whole.exists() else sorted((folder / UNITS).glob("*.parquet"))
    if not paths:
        raise CcrankError(
            f"{folder} contains no results: neither {RESULTS} nor units of a study; run `ccrank bench --out {folder}`"
        )
    try:
        for path in paths:
            known = {*pq.read_schema(path).names, *DEFAULTS}
            if missing := [name for name in SCHEMA.names if name not in known]:
                raise CcrankError(f"{path} lacks the columns {missing}; it must be written by `ccrank bench`")
        table = with_defaults(pa.concat_tables([pq.read_table(path, schema=SCHEMA) for path in paths]))
    except (pa.ArrowException, OSError) as error:
        raise CcrankError(f"the results in {folder} cannot be read: {error}") from None
    frame: pd.DataFrame = table.to_pandas(split_blocks=True)
    return frame


def load_tasks(folder: str | Path) -> dict[tuple[str, str], Task]:
    """The tasks of a study by (dataset, id); empty if the folder has no task file.

    Parameters
    ----------
    folder
        The study's folder.
    """
    path = Path(folder) / TASKS
    tasks = {}
    for number, value in _json_lines(path):
        try:
            task = Task.parse(value, default_id=f"line-{number}")
        except CcrankError as error:
            raise CcrankError(f"{path}, line {number}: {error}") from None
        tasks[encodable(str(task.about.get("dataset", ""))), encodable(task.id)] = task
    return tasks


def load_failures(folder: str | Path) -> list[dict[str, Any]]:
    """The failures of a study: model, dataset, method, split, task (None for a whole unit), reason.

    Parameters
    ----------
    folder
        The study's folder.
    """
    return [
        value if isinstance(value, dict) else {"failure": value}
        for _, value in _json_lines(Path(folder) / FAILURES)
    ]


def load_environment(folder: str | Path) -> dict[str, Any]:
    """The environment of a study: versions, machine, models; empty before its first run.

    Parameters
    ----------
    folder
        The study's folder.
    """
    path = Path(folder) / ENVIRONMENT
    text = read_text_file(path)
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CcrankError(f"{path} is not JSON: {error}") from None
    return value if isinstance(value, dict) else {"environment": value}


def read_text_file(path: Path) -> str:
    """The text of a file; empty if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise CcrankError(f"cannot read {path}: {error.strerror or error}") from None


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(read_text_file(path).split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise CcrankError(f"{path}, line {number} is not JSON: {error}") from None
