"""Bar charts with chance bands: the paper's main figure, every dataset, and training across tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ccrank.study.report import figures_style as style
from ccrank.study.results.directions import SINGLE
from ccrank.study.results.summary import main_setting, method_order, one_layer, summarise
from ccrank.util.text import one_line

KIND_NAMES = {"facts": "fact-based", "context": "context-based", "other": "other"}
MAX_DATASETS_ACROSS = 6

Look = dict[str, Any]
_FREE = {"abs_tau": "Kendall's |τ|", "free_accuracy": "pairwise accuracy"}
_SIGNED = {"abs_tau": "tau", "free_accuracy": "accuracy"}
_SIGN_MARK: Look = {"ls": "", "marker": "D", "ms": 2.6, "mfc": "white", "mec": "0.1", "mew": 0.6}
_ANSWER_MARK: Look = {"ls": "", "marker": "s", "ms": 3.2, "mfc": "white", "mec": "#c2005b", "mew": 0.9}
_RUN_MARK: Look = {"ls": "", "marker": "o", "ms": 2.2, "mfc": "#c2005b", "mec": "white", "mew": 0.3}
_CEILING: Look = {"color": style.CEILING_COLOUR, "lw": 1.4, "ls": (0, (2, 1))}


def figure_main(results: pd.DataFrame) -> Figure | None:
    """Mean over the datasets of each kind, for every model: accuracy and |τ| by method, with the deviation over seeds,
    chance, and the supervised counterparts as upper bounds."""
    return _figure_of_bars(results, "kind", ("free_accuracy", "abs_tau"))


def figure_datasets(results: pd.DataFrame, metric: str = "abs_tau") -> Figure | None:
    """Every dataset and method, for every model; `metric` is "abs_tau" or "free_accuracy"."""
    return _figure_of_bars(results, "dataset", (metric,))


@style.drawn
def _figure_of_bars(results: pd.DataFrame, by: str, metrics: tuple[str, ...]) -> Figure | None:
    rows = main_setting(results[results["tau"].notna()])
    if rows.empty:
        return None
    table = summarise(rows, by, intervals=False)
    methods = _bar_methods(table, method_order(results))
    singles = single_values(results, ["model", by, "method"])
    singles = singles[singles["metric"].isin(metrics)]
    models = rows["model"].unique()
    names = (
        [kind for kind in KIND_NAMES if (table["kind"] == kind).any()] if by == "kind" else rows[by].unique()
    )
    across = len(names) * len(metrics) if by == "kind" else MAX_DATASETS_ACROSS
    figure, grid = style.panels_by_model(
        models, [*product(names, metrics)], across, _heights(methods), sharey=True
    )
    for panel in grid:
        axes, (name, metric) = panel.axes, panel.name
        _bars(axes, _rows_of(table, panel.model, by, name), methods, metric)
        _singles(axes, _rows_of(singles, panel.model, by, name), methods, metric)
        if by == "dataset":
            style.title(axes, one_line(name, 18))
        elif panel.model == models[0] and metric == metrics[0]:
            style.title(axes, KIND_NAMES[name])
        if panel.right:
            style.side_title(axes, panel.model)
        if panel.bottom:
            axes.set_xlabel(_FREE[metric])
    _bar_legend(figure, table, singles)
    return figure


@style.drawn
def figure_across(results: pd.DataFrame) -> Figure | None:
    """Probes trained on other tasks (across-tasks): each label-free probe with its supervised counterpart, per
    dataset."""
    split = "across-tasks" if (results["split"] == "across-tasks").any() else "across-items"
    rows = one_layer(results[(results["split"] == split) & results["tau"].notna()])
    if rows.empty or not (rows["family"] != "supervised").any():
        return None
    table = summarise(rows, intervals=False)
    counterparts = list(dict.fromkeys(_counterpart(method) for method in method_order(rows)))
    models, datasets = rows["model"].unique(), rows["dataset"].unique()
    labels = (_FREE["abs_tau"], "")
    figure, grid = style.panels_by_model(
        models, datasets, MAX_DATASETS_ACROSS, _heights(counterparts), labels, sharey=True, sharex=True
    )
    for panel in grid:
        style.title(panel.axes, one_line(panel.name, 18))
        if panel.right:
            style.side_title(panel.axes, panel.model)
        _dumbbells(panel.axes, _rows_of(table, panel.model, "dataset", panel.name), counterparts)
        if panel.bottom:
            panel.axes.tick_params(labelbottom=True)
    signed = [_signed_handle("signed τ of the supervised")] if (table["family"] == "supervised").any() else []
    style.legend(figure, [*style.family_markers(table), style.chance_patch(), *signed])
    return figure


def _heights(methods: Sequence[str]) -> tuple[float, float]:
    """The heights in inches of a legend, and of a line of panels with a row for each method."""
    return 0.75, max(1.3, 0.42 + 0.16 * len(methods))


def _rows_of(table: pd.DataFrame, model: str, by: str, name: str) -> pd.DataFrame:
    return table[(table["model"] == model) & (table[by] == name)]


def _counterpart(method: str) -> str:
    return method.removeprefix("sup-")


def _bar_methods(table: pd.DataFrame, order: Sequence[str]) -> list[str]:
    """The rows of a bar panel: label-free methods, and supervised ones without a label-free counterpart."""
    family = dict(zip(table["method"], table["family"], strict=True))
    present = [method for method in order if method in family]
    label_free = {method for method in present if family[method] != "supervised"}
    return [method for method in present if method in label_free or _counterpart(method) not in label_free]


def _bars(axes: Axes, table: pd.DataFrame, methods: Sequence[str], metric: str) -> None:
    # Accuracy is (1 + τ) / 2, and its chance level likewise.
    halved = metric == "free_accuracy"
    start = 0.5 if halved else 0.0
    ceiling = table["family"] == "supervised"
    row_of = table["method"].mask(ceiling & ~table["method"].isin(methods), table["method"].map(_counterpart))
    table = table.assign(y=row_of.map(_positions(methods)), ceiling=ceiling).dropna(subset="y")
    chance = table[["chance_low", "chance_abs_tau", "chance_high"]]
    _chance_bands(axes, table["y"], (1 + chance) / 2 if halved else chance)
    bars = table[~table["ceiling"]]
    for family, rows in bars.groupby("family", sort=False):
        look = style.look_of(family)
        axes.barh(
            rows["y"], rows[metric] - start, 0.62, start, color=look.colour, hatch=look.hatch, edgecolor="0.15", lw=0.4,
            zorder=2,
        )  # fmt: skip
    _whiskers(axes, bars[metric], bars["y"] + 0.1, bars[f"{metric}_sd"])
    ceilings = table[table["ceiling"]]
    axes.vlines(ceilings[metric], ceilings["y"] - 0.48, ceilings["y"] + 0.48, zorder=5, **_CEILING)
    directed = bars[bars["directed"].astype(bool)]
    _method_rows(axes, methods)
    if halved:
        axes.set_xticks([0.5, 0.75, 1.0], ["0.5", "0.75", "1"])
    axes.set_xlim(start, 1.02)
    _sign_marks(axes, directed[_SIGNED[metric]], directed["y"] - 0.16, start)


def single_values(results: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """By `keys`, the accuracy of single pairwise answers with its chance level, and the |τ| and accuracy of each single
    listwise run: means over datasets of their means over tasks."""
    graded = results[results["tau"].notna()]
    answers = main_setting(graded[graded["free_pair_accuracy"].notna()])
    by = [*dict.fromkeys([*keys, "dataset"])]

    def means(rows: pd.DataFrame, value: str, metric: str, *run: str) -> pd.DataFrame:
        columns = {value: "value", "chance_free_pair_accuracy": "chance"}
        datasets = rows.groupby([*by, *run], sort=False)[[*columns]].mean()
        table = datasets.groupby([*keys, *run], sort=False).mean().rename(columns=columns)
        return table.reset_index().assign(metric=metric, run=bool(run))

    runs = graded[graded["split"] == SINGLE].assign(chance_free_pair_accuracy=math.nan)
    tables = [means(answers, "free_pair_accuracy", "free_accuracy")]
    return pd.concat([*tables, *(means(runs, name, name, "seed") for name in _FREE)], ignore_index=True)


def _singles(axes: Axes, singles: pd.DataFrame, methods: Sequence[str], metric: str) -> None:
    """Single answers as hollow squares, with their chance level as a line; single runs as dots. Both in the lower half
    of a row."""
    rows = singles[(singles["metric"] == metric) & singles["method"].isin(methods)]
    y = rows["method"].map(_positions(methods)).astype(float) + 0.22
    answers = ~rows["run"].astype(bool)
    axes.plot(rows["value"][~answers], y[~answers], zorder=7, **_RUN_MARK)
    axes.plot(rows["value"][answers], y[answers], zorder=7, **_ANSWER_MARK)
    axes.vlines(
        rows["chance"][answers], y[answers] - 0.14, y[answers] + 0.14, color="#ff9ac4", lw=1.6, zorder=6.5
    )


def _dumbbells(axes: Axes, table: pd.DataFrame, counterparts: Sequence[str]) -> None:
    y = table["method"].map(_counterpart).map(_positions(counterparts))
    _chance_bands(axes, y, table[["chance_low", "chance_abs_tau", "chance_high"]])
    # Supervised probes are a little below, so that the whiskers of both can be seen.
    table = table.assign(row=y, y=y + 0.2 * (table["family"] == "supervised"))
    ends = table.groupby("row")["abs_tau"].agg(["min", "max"])
    axes.hlines(ends.index, ends["min"], ends["max"], color="0.7", lw=0.6, zorder=2)
    _whiskers(axes, table["abs_tau"], table["y"], table["abs_tau_sd"])
    supervised = table[table["family"] == "supervised"]
    _sign_marks(axes, supervised["tau"], supervised["y"], 0.0)
    for family, rows in table.groupby("family", sort=False):
        axes.plot(rows["abs_tau"], rows["y"], zorder=5, **style.look_of(family).point(4.5))
    _method_rows(axes, counterparts)
    axes.set_xlim(0, 1.02)


def _positions(methods: Sequence[str]) -> dict[str, int]:
    return {method: index for index, method in enumerate(methods)}


def _chance_bands(axes: Axes, y: pd.Series, chance: pd.DataFrame) -> None:
    low, mean, high = (chance[name] for name in ("chance_low", "chance_abs_tau", "chance_high"))
    axes.barh(y, high - low, 1.0, low, color=style.CHANCE_COLOUR, zorder=1)
    axes.vlines(mean, y - 0.5, y + 0.5, color=style.CHANCE_LINE, lw=0.9, zorder=3.5)


def _whiskers(axes: Axes, value: pd.Series, y: pd.Series, deviation: pd.Series) -> None:
    """Error bars of one standard deviation, if there is one."""
    shown = deviation > 0
    if shown.any():
        axes.errorbar(
            value[shown], y[shown], xerr=deviation[shown], color="0.1", lw=0.8, capsize=1.6, capthick=0.8, ls="",
            zorder=4,
        )  # fmt: skip


def _sign_marks(axes: Axes, value: pd.Series, y: pd.Series, start: float) -> None:
    """A diamond at each value; a value off the axis is an arrow at its edge."""
    inside = value >= start
    axes.plot(value[inside], y[inside], zorder=6, **_SIGN_MARK)
    # An empty unclipped line has no extent, which makes the layout fail.
    if not inside.all():
        edge = [start] * int((~inside).sum())
        axes.plot(edge, y[~inside], zorder=6, clip_on=False, **{**_SIGN_MARK, "marker": "<"})


def _method_rows(axes: Axes, methods: Sequence[str]) -> None:
    axes.set_xticks([0, 0.5, 1.0], ["0", "0.5", "1"])
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.set_yticks(range(len(methods)), [one_line(name, 24) for name in methods], parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=style.GRID_COLOUR, lw=0.5)


def _bar_legend(figure: Figure, table: pd.DataFrame, singles: pd.DataFrame) -> None:
    handles: list[Patch | Line2D] = []
    for family in style.families_in(table[table["family"] != "supervised"]):
        look = style.look_of(family)
        handles.append(Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="0.15", lw=0.5, label=family))
    handles.append(style.chance_patch())
    if (table["family"] == "supervised").any():
        handles.append(Line2D([], [], label="supervised, same task", **_CEILING))
    if table["directed"].any():
        handles.append(_signed_handle("signed, for directed methods"))
    runs = singles["run"].astype(bool)
    if not runs.all():
        handles.append(Line2D([], [], label="single answers; line: coin flips", **_ANSWER_MARK))
    if runs.any():
        handles.append(Line2D([], [], label="single listwise runs", **_RUN_MARK))
    style.legend(figure, handles, columns=7 if len(handles) < 6 else 3)


def _signed_handle(label: str) -> Line2D:
    return Line2D([], [], label=label, **_SIGN_MARK)
