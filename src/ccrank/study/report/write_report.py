"""Writing the report of a study: read its folder, draw its figures, write one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.results.load import load_environment, load_failures, load_results, load_tasks, read_text_file
from ccrank.results.schema import CONFIG, FAILURES, RESULTS
from ccrank.task import Task
from ccrank.text import encodable


@dataclass(frozen=True)
class Study:
    """The contents of a study's folder."""

    name: str
    results: pd.DataFrame
    """One row for each task and run, with the columns of `ccrank.results.SCHEMA`."""
    tasks: Mapping[tuple[str, str], Task]
    """By dataset and id."""
    config: str
    """The text of config.toml; empty if there is none."""
    environment: Mapping[str, Any]
    failures: list[dict[str, Any]]


def read_study(out_dir: Path) -> Study:
    """Read the study of a folder; only the results are required."""
    folder = Path(out_dir)
    path = folder / RESULTS
    if not path.is_file():
        raise CcrankError(f"{folder} has no {RESULTS}; run `ccrank bench --out {folder}` first")
    results = load_results(folder)
    if results.empty:
        raise CcrankError(f"{path} has no rows; nothing was ranked (see {FAILURES} in the same folder)")
    for name in ("dataset", "task", "model", "method", "split", "kind", "family"):
        results[name] = results[name].astype(str)
    for name in ("tau", "abs_tau", "accuracy", "free_accuracy", "consistency", "distinct_tokens", "seconds"):
        results[name] = results[name].astype(float)
    results["directed"] = results["directed"].astype(bool)
    return Study(
        name=folder.resolve().name,
        results=results,
        tasks=load_tasks(folder),
        config=read_text_file(folder / CONFIG),
        environment=load_environment(folder),
        failures=load_failures(folder),
    )


def write_report(out_dir: Path) -> Path:
    """Write report.html, figures/ and summary.csv into a study's folder; returns the path of the page."""
    from ccrank.report.figures import draw_figures
    from ccrank.report.page import render_page
    from ccrank.results.tables import summary

    folder = Path(out_dir)
    study = read_study(folder)
    table = summary(study.results)
    write_atomically(folder / "summary.csv", encodable(table.drop(columns="n_items").to_csv(index=False)))
    figures = draw_figures(study.results, study.tasks, folder / "figures")
    page = folder / "report.html"
    write_atomically(page, encodable(render_page(study, table, figures)))
    return page
