"""The files of a study's folder: their names, and loading them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.errors import CcrankError, check_kind, needs_extra
from ccrank.task import Task
from ccrank.util.files import json_lines
from ccrank.util.text import encodable

if TYPE_CHECKING:
    import pandas as pd

RESULTS, TASKS, UNITS, FAILURES = "results.parquet", "tasks.jsonl", "units", "failures.jsonl"
FINGERPRINT, CONFIG, ENVIRONMENT = "fingerprint.json", "config.toml", "environment.json"
DIRECTIONS = "directions"
"""The files of a study's folder."""
STUDY_FILES = (RESULTS, UNITS, DIRECTIONS, FAILURES, ENVIRONMENT, TASKS, CONFIG, FINGERPRINT)
"""Moved aside when another study starts; the fingerprint last, because it marks the rest as the old study's."""
StudyTasks = Mapping[tuple[str, str], Task]
"""The tasks of a study by (dataset, id)."""


def load_results(folder: str | Path) -> pd.DataFrame:
    """The results of a study; for an unfinished study, the results so far.

    Parameters
    ----------
    folder
        The study's folder (`ccrank bench --out`), or a results.parquet in it.

    Returns
    -------
    pandas.DataFrame
        One row for each task, seed and layer of a model, method and split, with the columns of
        `ccrank.study.results.schema.SCHEMA`.
    """
    check_kind("folder", folder, (str, Path), "the folder of a study")
    with needs_extra("report", "load_results"):
        import pandas as pd  # noqa: F401 - pyarrow makes the frame with it
        import pyarrow as pa
        import pyarrow.parquet as pq

        from ccrank.study.results.schema import SCHEMA
    folder = Path(folder)
    try:
        if folder.is_file() and folder.suffix == ".parquet":
            folder = folder.parent
        whole = folder / RESULTS
        paths = [whole] if whole.exists() else sorted((folder / UNITS).glob("*.parquet"))
        if not paths:
            raise CcrankError(
                f"{folder} contains no results: neither {RESULTS} nor units of a study; run "
                f"`ccrank bench --out {folder}`"
            )
        for path in paths:
            if missing := sorted(set(SCHEMA.names) - set(pq.read_schema(path.absolute()).names)):
                raise CcrankError(f"{path} lacks the columns {missing}; it must be written by `ccrank bench`")
        table = pa.concat_tables([pq.read_table(path.absolute(), schema=SCHEMA) for path in paths])
    except (pa.ArrowException, OSError) as error:
        raise CcrankError(f"the results in {folder} cannot be read: {error}") from None
    frame: pd.DataFrame = table.to_pandas(split_blocks=True)
    return frame


def load_studies(folders: Sequence[str | Path]) -> tuple[pd.DataFrame, dict[tuple[str, str], Task]]:
    """The results and the tasks of several studies, joined.

    A model whose results occur twice is called MODEL@FOLDER, so that studies can be compared that differ in an option.
    Studies whose tasks differ under the same name are an error: their means would not be comparable.
    """
    frames = [load_results(folder) for folder in folders]
    tasks: dict[tuple[str, str], Task] = {}
    for folder in folders:
        for key, task in load_tasks(folder).items():
            known = tasks.setdefault(key, task)
            if (known.items, known.values) != (task.items, task.values):
                raise CcrankError(
                    f"task {key[1]!r} of {key[0]} has other items or values in {folder} than in the studies before "
                    "it; run them on the same data"
                )
    if len(frames) == 1:
        return frames[0], tasks
    with needs_extra("report", "load_studies"):
        import pandas as pd

    unit = ["model", "dataset", "method", "split", "layer"]
    units = pd.concat([frame[unit].drop_duplicates() for frame in frames])
    twice = set(units.loc[units.duplicated(), "model"])
    names = [Path(folder).resolve().name for folder in folders]
    labels = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    for frame, label in zip(frames, labels, strict=True):
        frame["model"] = frame["model"].where(~frame["model"].isin(twice), frame["model"] + f"@{label}")
    return pd.concat(frames, ignore_index=True), tasks


def load_tasks(folder: str | Path) -> dict[tuple[str, str], Task]:
    """The tasks of a study by (dataset, id); empty if the folder has no task file."""
    path = Path(folder) / TASKS
    tasks = {}
    for number, _, value in json_lines(read_text_file(path), str(path)):
        try:
            task = Task.parse(value, default_id=f"line-{number}")
        except CcrankError as error:
            raise CcrankError(f"{path}, line {number}: {error}") from None
        tasks[encodable(str(task.about.get("dataset", ""))), encodable(task.id)] = task
    return tasks


def load_failures(folder: str | Path) -> list[dict[str, Any]]:
    """The failures of a study: model, dataset, method, split, task (None for a whole unit), reason."""
    path = Path(folder) / FAILURES
    values = [value for _, _, value in json_lines(read_text_file(path), str(path))]
    return [value if isinstance(value, dict) else {"failure": value} for value in values]


def load_environment(folder: str | Path) -> dict[str, Any]:
    """The environment of a study: versions, machine, models; empty before its first run."""
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
