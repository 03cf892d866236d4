"""Tables from rows of results: means over tasks, deviation over seeds, and chance levels.

A results table has one row for each (model, dataset, task, method, layer, split, seed); see
docs/how-to/read-a-report.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from ccrank.errors import needs_extra
from ccrank.metrics import Estimate, Floor, chance_floor, chance_tau_sd, p_value_abs_tau, p_value_tau
from ccrank.metrics.tasks import RESAMPLES, macro_mean_with_interval
from ccrank.study.results.directions import SPLITS

with needs_extra("report", "a table of results"):
    import pandas as pd

FAMILIES = ("label-free", "prompting", "probing", "supervised", "baseline")
"""The order of families in tables and figures."""
GROUP = ["model", "dataset", "method", "layer", "split"]
METRICS = ["tau", "abs_tau", "accuracy", "free_accuracy"]

_MEANS = [*METRICS, "consistency", "distinct_tokens", "seconds"]


def floor_of(n_items: Iterable[int]) -> Floor:
    """`chance_floor` of tasks of these sizes, cached by sizes."""
    return _floor(tuple(sorted(map(int, n_items))))


@lru_cache(maxsize=4096)
def _floor(sizes: tuple[int, ...]) -> Floor:
    return chance_floor(sizes)


@lru_cache(maxsize=16384)
def _p_value(tau: float, mean_abs_tau: float, sizes: tuple[int, ...], directed: bool) -> float:
    return p_value_tau(tau, sizes) if directed else p_value_abs_tau(mean_abs_tau, sizes)


def signed_floor(n_items: Sequence[int], level: float = 0.95) -> Floor:
    """The floor of the mean signed τ: 0, with interval ± z √(Σ sd²) / tasks."""
    deviation = math.sqrt(sum(chance_tau_sd(int(n)) ** 2 for n in n_items)) / len(n_items)
    half = float(stats.norm.ppf((1 + level) / 2)) * deviation
    return Floor(0.0, -half, half)


def macro_floor(floors: Sequence[Floor]) -> Floor:
    """The floor of a mean over datasets of their means over tasks.

    Datasets are independent, so the half-widths of their intervals add in quadrature, separately on each side.
    """
    count = len(floors)
    mean = math.fsum(floor.mean for floor in floors) / count
    below = math.sqrt(math.fsum((floor.mean - floor.low) ** 2 for floor in floors)) / count
    above = math.sqrt(math.fsum((floor.high - floor.mean) ** 2 for floor in floors)) / count
    return Floor(mean, mean - below, mean + above)


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
    rank = rows["split"].map({split: index for index, split in enumerate(SPLITS)}).fillna(len(SPLITS))
    simplest = rank.groupby([rows["model"], rows["method"]], sort=False).transform("min")
    supervised = rows["family"] == "supervised"
    return rows[((rank == simplest) & ~supervised) | (supervised & (rows["split"] == "same-task"))]


def method_order(results: pd.DataFrame) -> list[str]:
    """Methods by family, within a family in order of appearance."""
    first = results.drop_duplicates("method")
    family = dict(zip(first["method"], first["family"], strict=True))
    return sorted(family, key=lambda name: family_rank(family[name]))


def family_rank(family: str) -> int:
    """The index of a family in `FAMILIES`; unknown families come last."""
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)


def over_seeds(rows: pd.DataFrame, keys: list[str], values: list[str]) -> pd.DataFrame:
    """Mean over tasks for each seed, then mean over seeds and, as `<value>_sd`, their standard deviation.

    The deviation of a single seed is 0.
    """
    by_seed = rows.groupby([*keys, "seed"], sort=False, observed=True)[values].mean()
    grouped = by_seed.groupby(keys, sort=False, observed=True)
    spread = grouped.std(ddof=1).fillna(0.0).add_suffix("_sd")
    return grouped.mean().join(spread)


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """One row for each model, dataset, method, layer and split, with the chance level of the same tasks.

    Chance: `chance`, `chance_low`, `chance_high` refer to the mean |τ| (those of free accuracy are (1 + chance) / 2);
    `p_value` refers to the mean signed τ for directed methods, to the mean |τ| for others.
    """
    rows = results[results["tau"].notna()]
    table = over_seeds(rows, GROUP, _MEANS)
    main = one_layer(rows).drop_duplicates(GROUP).set_index(GROUP).index
    table["main_layer"] = table.index.isin(main)
    tasks = rows.drop_duplicates([*GROUP, "task"]).groupby(GROUP, sort=False)
    table["tasks"] = tasks.size()
    table["n_items"] = tasks["n_items"].agg(lambda column: tuple(sorted(map(int, column))))
    for name in ("family", "kind", "directed"):
        table[name] = tasks[name].first()
    table["seeds"] = rows.groupby(GROUP, sort=False)["seed"].nunique()
    table = table.reset_index()
    _add_chance(table, [floor_of(sizes) for sizes in table["n_items"]])
    table["p_value"] = [
        _p_value(row.tau, row.abs_tau, row.n_items, bool(row.directed)) for row in table.itertuples()
    ]
    ranks = pd.DataFrame(
        {
            "model": pd.Categorical(table["model"], results["model"].unique()).codes,
            "dataset": pd.Categorical(table["dataset"], results["dataset"].unique()).codes,
            "family": table["family"].map(family_rank),
        }
    )
    return table.loc[ranks.sort_values([*ranks], kind="stable").index].reset_index(drop=True)


def with_intervals(table: pd.DataFrame, rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The table with `abs_tau_low` and `abs_tau_high`, the bootstrap interval over the tasks of the rows with the same
    keys; datasets weigh the same. Rows of the table without such rows have NaN."""
    graded = rows[rows["tau"].notna()]
    by_task = graded.groupby([*dict.fromkeys([*keys, "dataset"]), "task"], sort=False)["abs_tau"].mean()
    bounds = {}
    for key, values in by_task.groupby([*keys], sort=False):
        samples = [part.to_numpy() for _, part in values.groupby("dataset", sort=False)]
        bounds[key] = macro_mean_with_interval(samples, np.random.default_rng(0), resamples=RESAMPLES)
    unknown = Estimate(math.nan, math.nan, math.nan)
    found = [bounds.get(key, unknown) for key in table[[*keys]].itertuples(index=False, name=None)]
    return table.assign(abs_tau_low=[one.low for one in found], abs_tau_high=[one.high for one in found])


def _add_chance(table: pd.DataFrame, floors: Sequence[Floor]) -> None:
    table["chance"] = [floor.mean for floor in floors]
    table["chance_low"] = [floor.low for floor in floors]
    table["chance_high"] = [floor.high for floor in floors]


def kind_summary(results: pd.DataFrame) -> pd.DataFrame:
    """The main comparison: one row for each model, kind of dataset and method, with equal weights for datasets.

    The mean over datasets is taken for each seed; `_sd` is the deviation over seeds. Without rows in the main setting,
    such as those of supervised probes on other tasks alone, the table is empty.
    """
    rows = main_setting(results[results["tau"].notna()])
    keys = ["model", "kind", "method"]
    if rows.empty:
        return pd.DataFrame(columns=[*keys, *METRICS])
    by_dataset = rows.groupby([*keys, "dataset", "seed"], sort=False)[METRICS].mean().reset_index()
    # A deterministic method may have been run once on some datasets: its result is used for every seed.
    wide = by_dataset.pivot_table(index=[*keys, "seed"], columns="dataset", values=METRICS, sort=False)
    filled = wide.fillna(wide.groupby(keys, sort=False).transform("mean"))
    long = filled.stack("dataset", future_stack=True).dropna(how="all").reset_index()
    table = over_seeds(long, keys, METRICS)
    floors: dict[tuple[str, str, str], list[Floor]] = {}
    for key, tasks in rows.drop_duplicates([*keys, "dataset", "task"]).groupby(
        [*keys, "dataset"], sort=False
    ):
        floors.setdefault(key[:3], []).append(floor_of(tasks["n_items"]))
    _add_chance(table, [macro_floor(floors[key]) for key in table.index])
    about = rows.drop_duplicates(keys).set_index(keys)[["family", "directed", "split"]]
    return table.join(about).reset_index()


@dataclass(frozen=True, slots=True)
class Best:
    """The best of several methods on one dataset, with the chance level on the same tasks."""

    method: str
    split: str
    family: str
    value: float
    chance: Floor
    """Its interval is corrected for the choice, so that the best of as many random orders is above it in 2.5 % of cases
    at most (Bonferroni)."""
    methods: int
    """The number of methods and splits that it is the best of."""

    @property
    def above_chance(self) -> bool:
        """Whether it is above the corrected 95 % interval of chance."""
        return self.value > self.chance.high


@dataclass(frozen=True, slots=True)
class Headline:
    """The best results of one model on one dataset."""

    model: str
    dataset: str
    tasks: int
    directed: Best | None
    """By signed τ, among directed methods."""
    free: Best | None
    """By |τ|, among all methods without labels."""
    ceiling: Best | None
    """By signed τ, among supervised probes: held-out ones if there are any."""


def headlines(table: pd.DataFrame) -> list[Headline]:
    """The best methods per dataset and model, from the main layers of a `summary`."""
    best = []
    for (dataset, model), rows in table[table["main_layer"]].groupby(["dataset", "model"], sort=False):
        supervised = rows[rows["family"] == "supervised"]
        held_out = supervised[supervised["split"] != "same-task"]
        label_free = rows[rows["family"] != "supervised"]
        directed = _best(label_free[label_free["directed"].astype(bool)], "tau")
        ceiling = _best(held_out if len(held_out) else supervised, "tau")
        tasks = int(rows["tasks"].max())
        best.append(Headline(model, dataset, tasks, directed, _best(label_free, "abs_tau"), ceiling))
    return best


def _best(rows: pd.DataFrame, metric: str) -> Best | None:
    if rows.empty:
        return None
    row = rows.loc[rows[metric].idxmax()]
    floor = signed_floor if metric == "tau" else chance_floor
    chance = floor(row["n_items"], 1 - 0.05 / len(rows))
    return Best(row["method"], row["split"], row["family"], float(row[metric]), chance, len(rows))
