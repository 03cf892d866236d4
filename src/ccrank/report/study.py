"""The report of a study: read its folder, draw its figures, write one page that needs nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ccrank.errors import CcrankError
from ccrank.task import Task

COLUMNS = (
    "dataset", "task", "n_items", "model", "method", "layer", "seed", "split", "tau", "abs_tau", "accuracy",
    "free_accuracy", "chance_abs_tau", "chance_free_accuracy", "consistency", "distinct_tokens", "seconds",
    "directed", "kind", "family", "scores",
)  # fmt: skip
"""The columns of results.parquet."""


@dataclass(frozen=True)
class Study:
    """What a study's folder holds."""

    name: str
    results: pd.DataFrame
    """One row for each task and run, with `COLUMNS`."""
    tasks: Mapping[tuple[str, str], Task]
    """By dataset and id."""
    config: str
    """config.toml as it was written; empty where there is none."""
    environment: Mapping[str, Any]
    failures: list[dict[str, Any]]


def read_study(out_dir: Path) -> Study:
    """The study of a folder; results are required, the rest is shown where it is."""
    folder = Path(out_dir)
    path = folder / "results.parquet"
    if not path.is_file():
        raise CcrankError(f"{folder} has no results.parquet; run `ccrank bench` into it first")
    try:
        results = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise CcrankError(f"cannot read {path}: {error}") from None
    if missing := [name for name in COLUMNS if name not in results.columns]:
        raise CcrankError(f"{path} lacks the columns {missing}; was it written by `ccrank bench`?")
    if results.empty:
        raise CcrankError(f"{path} has no rows; nothing was ranked (see failures.jsonl beside it)")
    for name in ("dataset", "task", "model", "method", "split", "kind", "family"):
        results[name] = results[name].astype(str)
    for name in ("tau", "abs_tau", "accuracy", "free_accuracy", "consistency", "distinct_tokens", "seconds"):
        results[name] = results[name].astype(float)
    results["directed"] = results["directed"].astype(bool)
    return Study(
        name=folder.resolve().name,
        results=results,
        tasks=_read_tasks(folder / "tasks.jsonl"),
        config=_text(folder / "config.toml"),
        environment=_object(folder / "environment.json"),
        failures=[
            value if isinstance(value, dict) else {"failure": value}
            for value in _lines(folder / "failures.jsonl")
        ],
    )


def write_report(out_dir: Path) -> Path:
    """Write report.html, figures/ and summary.csv into a study's folder; returns the path of the page."""
    from ccrank.report.figures import draw_figures
    from ccrank.report.page import render_page
    from ccrank.report.tables import summary

    folder = Path(out_dir)
    study = read_study(folder)
    table = summary(study.results)
    _write(folder / "summary.csv", table.drop(columns="n_items").to_csv(index=False))
    figures = draw_figures(study.results, study.tasks, folder / "figures")
    page = folder / "report.html"
    _write(page, render_page(study, table, figures))
    return page


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(_whole(text).encode())
        os.replace(partial, path)  # noqa: PTH105 - the atomic step, by its usual name
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CcrankError(f"cannot write {path}: {error.strerror or error}") from None


def _read_tasks(path: Path) -> dict[tuple[str, str], Task]:
    tasks = {}
    for number, value in enumerate(_lines(path), start=1):
        try:
            task = Task.parse(value, default_id=f"line-{number}")
        except CcrankError as error:
            raise CcrankError(f"{path}, task {number}: {error}") from None
        tasks[_whole(str(task.about.get("dataset", ""))), _whole(task.id)] = task
    return tasks


def _whole(text: str) -> str:
    """Halves of surrogate pairs, which JSON can hold but UTF-8 cannot, written as escapes, as in the results."""
    return text.encode("utf-8", "backslashreplace").decode()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise CcrankError(f"cannot read {path}: {error.strerror or error}") from None


def _lines(path: Path) -> list[Any]:
    values = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as error:
                raise CcrankError(f"{path}, line {number} is not JSON: {error}") from None
    return values


def _object(path: Path) -> dict[str, Any]:
    text = _text(path)
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CcrankError(f"{path} is not JSON: {error}") from None
    return value if isinstance(value, dict) else {"environment": value}
