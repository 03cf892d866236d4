"""Writing the report of a study: read its folder, draw its figures, write one self-contained page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ccrank.errors import CcrankError
from ccrank.study.report.figures_bars import figure_across, figure_datasets, figure_main
from ccrank.study.report.figures_points import (
    figure_consistency,
    figure_cost,
    figure_layers,
    figure_scales,
)
from ccrank.study.report.figures_style import save_figure
from ccrank.study.report.report_page import render_page
from ccrank.study.results.load import (
    CONFIG,
    FAILURES,
    RESULTS,
    StudyTasks,
    load_environment,
    load_failures,
    load_results,
    load_tasks,
    read_text_file,
)
from ccrank.study.results.tables import GROUP, one_layer, summary, with_intervals
from ccrank.util.files import parse_toml, write_atomically
from ccrank.util.text import encodable

DRAWINGS: dict[str, Callable[[pd.DataFrame, StudyTasks], Figure | None]] = {
    "main": lambda results, tasks: figure_main(results),
    "datasets-tau": lambda results, tasks: figure_datasets(results, "abs_tau"),
    "datasets-accuracy": lambda results, tasks: figure_datasets(results, "free_accuracy"),
    "across-tasks": lambda results, tasks: figure_across(results),
    "scales": figure_scales,
    "layers": lambda results, tasks: figure_layers(results),
    "cost": lambda results, tasks: figure_cost(results),
    "consistency": lambda results, tasks: figure_consistency(results),
}
"""The figures by name, each from results and tasks; None if the study has no data for it."""


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure of a study, with its files by format."""

    name: str
    title: str
    caption: str
    figure: Figure
    files: dict[str, Path]


def draw_figures(results: pd.DataFrame, tasks: StudyTasks, folder: Path) -> list[DrawnFigure]:
    """Draw every figure that the study has data for and write it as PNG, PDF and SVG."""
    texts = parse_toml(resources.files("ccrank.study.report") / "figures.toml")
    band = texts["shared"]["band"]
    bars = texts["shared"]["bars"].format(band=band)
    drawn = []
    for name, draw in DRAWINGS.items():
        if (figure := draw(results, tasks)) is not None:
            about = texts["figures"][name]
            caption = about["caption"].format(band=band, bars=bars)
            drawn.append(
                DrawnFigure(name, about["title"], caption, figure, save_figure(figure, folder, name))
            )
    return drawn


@dataclass(frozen=True)
class StoredStudy:
    """The contents of a study's folder."""

    name: str
    results: pd.DataFrame
    """One row for each task and run, with the columns of `ccrank.study.results.schema.SCHEMA`."""
    tasks: StudyTasks
    config: str
    """The text of config.toml; empty if there is none."""
    environment: Mapping[str, Any]
    failures: list[dict[str, Any]]


def read_study(out_dir: Path) -> StoredStudy:
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
    return StoredStudy(
        name=folder.resolve().name,
        results=results,
        tasks=load_tasks(folder),
        config=read_text_file(folder / CONFIG),
        environment=load_environment(folder),
        failures=load_failures(folder),
    )


def write_report(out_dir: Path) -> Path:
    """Write report.html, figures/ and summary.csv into a study's folder; returns the path of the page."""
    folder = Path(out_dir)
    study = read_study(folder)
    # Hundreds of rows for single layers would take minutes.
    table = with_intervals(summary(study.results), one_layer(study.results), GROUP)
    write_atomically(folder / "summary.csv", encodable(table.drop(columns="n_items").to_csv(index=False)))
    figures = draw_figures(study.results, study.tasks, folder / "figures")
    page = folder / "report.html"
    write_atomically(page, encodable(render_page(study, table, figures)))
    return page
