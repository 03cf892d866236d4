"""Choosing rows of results, and summaries: mean over seeds first, then over tasks, with bootstrap intervals over tasks
and chance levels. Metrics of retrieval are computed from the stored scores and the tasks' grades."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ccrank.errors import CcrankError, needs_extra
from ccrank.metrics.chance import Interval, chance_floor, p_value_abs_tau, p_value_tau
from ccrank.metrics.retrieval import CUT, NAMES, chance_relevance, evaluate_relevance
from ccrank.metrics.tasks import RESAMPLES, common_direction, macro_mean_with_interval, mean_with_interval
from ccrank.study.results.directions import SPLITS
from ccrank.study.results.load import StudyTasks

with needs_extra("report", "a table of results"):
    import pandas as pd

FAMILIES = ("label-free", "prompting", "probing", "supervised", "baseline")
"""The order of families in tables and figures."""
UNIT = ["model", "dataset", "kind", "family", "directed", "method", "split", "layer"]
METRICS = ["tau", "abs_tau", "accuracy", "free_accuracy"]
MEASURES = [
    *METRICS,
    "chance_abs_tau",
    "chance_free_accuracy",
    "pair_accuracy",
    "free_pair_accuracy",
    "chance_free_pair_accuracy",
]
COSTS = ["consistency", "seconds", "distinct_tokens"]
COMMON = ("common_tau", "common_tau_sd", "common_tau_chance", "common_tau_p")
INTERVALS = ["tau_low", "tau_high", "abs_tau_low", "abs_tau_high"]
_METRICS = [f"{name}_{CUT}" if name in ("ndcg", "recall") else name for name in NAMES]
RELEVANCE_FIELDS = (
    "queries",
    *_METRICS,
    f"ndcg_{CUT}_low",
    f"ndcg_{CUT}_high",
    *(f"chance_{name}" for name in _METRICS),
)


def choose(frame: pd.DataFrame, **wanted: Sequence[str]) -> pd.DataFrame:
    """The rows of the given models, datasets, methods, splits and layers; a facet without values keeps all."""
    for facet, names in wanted.items():
        if not names:
            continue
        column = frame[facet].astype(str)
        known = list(dict.fromkeys(column))
        for name in names:
            if name not in known:
                raise CcrankError(f"the results have no {facet} {name!r}; they have {', '.join(known)}")
        frame = frame[column.isin(list(names))]
    if frame.empty:
        raise CcrankError("no results match this selection")
    return frame


def one_layer(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of one layer per method: the one with the most runs, of several the last. The choice uses no gold.

    A dataset with a single layer for a method keeps it: it may have been selected for that dataset.
    """
    keys = ["model", "method", "split"]
    runs = results.groupby([*keys, "layer"]).size().reset_index(name="runs")
    chosen = runs.sort_values(["runs", "layer"]).drop_duplicates(keys, keep="last").set_index(keys)["layer"]
    wanted = chosen.reindex(pd.MultiIndex.from_frame(results[keys])).to_numpy()
    alone = results.groupby([*keys, "dataset"])["layer"].transform("nunique") == 1
    return results[(results["layer"].to_numpy() == wanted) | alone.to_numpy()]


def main_setting(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of the main comparison: one layer, each label-free method in its simplest split, and supervised
    probes trained and tested on the same task, as upper bounds."""
    rows = one_layer(results)
    rank = rows["split"].map(SPLITS.index)
    simplest = rank.groupby([rows["model"], rows["method"]], sort=False).transform("min")
    supervised = rows["family"] == "supervised"
    return rows[((rank == simplest) & ~supervised) | (supervised & (rows["split"] == "same-task"))]


def method_order(results: pd.DataFrame) -> list[str]:
    """Methods by family, within a family in order of appearance."""
    first = results.drop_duplicates("method")
    ordered = first.sort_values("family", key=lambda families: families.map(family_rank), kind="stable")
    return [*ordered["method"]]


def family_rank(family: str) -> int:
    """The index of a family in `FAMILIES`; unknown families come last."""
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)


def summarise(results: pd.DataFrame, by: str = "dataset", intervals: bool = True) -> pd.DataFrame:
    """One row for each model, dataset, method, split and layer; with `by="kind"` one per kind instead of dataset.

    The mean of a kind is the unweighted mean of its datasets' means, as in the paper. Tasks without gold count in
    `tasks` but in no metric. If each dataset has its own layer, as chosen by `auto`, the mean of a kind is over those,
    and its layer is −1.

    `…_sd` is the standard deviation over seeds of the mean over tasks; NaN for a single seed. A dataset on which a
    method has a single run counts with that run in every seed. `…_low` and `…_high` bound a bootstrap interval over
    tasks, resampled within each dataset; `chance_low` and `chance_high` the mean |τ| of random orders. By dataset,
    `p_value` is the probability that random orders do as well, in τ for directed methods, else in |τ|.

    Of probes trained across tasks, `common_tau` is |mean τ| over the held-out tasks of a fold, `common_tau_sd` its
    deviation over seeds, `common_tau_chance` its expectation and `common_tau_p` its p-value if every task's direction
    were random (see `common_direction`).
    """
    if by not in ("dataset", "kind"):
        raise CcrankError(f"by must be 'dataset' or 'kind', not {by!r}")
    keys = [name for name in UNIT if name != "dataset" or by == "dataset"]
    unit = [*dict.fromkeys([*keys, "dataset"])]
    if by == "kind":
        results = results.assign(layer=_kind_layers(results))
    tasks = results.groupby([*unit, "task", "n_items"], sort=False)[[*MEASURES, *COSTS]].mean().reset_index()
    graded = tasks[tasks["tau"].notna()]
    rows = tasks.groupby(keys, sort=False)
    table = pd.DataFrame(index=rows.size().index)
    if by == "kind":
        table["datasets"] = rows["dataset"].nunique()
    table["tasks"] = rows.size()
    table["graded"] = graded.groupby(keys, sort=False).size().reindex(table.index, fill_value=0)
    table["seeds"] = results.groupby(keys, sort=False)["seed"].nunique()
    table = table.join(_macro_means(graded, unit, keys, MEASURES))
    table = table.join(_macro_means(tasks, unit, keys, COSTS))
    table = table.join(_seed_deviations(results[results["tau"].notna()], unit, keys))
    table = table.join(_bounds(graded, keys, ("chance_low", "chance_high"), _chance_bounds))
    if by == "dataset":
        sizes = graded.groupby(keys, sort=False)["n_items"].agg(lambda column: tuple(sorted(column)))
        table["n_items"] = sizes.reindex(table.index)
        columns = table.reset_index()[["directed", "tau", "abs_tau", "n_items"]]
        table["p_value"] = [_p_value(*row) for row in columns.itertuples(index=False)]
        runs = dict(iter(results.groupby(keys, sort=False)))
        table[[*COMMON]] = pd.DataFrame([held_out_direction(runs[key]) for key in table.index], table.index)
    if intervals:
        table = table.join(_bounds(graded, keys, INTERVALS, _intervals))
    return table.reset_index()


def summarise_results(results: pd.DataFrame, by: str = "dataset") -> list[dict[str, Any]]:
    """The rows of `summarise` as dictionaries."""
    table = summarise(results, by)
    entries: list[dict[str, Any]] = table.drop(columns="n_items", errors="ignore").to_dict("records")
    return entries


def _kind_layers(frame: pd.DataFrame) -> pd.Series:
    """The layer of each row, −1 for methods that have one layer on each dataset, but not the same."""
    method = [frame[name] for name in ("model", "method", "split")]
    layers = frame["layer"]
    most = layers.groupby([*method, frame["dataset"]]).transform("nunique").groupby(method).transform("max")
    differ = layers.groupby(method).transform("nunique") > 1
    return layers.mask((most == 1) & differ, -1)


def _macro_means(tasks: pd.DataFrame, unit: list[str], keys: list[str], names: list[str]) -> pd.DataFrame:
    """Means over datasets of their means over tasks; NaN where a dataset has no number."""
    datasets = tasks.groupby(unit, sort=False)[names].mean().groupby(keys, sort=False)
    return datasets.mean().where(datasets.count().eq(datasets.size(), axis=0))


def _seed_deviations(graded: pd.DataFrame, unit: list[str], keys: list[str]) -> pd.DataFrame:
    """Deviations over seeds of the means over tasks and datasets."""
    runs = graded.groupby([*unit, "seed"], sort=False)[METRICS].mean()
    if unit != keys:
        wide = runs.unstack("dataset")
        wide = wide.fillna(wide.groupby(keys).transform("mean"))
        runs = wide.stack("dataset", future_stack=True).groupby([*keys, "seed"]).mean()
    return runs.groupby(keys).std(ddof=1).add_suffix("_sd")


def _bounds(
    graded: pd.DataFrame,
    keys: list[str],
    names: Sequence[str],
    bounds_of: Callable[[list[pd.DataFrame]], list[float]],
) -> pd.DataFrame:
    """Columns of bounds: for each row of a summary what `bounds_of` gives of the tasks of its datasets."""
    bounds = {
        key: bounds_of([part for _, part in tasks.groupby("dataset", sort=False)])
        for key, tasks in graded.groupby(keys, sort=False)
    }
    index = pd.MultiIndex.from_tuples(list(bounds), names=keys)
    return pd.DataFrame(list(bounds.values()), index, [*names], dtype=float)


def _intervals(datasets: list[pd.DataFrame]) -> list[float]:
    bounds: list[float] = []
    for name in ("tau", "abs_tau"):
        samples = [tasks[name].to_numpy() for tasks in datasets]
        # Each interval has its own generator, so that it does not depend on the rest of the table.
        interval = macro_mean_with_interval(samples, np.random.default_rng(0), resamples=RESAMPLES)
        bounds += [interval.low, interval.high]
    return bounds


def _chance_bounds(datasets: list[pd.DataFrame]) -> list[float]:
    floor = macro_floor([chance_floor(tasks["n_items"].tolist()) for tasks in datasets])
    return [floor.low, floor.high]


def macro_floor(floors: Sequence[Interval]) -> Interval:
    """The floor of a mean over datasets of their means over tasks.

    Datasets are independent, so the half-widths of their intervals add in quadrature, separately on each side.
    """
    count = len(floors)
    mean = math.fsum(floor.mean for floor in floors) / count
    below = math.sqrt(math.fsum((floor.mean - floor.low) ** 2 for floor in floors)) / count
    above = math.sqrt(math.fsum((floor.high - floor.mean) ** 2 for floor in floors)) / count
    return Interval(mean, mean - below, mean + above)


def _p_value(directed: bool, tau: float, abs_tau: float, n_items: tuple[int, ...]) -> float:
    if math.isnan(tau):
        return math.nan
    return p_value_tau(tau, n_items) if directed else p_value_abs_tau(abs_tau, n_items)


def held_out_direction(runs: pd.DataFrame, resamples: int = RESAMPLES) -> dict[str, float]:
    """The common direction of a probe trained across the tasks of one dataset; NaN for other rows."""
    held_out = runs[(runs["fold"] >= 0) & runs["tau"].notna()]
    if held_out.empty:
        return dict.fromkeys(COMMON, math.nan)
    table = held_out.pivot_table(index="seed", columns=["task", "fold"], values="tau", sort=False)
    folds = table.columns.get_level_values("fold").to_numpy()
    common = common_direction(table.to_numpy(), folds, np.random.default_rng(0), resamples)
    deviation = float(np.std(common.seeds, ddof=1)) if len(common.seeds) > 1 else math.nan
    return dict(zip(COMMON, (common.value, deviation, common.expected, common.p_value), strict=True))


def add_relevance(
    entries: Sequence[Mapping[str, Any]], results: pd.DataFrame, tasks: StudyTasks
) -> list[dict[str, Any]]:
    """The entries of `summarise_results` by dataset, with the metrics of tasks that have a query and gold.

    Nothing is added where no task has a query. NaN stands for entries of other datasets. The mean over seeds is taken
    first; the interval of nDCG is a bootstrap over queries.
    """
    grades = {key: task.values for key, task in tasks.items() if task.query is not None and task.values}
    if not grades:
        return [dict(entry) for entry in entries]
    chance = {key: chance_relevance(values) for key, values in grades.items()}
    groups = dict(iter(results.groupby(UNIT, sort=False)))
    with_relevance = []
    for entry in entries:
        unit = groups[tuple(entry[name] for name in UNIT)]
        per_query: dict[tuple[str, str], list[list[float]]] = {}
        for key, scores in zip(zip(unit["dataset"], unit["task"], strict=True), unit["scores"], strict=True):
            if key in grades and not math.isnan(chance[key].ndcg):
                per_query.setdefault(key, []).append(list(evaluate_relevance(scores, grades[key])))
        levels = [list(chance[key]) for key in per_query]
        with_relevance.append({**entry, **_relevance_fields(list(per_query.values()), levels)})
    return with_relevance


def _relevance_fields(per_query: list[list[list[float]]], chance: list[list[float]]) -> dict[str, Any]:
    """The fields of an entry, from the metrics of each query and seed, and their chance levels."""
    if not per_query:
        return {name: 0 if name == "queries" else math.nan for name in RELEVANCE_FIELDS}
    table = np.array([np.mean(seeds, axis=0) for seeds in per_query])  # (queries, metrics)
    interval = mean_with_interval(table[:, 0], np.random.default_rng(0), resamples=RESAMPLES)
    values = [len(table), *table.mean(axis=0).tolist(), interval.low, interval.high]
    return dict(zip(RELEVANCE_FIELDS, [*values, *np.mean(chance, axis=0).tolist()], strict=True))
