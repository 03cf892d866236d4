"""Scatter and line plots: items on the latent scale, layers, cost, and consistency against accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy import stats

from ccrank.study.report import figures_style as style
from ccrank.study.results.load import StudyTasks
from ccrank.study.results.summary import main_setting, method_order, one_layer, summarise
from ccrank.util.text import one_line

MAX_EXAMPLES = 6
MAX_ITEMS_OF_AN_EXAMPLE = 12
MAX_DATASETS_BY_LAYER = 6
MAX_METHODS_OF_CONSISTENCY = 12
MIN_TASKS_OF_CONSISTENCY = 5

_LINE_STYLES = {"supervised": (0, (4, 1.5)), "baseline": (0, (5, 1, 1, 1))}
"""By family; all others are solid."""
OBJECTIVE_COLOURS = ("#08519c", "#e69f00", "#1b9e77", "#c44e00", "#a8459b", "#56b4e9", "#7a5c00", "#d4618c")
"""Of the objectives in the order of their methods; neighbours differ in lightness."""
LABEL_DECADES, SAME_COLUMN_DECADES = 0.6, 0.2
"""The width of a label on the axis of cost, and how close the points of a column of labels are."""
Key = tuple[str, ...]


def example_rows(results: pd.DataFrame, tasks: StudyTasks) -> pd.DataFrame:
    """One row for each dataset: the first run of the best directed label-free method (else of the best method by |τ|)
    on its task of median τ, as a typical example."""
    rows = main_setting(results[results["tau"].notna() & (results["family"] != "supervised")])
    kept = [key in tasks for key in zip(rows["dataset"], rows["task"], strict=True)]
    rows = rows[np.asarray(kept, dtype=bool) & (rows["n_items"] <= MAX_ITEMS_OF_AN_EXAMPLE)]
    chosen = []
    for _, candidates in rows.groupby("dataset", sort=False):
        directed = candidates[candidates["directed"].astype(bool)]
        pool, measure = (directed, "tau") if len(directed) else (candidates, "abs_tau")
        model, method = pool.groupby(["model", "method"], sort=False)[measure].mean().idxmax()
        runs = pool[(pool["model"] == model) & (pool["method"] == method)]
        first = runs[runs["seed"] == runs["seed"].min()].sort_values([measure, "task"], kind="stable")
        chosen.append(first.iloc[(len(first) - 1) // 2])
    return pd.DataFrame(chosen[:MAX_EXAMPLES])


@style.drawn
def figure_scales(results: pd.DataFrame, tasks: StudyTasks) -> Figure | None:
    """Items of a typical task of each dataset at their scores, shaded by gold rank."""
    rows = example_rows(results, tasks)
    if rows.empty:
        return None
    line_height = 0.55 + 0.145 * int(rows["n_items"].max())
    figure, grid = style.panels_by_model([""], list(rows["dataset"]), 3, (0.2, line_height))
    for panel, row in zip(grid, rows.to_dict("records"), strict=True):
        axes = panel.axes
        task = tasks[row["dataset"], row["task"]]
        scores = np.asarray(row["scores"], dtype=float)
        if not row["directed"] and row["tau"] < 0:
            scores = -scores
        order = np.argsort(scores, kind="stable")
        gold = np.argsort(np.argsort(np.asarray(task.values)))[order] / (len(order) - 1)
        axes.hlines(range(len(order)), scores.min(), scores[order], color="0.85", lw=1.0, zorder=1)
        points = axes.scatter(
            scores[order], range(len(order)), c=gold, cmap="cividis", vmin=0, vmax=1, s=26, edgecolor="0.2", lw=0.5,
            zorder=2,
        )  # fmt: skip
        names = [one_line(task.items[index], 20) for index in order]
        axes.set_yticks(range(len(order)), names, parse_math=False)
        # The spacing of items is the same in every panel.
        axes.set_ylim(len(order) - int(rows["n_items"].max()) - 0.7, len(order) - 0.3)
        axes.set_xticks([])
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        sign, value = ("τ", row["tau"]) if row["directed"] else ("|τ|", row["abs_tau"])
        style.title(axes, one_line(f"{one_line(row['dataset'], 18)}, by {task.criterion.name}", 30))
        axes.set_xlabel(f"{one_line(row['method'], 20)} score, {sign} = {value:.2f}", parse_math=False)
    # Below the panels: beside them the bar would reach into the titles.
    position: Any = {"location": "bottom", "aspect": 50, "pad": 0.06, "fraction": 0.03, "shrink": 0.4}
    bar = figure.colorbar(points, ax=figure.axes, ticks=[0, 1], **position)
    bar.ax.set_xticklabels(["lowest", "highest"])
    bar.set_label("gold rank", labelpad=-8)
    return figure


@style.drawn
def figure_layers(results: pd.DataFrame) -> Figure | None:
    """|τ| by layer for the methods read at several layers, and dotted signed τ for directed methods."""
    rows = results[results["tau"].notna() & (results["layer"] >= 0)]
    keys = ["model", "dataset", "method", "split"]
    layers = rows.groupby(keys)["layer"].transform("nunique")
    # Use the same runs at every layer: extra seeds at one layer would shift that point only.
    layers_of_seed = rows.groupby([*keys, "seed"])["layer"].transform("nunique")
    rows = rows[(layers > 1) & (layers_of_seed == layers)]
    rows = rows[rows["dataset"].isin(rows["dataset"].unique()[:MAX_DATASETS_BY_LAYER])]
    if rows.empty:
        return None
    table = summarise(rows, intervals=False)
    models, datasets = rows["model"].unique(), rows["dataset"].unique()
    figure, grid = style.panels_by_model(models, datasets, 3, (0.6, 1.75), ("", "Kendall's |τ|"), sharey=True)
    styles = _line_styles(table, method_order(results))
    signed = table.loc[table["directed"].astype(bool), "tau"]
    low = min(0.0, float(signed.min()) - 0.03) if len(signed) else 0.0
    for panel in grid:
        axes = panel.axes
        axes.set_ylim(low, 1.02)
        lines = table[(table["model"] == panel.model) & (table["dataset"] == panel.name)]
        _layer_lines(axes, lines, styles, labelled=panel.right)
        style.title(axes, panel.name)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if panel.last_line:
            axes.set_xlabel("layer")
        if panel.right:
            axes.annotate(
                one_line(panel.model, 34, keep_end=True), (1.0, 1.03), xycoords="axes fraction", ha="right",
                va="bottom", fontweight="bold", fontsize=7, parse_math=False,
            )  # fmt: skip
    handles = [Line2D([], [], label=one_line(" ".join(key), 28), **look) for key, look in styles.items()]
    if len(signed):
        handles.append(Line2D([], [], color="0.4", lw=0.8, ls=":", label="thin dots: signed τ"))
    style.legend(figure, [*handles, style.chance_patch()], columns=5)
    return figure


def _line_styles(table: pd.DataFrame, order: list[str]) -> dict[Key, dict[str, Any]]:
    """A colour by objective, which a probe shares with its supervised counterpart; a dash pattern by family; and a
    hollow marker for a split other than the main one."""
    lines = table.sort_values("method", key=lambda names: names.map(order.index), kind="stable")
    colours, greys = cycle(OBJECTIVE_COLOURS), cycle(("0.6", "0.25"))
    of_objective: dict[str, str] = defaultdict(lambda: next(colours))
    styles: dict[Key, dict[str, Any]] = {}
    for row in lines.drop_duplicates(["method", "split"]).itertuples():
        key, baseline = _line_key(row.method, row.split), row.family == "baseline"
        colour = next(greys) if baseline else of_objective[row.method.removeprefix("sup-")]
        fill, edge = ("white", colour) if len(key) > 1 and not baseline else (colour, "0.15")
        line = {"color": colour, "lw": 1.2, "ls": _LINE_STYLES.get(row.family, "-")}
        point = {"marker": style.look_of(row.family).marker, "ms": 3, "mew": 0.5, "mfc": fill, "mec": edge}
        styles[key] = line | point
    return styles


def _line_key(method: str, split: str) -> Key:
    return (method,) if split in ("none", "same-task") else (method, split)


def _layer_lines(
    axes: Axes, table: pd.DataFrame, styles: Mapping[Key, dict[str, Any]], labelled: bool
) -> None:
    first = table.iloc[0]
    axes.axhspan(first["chance_low"], first["chance_high"], color=style.CHANCE_COLOUR, lw=0, zorder=0)
    style.chance_level(axes, first["chance_abs_tau"])
    ends: list[tuple[float, str, str]] = []
    for (method, split), line in table.groupby(["method", "split"], sort=False):
        look = styles[_line_key(method, split)]
        colour = look["color"]
        line = line.sort_values("layer")
        axes.plot(line["layer"], line["abs_tau"], **look)
        if line["directed"].any():
            axes.plot(line["layer"], line["tau"], color=colour, ls=":", lw=0.8)
        ends.append((line["abs_tau"].iloc[-1], " ".join(_line_key(method, split)), colour))
    # Direct labels at the right end of a row of panels, where there is room; the legend is complete.
    if labelled and len(ends) <= 12:
        low, high = axes.get_ylim()
        heights = style.spread([end[0] for end in ends], 0.083 * (high - low))
        for (_, name, colour), height in zip(ends, heights, strict=True):
            axes.text(
                1.02, height, one_line(name, 20), ha="left", va="center", fontsize=5.5,
                color=[0.55 * part for part in to_rgb(colour)],  # darker than the line
                parse_math=False, clip_on=False, transform=axes.get_yaxis_transform(),
            )  # fmt: skip
    axes.grid(axis="y", color=style.GRID_COLOUR, lw=0.5)


@style.drawn
def figure_cost(results: pd.DataFrame) -> Figure | None:
    """|τ| against the distinct tokens per task, mean over datasets; methods that read none are at the left."""
    rows = main_setting(results[results["tau"].notna() & (results["family"] != "supervised")])
    rows = rows[rows["distinct_tokens"].notna()]
    if rows.empty or not (rows["distinct_tokens"] > 0).any():
        return None
    keys = ["model", "method", "family"]
    by_dataset = rows.groupby([*keys, "dataset"], sort=False)[["distinct_tokens", "abs_tau"]].mean()
    table = by_dataset.groupby(keys, sort=False).mean().reset_index()
    models = rows["model"].unique()
    labels = ("distinct tokens per task (log)", "Kendall's |τ|")
    figure, grid = style.panels_by_model([""], models, 2, (0.55, 2.6), labels, sharex=True, sharey=True)
    tokens = table["distinct_tokens"]
    cheapest, free = float(tokens[tokens > 0].min()), bool((tokens <= 0).any())
    nothing = cheapest / 3
    top = min(1.02, float(table["abs_tau"].max()) + 0.12)
    for panel in grid:
        axes, model = panel.axes, panel.name
        methods = table[table["model"] == model]
        sizes = rows[rows["model"] == model].drop_duplicates(["dataset", "task"])
        floor = float(sizes.groupby("dataset")["chance_abs_tau"].mean().mean())
        style.chance_level(axes, floor)
        axes.annotate("chance", (0.99, floor), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                      fontsize=6.5, color="#96694b")  # fmt: skip
        shown = methods["distinct_tokens"].where(methods["distinct_tokens"] > 0, nothing)
        axes.set_xscale("log")
        for x, row in zip(shown, methods.itertuples(), strict=True):
            axes.plot(x, row.abs_tau, **style.look_of(row.family).point(5))
        _label_points(axes, shown.to_numpy(), methods["abs_tau"].to_numpy(), [*methods["method"]], 0.05 * top)
        style.title(axes, model)
        axes.set_ylim(0, top)
        axes.grid(color=style.GRID_COLOUR, lw=0.5)
        if free:
            axes.annotate("no model", (nothing, 0.02), xycoords=("data", "axes fraction"), rotation=90,
                          ha="center", va="bottom", fontsize=6.5, color="0.4")  # fmt: skip
    grid[0].axes.set_xlim((nothing if free else cheapest) / 1.6, float(tokens.max()) * 6)
    style.legend(figure, style.family_markers(table))
    return figure


def _label_points(axes: Axes, x: np.ndarray, y: np.ndarray, names: list[str], gap: float) -> None:
    """Labels to the right of each point. Points with similar x share a column of labels, which keeps clear of the
    points that it would cover."""
    decades = np.log10(x)
    order = np.argsort(decades, kind="stable")
    column = np.empty(len(x), dtype=int)
    column[order] = np.cumsum(np.diff(decades[order], prepend=decades[order[0]]) > SAME_COLUMN_DECADES)
    for number in np.unique(column):
        members = np.flatnonzero(column == number)
        right = decades[members].max()
        covered = np.flatnonzero((column > number) & (decades < right + LABEL_DECADES))
        heights = style.spread([*y[members], *y[covered]], gap)[: len(members)]
        for index, height in zip(members, heights, strict=True):
            axes.annotate(
                one_line(names[index], 20), (x[index], y[index]), (float(x[members].max()) * 1.18, height),
                textcoords="data", va="center", fontsize=6.5, parse_math=False,
                bbox={"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8},
                arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "0.6", "shrinkA": 0, "shrinkB": 2},
            )  # fmt: skip


@style.drawn
def figure_consistency(results: pd.DataFrame) -> Figure | None:
    """Whether consistent answers are accurate: accuracy against consistency, one point per task, with a
    line through quintiles of tasks. Accuracy is direction-free for methods without direction."""
    rows = one_layer(main_setting(results[results["tau"].notna() & results["consistency"].notna()]))
    kept: dict[str, pd.DataFrame] = {}
    means = dict.fromkeys(("consistency", "accuracy", "free_accuracy"), "mean")
    for method in method_order(results):
        runs = rows[rows["method"] == method].groupby(["model", "dataset", "task"], sort=False)
        by_task = runs.agg({**means, "directed": "first", "family": "first"})
        if len(by_task) >= MIN_TASKS_OF_CONSISTENCY and by_task["consistency"].nunique() > 1:
            kept[method] = by_task
    if not kept:
        return None
    shown = list(kept)[:MAX_METHODS_OF_CONSISTENCY]
    labels = ("consistency", "pairwise accuracy")
    figure, grid = style.panels_by_model([""], shown, 4, (0.45, 1.55), labels, sharey=True)
    for panel in grid:
        axes, table = panel.axes, kept[panel.name]
        look = style.look_of(table["family"].iloc[0])
        directed = bool(table["directed"].iloc[0])
        x = table["consistency"].to_numpy(dtype=float)
        y = table["accuracy" if directed else "free_accuracy"].to_numpy(dtype=float)
        # Thousands of points are rasterised in the vector files.
        axes.plot(
            x, y, ls="", marker=look.marker, ms=2.2, mfc=look.colour, mec="none", alpha=0.35, rasterized=True
        )
        fifths = np.array_split(np.argsort(x, kind="stable"), min(5, len(x) // 2))
        centres = np.asarray([(x[part].mean(), y[part].mean()) for part in fifths])
        axes.plot(centres[:, 0], centres[:, 1], color="0.1", lw=1.2, marker="o", ms=3)
        correlation = float(stats.spearmanr(x, y).statistic) if np.ptp(y) > 0 else float("nan")
        style.title(axes, panel.name)
        note = "signed" if directed else "direction-free"
        axes.annotate(
            f"ρ = {correlation:+.2f}, {note}" if np.isfinite(correlation) else note, (0.03, 0.03),
            xycoords="axes fraction", fontsize=6.5,
        )  # fmt: skip
        axes.set_ylim(-0.02, 1.04)
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.axhline(0.5, color=style.GRID_COLOUR, lw=0.8, zorder=0)
    return figure
