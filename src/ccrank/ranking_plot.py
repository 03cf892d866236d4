"""Items on the latent scale of their scores, as in the paper's figure on interpretability."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ccrank.errors import CcrankError, needs_extra
from ccrank.util.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ccrank.ranking import Ranking

MAX_ITEMS = 1000
"""A longer list would exceed the maximal height of PNG images."""

NORMAL_80 = 1.2816
"""Standard deviations on either side of the mean that hold 80 % of a normal distribution."""

# Matplotlib's default font covers Latin, Greek, Cyrillic, Arabic and Hebrew; installed fonts cover the rest.
MORE_FONTS = (
    "Noto Sans, Noto Sans CJK JP, Noto Sans Devanagari, Noto Emoji, Arial Unicode MS, Segoe UI Symbol, Segoe UI Emoji, "
    "Microsoft YaHei, PingFang SC"
)


def check_matplotlib() -> None:
    """Raise an error with the install line if there is no matplotlib."""
    with needs_extra("plot", "a plot"):
        import matplotlib  # noqa: F401


def plot_scale(ranking: Ranking, path: Path) -> Figure:
    """Draw a ranking into a file; the suffix decides the format (.png, .pdf, .svg)."""
    figure = scale_figure(ranking)
    try:
        with warnings.catch_warnings():
            # A character without a font is drawn as a box; no warning is needed.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(path, dpi=160)
    except (OSError, ValueError) as error:
        raise CcrankError(f"cannot draw {path}: {error}") from None
    return figure


def scale_figure(ranking: Ranking) -> Figure:
    """One dot per item at its score, best at the top, shaded by gold rank and with 80 % intervals, if known."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if len(ranking.scores) > MAX_ITEMS:
        raise CcrankError(f"a plot can show up to {MAX_ITEMS} items, got {len(ranking.scores)}")
    order = ranking.order[::-1]
    scores = np.asarray([ranking.scores[index] for index in order])
    names = [one_line(ranking.task.items[index], 40) for index in order]
    # Dollar signs in user text are not maths.
    words: dict[str, Any] = {"parse_math": False, "fontfamily": _fonts()}
    figure = Figure(figsize=(6.4, 1.1 + 0.3 * len(order)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.hlines(range(len(order)), scores.min(), scores, color="0.85", linewidth=1.5, zorder=1)
    if ranking.uncertainty is not None:
        spread = NORMAL_80 * np.asarray([ranking.uncertainty.deviation[index] for index in order])
        axes.errorbar(
            scores, range(len(order)), xerr=spread, fmt="none", ecolor="0.45", capsize=2.5, zorder=1.5
        )
    gold = ranking.task.values
    if gold is not None:
        ranks = np.argsort(np.argsort([gold[index] for index in order]))
        points = axes.scatter(
            scores, range(len(order)), c=ranks, cmap="cividis", s=48, zorder=2, edgecolor="0.2"
        )
        bar = figure.colorbar(points, ax=axes, ticks=[0, len(order) - 1], aspect=30)
        bar.ax.set_yticklabels(["lowest", "highest"])
        bar.set_label("gold rank", labelpad=-20)
    else:
        axes.scatter(scores, range(len(order)), c="tab:blue", s=48, zorder=2)
    axes.set_yticks(range(len(order)), names, **words)
    axes.set_ylim(-0.7, len(order) - 0.3)
    # On the figure, not the axes: long names shift the axes to the right and would move the text out of the image.
    source = f"score by {ranking.method} ({one_line(ranking.model, 40, keep_end=True)})"
    figure.supxlabel(source, fontsize=10, **words)
    title = f"by {one_line(ranking.task.criterion.name, 44)}"
    title += "" if ranking.directed else ", direction unknown"
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=11, **words)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in MORE_FONTS.split(", ") if name in installed)]
