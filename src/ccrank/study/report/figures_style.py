"""The common style of the figures: colours and hatches of families, panels, non-overlapping labels, files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import product
from typing import Any, TypeVar, cast

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.optimize import isotonic_regression

from ccrank.ranking_plot import _fonts
from ccrank.study.results.summary import FAMILIES
from ccrank.util.text import one_line

TEXT_WIDTH = 7.1
"""The text width of a two-column page, in inches."""
CHANCE_COLOUR = "#efdcd0"
CHANCE_LINE = "#b98b6e"
CEILING_COLOUR = "#c95a00"
GRID_COLOUR = "0.9"

_LOOK: dict[Any, Any] = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,
    # Fixed, so that the same study gives the same bytes.
    "svg.hashsalt": "ccrank",
}


@dataclass(frozen=True, slots=True)
class FamilyLook:
    """The style of a family of methods. Families differ in lightness and hatch, not only in colour."""

    colour: str
    hatch: str
    marker: str

    def point(self, size: float) -> dict[str, Any]:
        """The style of a point in a plot."""
        return {"marker": self.marker, "ms": size, "mfc": self.colour, "mec": "0.15", "mew": 0.5, "ls": ""}


FAMILY_LOOKS: Mapping[str, FamilyLook] = {
    "prompting": FamilyLook("#08519c", "", "o"),
    "probing": FamilyLook("#2a9d78", "////", "s"),
    "label-free": FamilyLook("#a8459b", "....", "P"),
    "supervised": FamilyLook("#f0a03c", "xxxx", "^"),
    "baseline": FamilyLook("#cfcfcf", "", "D"),
}


def look_of(family: str) -> FamilyLook:
    """The style of a family; an unknown one looks like label-free methods."""
    return FAMILY_LOOKS.get(family, FAMILY_LOOKS["label-free"])


Draw = TypeVar("Draw", bound=Callable[..., Any])


def drawn(function: Draw) -> Draw:
    """Decorator: run a figure function with the common style, then compute its layout."""

    @wraps(function)
    def inner(*arguments: Any, **options: Any) -> Any:
        with common_look():
            figure = function(*arguments, **options)
            if figure is not None:
                # Compute the layout once, not for each file.
                figure.draw_without_rendering()
                figure.set_layout_engine("none")
            return figure

    return inner  # type: ignore[return-value]


@contextmanager
def common_look() -> Iterator[None]:
    """Apply the common style within the context."""
    with matplotlib.rc_context({**_LOOK, "font.family": _fonts()}), warnings.catch_warnings():
        # A character without a font is drawn as a box; no warning is needed.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure of the text width with (rows, columns) axes."""
    figure = Figure(figsize=(TEXT_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.flat:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_axisbelow(True)
    return figure, grid


@dataclass(frozen=True, slots=True)
class Panel:
    """The axes of one model and one name, such as a dataset, in a grid."""

    axes: Axes
    model: str
    name: Any
    right: bool
    """The last panel of its line."""
    last_line: bool
    """There is no panel of the same model below."""
    bottom: bool
    """There is no panel below."""


def panels_by_model(
    models: Sequence[str],
    names: Sequence[Any],
    across: int,
    heights: tuple[float, float],
    labels: tuple[str, str] = ("", ""),
    **options: Any,
) -> tuple[Figure, list[Panel]]:
    """A panel for each model and name: the names of a model are in even lines of up to `across`.

    `heights`: of the rest of the figure and of one line of panels, in inches. `labels`: of the axes at the bottom and
    at the left.
    """
    lines = -(-len(names) // across)
    across = -(-len(names) // lines)  # seven are four and three, not six and one
    rest, line_height = heights
    figure, grid = panels(lines * len(models), across, rest + line_height * lines * len(models), **options)
    for axes in grid.flat:
        axes.set_visible(False)
    made = []
    for (number, model), (index, name) in product(enumerate(models), enumerate(names)):
        line, column = divmod(index, across)
        axes = grid[number * lines + line, column]
        axes.set_visible(True)
        right = column == across - 1 or index == len(names) - 1
        last_line = index + across >= len(names)
        bottom = last_line and (line < lines - 1 or number == len(models) - 1)
        axes.set_xlabel(labels[0] if bottom else "")
        axes.set_ylabel(labels[1] if column == 0 else "")
        made.append(Panel(axes, model, name, right, last_line, bottom))
    return figure, made


def title(axes: Axes, text: str) -> None:
    """A left-aligned title; dollar signs in names are not parsed as maths."""
    axes.set_title(one_line(text, 44), loc="left", parse_math=False)


def side_title(axes: Axes, text: str) -> None:
    """A label to the right of a row of panels, cut to their minimal height."""
    figure = cast(Figure, axes.figure)
    rows = {panel.get_position().y0 for panel in figure.axes}
    height = 72 * (figure.get_figheight() - 0.75) / len(rows) - 36
    axes.annotate(
        one_line(text, max(6, int(height / 5.5)), keep_end=True), (1.03, 0.5), xycoords="axes fraction", rotation=-90,
        va="center", ha="left", fontsize=8, fontweight="bold", parse_math=False,
    )  # fmt: skip


def legend(figure: Figure, handles: Sequence[Patch | Line2D], columns: int = 6) -> None:
    """One legend below all panels."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns, handlelength=1.8)


def families_in(table: pd.DataFrame) -> list[str]:
    """The families of a table's methods, in the order of `FAMILIES`."""
    return [family for family in FAMILIES if (table["family"] == family).any()]


def family_markers(table: pd.DataFrame) -> list[Patch | Line2D]:
    """Legend entries of points."""
    return [Line2D([], [], label=family, **look_of(family).point(5)) for family in families_in(table)]


def chance_patch() -> Patch:
    """Legend entry of the chance band."""
    return Patch(facecolor=CHANCE_COLOUR, label="chance: mean and 95 % interval")


def chance_level(axes: Axes, level: float) -> None:
    """A horizontal line at a chance level."""
    axes.axhline(level, color=CHANCE_LINE, lw=0.9, zorder=0.5)


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move positions as little as possible so that neighbours are at least `gap` apart; their order is kept.

    >>> spread([0.0, 0.0, 5.0], 1.0)
    [-0.5, 0.5, 5.0]
    """
    order = np.argsort(positions, kind="stable")
    offsets = gap * np.arange(len(positions))
    moved = np.empty(len(positions))
    # The distances beyond the gap must not be negative: an isotonic regression of the positions less the gaps.
    moved[order] = isotonic_regression(np.asarray(positions, dtype=float)[order] - offsets).x + offsets
    return moved.tolist()


def image_bytes(figure: Figure, form: str, dpi: int = 200) -> bytes:
    """The figure as png, pdf or svg; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    # No program and no date, so that the bytes are the same.
    undated = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
    with common_look():
        figure.savefig(buffer, format=form, dpi=dpi, metadata={undated[form]: None})
    return buffer.getvalue()
