"""The common style of the figures: colours and hatches of families, panels, non-overlapping labels, files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ccrank.errors import CcrankError
from ccrank.scale_plot import _fonts
from ccrank.text import one_line

TEXT_WIDTH = 7.1
"""The text width of a two-column page, in inches."""
FORMATS = ("png", "pdf", "svg")
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


FAMILY_LOOKS: Mapping[str, FamilyLook] = {
    "prompting": FamilyLook("#08519c", "", "o"),
    "probing": FamilyLook("#2a9d78", "////", "s"),
    "label-free": FamilyLook("#a8459b", "....", "P"),
    "supervised": FamilyLook("#f0a03c", "xxxx", "^"),
    "baseline": FamilyLook("#cfcfcf", "", "D"),
}


def look_of(family: str) -> FamilyLook:
    """The style of a family; that of label-free methods for an unknown one."""
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
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for one in axes.flat:
        bare(one)
    return figure, axes


def bare(axes: Axes) -> None:
    """Remove superfluous axis lines."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)


def title(axes: Axes, text: str, **options: Any) -> None:
    """A left-aligned title; dollar signs in names are not parsed as maths."""
    axes.set_title(one_line(text, 44), loc="left", parse_math=False, **options)


def side_title(axes: Axes, text: str) -> None:
    """A label to the right of a row of panels, cut to their minimal height."""
    figure = cast(Figure, axes.figure)
    rows = {one.get_position().y0 for one in figure.axes}
    height = 72 * (figure.get_figheight() - 0.75) / len(rows) - 36
    axes.annotate(
        one_line(text, max(6, int(height / 5.5)), keep_end=True),
        (1.03, 0.5),
        xycoords="axes fraction",
        rotation=-90,
        va="center",
        ha="left",
        fontsize=8,
        fontweight="bold",
        parse_math=False,
    )


def legend(figure: Figure, handles: Sequence[Patch | Line2D], columns: int = 6) -> None:
    """One legend below all panels."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns, handlelength=1.8)


def family_patches(families: Sequence[str]) -> list[Patch | Line2D]:
    """Legend entries of bars."""
    return [
        Patch(facecolor=look_of(one).colour, hatch=look_of(one).hatch, edgecolor="0.15", lw=0.5, label=one)
        for one in families
    ]


def family_markers(families: Sequence[str]) -> list[Patch | Line2D]:
    """Legend entries of points."""
    return [
        Line2D(
            [],
            [],
            ls="",
            marker=look_of(one).marker,
            ms=5,
            mfc=look_of(one).colour,
            mec="0.15",
            mew=0.5,
            label=one,
        )
        for one in families
    ]


def chance_patch() -> Patch:
    """Legend entry of the chance band."""
    return Patch(facecolor=CHANCE_COLOUR, label="chance: mean and 95 % interval")


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move positions as little as possible so that neighbours are at least `gap` apart; their order is kept.

    >>> spread([0.0, 0.0, 5.0], 1.0)
    [-0.5, 0.5, 5.0]
    """
    order = np.argsort(np.asarray(places), kind="stable")
    # Blocks of (sum of target positions, size), merged while they overlap: pool adjacent violators.
    blocks: list[tuple[float, int]] = []
    for place in np.asarray(places, dtype=float)[order]:
        blocks.append((float(place), 1))
        while len(blocks) > 1:
            (left_sum, left_size), (right_sum, right_size) = blocks[-2:]
            left_end = left_sum / left_size + (left_size - 1) * gap / 2
            right_start = right_sum / right_size - (right_size - 1) * gap / 2
            if right_start - left_end >= gap - 1e-12:
                break
            blocks[-2:] = [(left_sum + right_sum, left_size + right_size)]
    moved = [
        total / size + (number - (size - 1) / 2) * gap for total, size in blocks for number in range(size)
    ]
    result = [0.0] * len(places)
    for index, place in zip(order, moved, strict=True):
        result[index] = place
    return result


def image_bytes(figure: Figure, form: str, dpi: int = 200) -> bytes:
    """The figure in one of `FORMATS`; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    undated: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None},
        "svg": {"Date": None},
    }
    with common_look():
        figure.savefig(buffer, format=form, dpi=dpi, metadata=undated[form])
    return buffer.getvalue()


def save_figure(figure: Figure, folder: Path, name: str) -> dict[str, Path]:
    """Write NAME.png, NAME.pdf and NAME.svg into the folder."""
    paths = {}
    for form in FORMATS:
        path = folder / f"{name}.{form}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image_bytes(figure, form))
        except OSError as error:
            raise CcrankError(f"cannot write {path}: {error.strerror or error}") from None
        paths[form] = path
    return paths
