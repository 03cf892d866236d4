"""The figures of a study: their list, captions and files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ccrank.report.figures_bars import figure_across, figure_datasets, figure_main
from ccrank.report.figures_points import (
    Tasks,
    figure_consistency,
    figure_cost,
    figure_layers,
    figure_scales,
)
from ccrank.report.figures_style import save_figure

_BAND = (
    "The band behind each bar is the chance level of one run over the same tasks: mean and 95 % interval. "
)
_BARS = (
    "Bars show the better of the two directions, mean over seeds; whiskers are one standard deviation over seeds. "
    + _BAND
    + "Dashed marks are supervised probes trained and tested on the same task; a diamond is the signed "
    "value, shown as an arrow to the left if it is off the axis."
)


@dataclass(frozen=True, slots=True)
class FigureKind:
    """A type of figure."""

    name: str
    """The base name of its files."""
    title: str
    caption: str
    draw: Callable[[pd.DataFrame, Tasks], Figure | None]
    """From results and tasks; None if the study has no data for it."""


FIGURES: tuple[FigureKind, ...] = (
    FigureKind(
        "main",
        "Mean results by kind of dataset",
        "Pairwise accuracy and Kendall's |τ| by method and model, with equal weights for datasets. " + _BARS,
        lambda results, tasks: figure_main(results),
    ),
    FigureKind(
        "datasets-tau",
        "Kendall's |τ| for every dataset and method",
        _BARS,
        lambda results, tasks: figure_datasets(results, "abs_tau"),
    ),
    FigureKind(
        "datasets-accuracy",
        "Pairwise accuracy for every dataset and method",
        _BARS,
        lambda results, tasks: figure_datasets(results, "free_accuracy"),
    ),
    FigureKind(
        "across-tasks",
        "Trained on other tasks: label-free probes and their supervised counterparts",
        "Probes are trained on other tasks of the dataset and tested on held-out tasks. "
        "Kendall's |τ|, mean and one standard deviation over seeds. " + _BAND,
        lambda results, tasks: figure_across(results),
    ),
    FigureKind(
        "scales",
        "Items on the latent scale",
        "A typical task of each dataset (of median τ) by the first run of the best directed method without labels. The "
        "shade of a dot is its item's gold rank: a good ranking goes from dark to light. If the method does not "
        "give the direction, the better one is shown.",
        figure_scales,
    ),
    FigureKind(
        "layers",
        "Kendall's τ by layer",
        "|τ| of probes read at several layers; thin dotted lines are the signed τ of directed methods. "
        "Choosing the best layer from this figure would use gold.",
        lambda results, tasks: figure_layers(results),
    ),
    FigureKind(
        "cost",
        "Kendall's |τ| against cost",
        "Cost is the number of distinct tokens that the model reads per task, with shared prefixes counted once; means "
        "over datasets.",
        lambda results, tasks: figure_cost(results),
    ),
    FigureKind(
        "consistency",
        "Are consistent answers right?",
        "Pairwise accuracy against the consistency of a method's own answers, one point per task, all models pooled; "
        "the line connects the means of quintiles of tasks, ρ is Spearman's. Consistency needs no gold: a rising line "
        "means that it predicts which rankings are accurate.",
        lambda results, tasks: figure_consistency(results),
    ),
)


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure of a study, with its files by format."""

    kind: FigureKind
    figure: Figure
    files: dict[str, Path]


def draw_figures(results: pd.DataFrame, tasks: Tasks, folder: Path) -> list[DrawnFigure]:
    """Draw every figure that the study has data for and write it as PNG, PDF and SVG."""
    found = []
    for kind in FIGURES:
        figure = kind.draw(results, tasks)
        if figure is not None:
            found.append(DrawnFigure(kind, figure, save_figure(figure, folder, kind.name)))
    return found
