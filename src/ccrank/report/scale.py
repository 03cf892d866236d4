"""Items on the latent scale of their scores, as in the paper's figure on interpretability."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ccrank.errors import CcrankError
from ccrank.ranking import Ranking


def plot_scale(ranking: Ranking, path: Path) -> None:
    """Draw one dot per item at its score, best on top; gold, where known, is the dot's shade."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    order = ranking.order[::-1]
    scores = np.asarray([ranking.scores[index] for index in order])
    names = [_short(ranking.task.items[index]) for index in order]
    figure = Figure(figsize=(6.4, 1.1 + 0.3 * len(order)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.hlines(range(len(order)), scores.min(), scores, color="0.85", linewidth=1.5, zorder=1)
    gold = ranking.task.values
    if gold is not None:
        places = np.argsort(np.argsort([gold[index] for index in order]))
        points = axes.scatter(
            scores, range(len(order)), c=places, cmap="cividis", s=48, zorder=2, edgecolor="0.2"
        )
        bar = figure.colorbar(points, ax=axes, ticks=[0, len(order) - 1], aspect=30)
        bar.ax.set_yticklabels(["lowest", "highest"])
        bar.set_label("gold rank")
    else:
        axes.scatter(scores, range(len(order)), c="tab:blue", s=48, zorder=2)
    axes.set_yticks(range(len(order)), names)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_xlabel(
        f"score by {ranking.method} ({ranking.model})" + ("" if ranking.directed else ", direction unknown")
    )
    axes.set_title(f"by {ranking.task.criterion.name}", loc="left", fontsize=11)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    try:
        figure.savefig(path, dpi=160)
    except (OSError, ValueError) as error:
        raise CcrankError(f"cannot draw {path}: {error}") from None


def _short(text: str) -> str:
    flat = " ".join(text.split()).replace("$", r"\$")
    return flat if len(flat) <= 40 else flat[:39] + "…"
