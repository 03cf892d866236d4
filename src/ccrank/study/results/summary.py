"""Summaries of results: mean over seeds first, then over tasks, with bootstrap intervals over tasks.

Metrics of retrieval are computed from the stored scores and the tasks' grades.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.metrics.retrieval import CUT, NAMES, RetrievalMetrics, chance_relevance, evaluate_relevance
from ccrank.metrics.tasks import (
    RESAMPLES,
    common_direction,
    macro_mean_with_interval,
    mean_with_interval,
)
from ccrank.study.results.load import StudyTasks

if TYPE_CHECKING:
    import pandas as pd

UNIT = ["model", "dataset", "kind", "family", "directed", "method", "split", "layer"]
MEASURES = [
    "tau",
    "abs_tau",
    "accuracy",
    "free_accuracy",
    "chance_abs_tau",
    "chance_free_accuracy",
    "pair_accuracy",
    "free_pair_accuracy",
    "chance_free_pair_accuracy",
]
COSTS = ["consistency", "seconds", "distinct_tokens"]
COMMON = ("common_tau", "common_tau_sd", "common_tau_chance", "common_tau_p")
_METRICS = [f"{name}_{CUT}" if name in ("ndcg", "recall") else name for name in NAMES]
RELEVANCE_FIELDS = (
    "queries",
    *_METRICS,
    f"ndcg_{CUT}_low",
    f"ndcg_{CUT}_high",
    *(f"chance_{name}" for name in _METRICS),
)


def summarise_results(frame: pd.DataFrame, by: str = "dataset") -> list[dict[str, Any]]:
    """One entry for each model, dataset, method, split and layer; with `by="kind"` one per kind instead of dataset.

    The mean of a kind is the unweighted mean of its datasets' means, as in the paper; its interval comes from
    resampling tasks within each dataset. Tasks without gold count in `tasks` but in no metric. If each dataset has its
    own layer, as chosen by `auto`, the mean of a kind is over those, and its layer is −1.

    `tau_sd` and `abs_tau_sd` are standard deviations over seeds of the mean over tasks; NaN for a single seed. Of
    probes trained across tasks, `common_tau` is |mean τ| over the held-out tasks of a fold, `common_tau_sd` its
    deviation over seeds, `common_tau_chance` its expectation and `common_tau_p` its p-value if every task's direction
    were random (see `common_direction`).
    """
    if by not in ("dataset", "kind"):
        raise CcrankError(f"by must be 'dataset' or 'kind', not {by!r}")
    keys = UNIT if by == "dataset" else [name for name in UNIT if name != "dataset"]
    if by == "kind":
        frame = frame.assign(layer=_kind_layers(frame))
    runs = dict(iter(frame.groupby(keys, sort=False, observed=True)))
    by_task = frame.groupby([*UNIT, "task", "n_items"], sort=False, observed=True)
    means = by_task[[*MEASURES, *COSTS]].mean().reset_index()
    return [
        _entry(dict(zip(keys, key, strict=True)), group)
        | _seed_deviations(runs[key])
        | (held_out_direction(runs[key]) if by == "dataset" else {})
        for key, group in means.groupby(keys, sort=False)
    ]


def _kind_layers(frame: pd.DataFrame) -> pd.Series:
    """The layer of each row, −1 for methods that have one layer on each dataset, but not the same."""
    method = [frame[name] for name in ("model", "method", "split")]
    layers = frame["layer"]
    most = layers.groupby([*method, frame["dataset"]]).transform("nunique").groupby(method).transform("max")
    differ = layers.groupby(method).transform("nunique") > 1
    return layers.mask((most == 1) & differ, -1)


def _seed_deviations(runs: pd.DataFrame) -> dict[str, float]:
    """The deviation over seeds of the mean over tasks (and datasets) of τ and |τ|, as `tau_sd` and `abs_tau_sd`.

    A dataset on which the method has a single run counts with that run in every seed.
    """
    graded = runs[runs["tau"].notna()]
    deviations = {}
    for name in ("tau", "abs_tau"):
        means = graded.groupby(["dataset", "seed"], observed=True)[name].mean().unstack("seed")
        by_seed = means.T.fillna(means.mean(axis=1)).mean(axis=1)
        deviations[f"{name}_sd"] = float(by_seed.std(ddof=1)) if len(by_seed) > 1 else math.nan
    return deviations


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


def _entry(key: dict[str, Any], tasks: pd.DataFrame) -> dict[str, Any]:
    """The mean over datasets of their means over tasks."""
    entry = {name: value.item() if isinstance(value, np.generic) else value for name, value in key.items()}
    parts = [part for _, part in tasks.groupby("dataset", sort=False)]
    graded = [part for part in (part[part["tau"].notna()] for part in parts) if len(part)]
    if "dataset" not in entry:
        entry["datasets"] = len(parts)
    entry |= {"tasks": len(tasks), "graded": sum(map(len, graded))}

    def mean(name: str, parts: list[pd.DataFrame]) -> float:
        return float(np.mean([part[name].mean() for part in parts])) if parts else math.nan

    def with_interval(name: str) -> dict[str, float]:
        if not graded:
            return dict.fromkeys((name, f"{name}_low", f"{name}_high"), math.nan)
        # Each entry has its own generator, so that an interval does not depend on the rest of the table.
        samples = [part[name].to_numpy() for part in graded]
        found = macro_mean_with_interval(samples, np.random.default_rng(0), resamples=RESAMPLES)
        return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}

    return entry | {
        **with_interval("tau"),
        **with_interval("abs_tau"),
        **{name: mean(name, graded) for name in MEASURES[2:]},
        **{name: mean(name, parts) for name in COSTS},
    }


def add_relevance(
    entries: Sequence[Mapping[str, Any]], frame: pd.DataFrame, tasks: StudyTasks
) -> list[dict[str, Any]]:
    """The entries of `summarise_results` by dataset, with the metrics of tasks that have a query and gold.

    Nothing is added where no task has a query. NaN stands for entries of other datasets. The mean over seeds is taken
    first; the interval of nDCG is a bootstrap over queries.
    """
    grades = {key: task.values for key, task in tasks.items() if task.query is not None and task.values}
    if not grades:
        return [dict(entry) for entry in entries]
    chance = {key: chance_relevance(values) for key, values in grades.items()}
    groups = dict(iter(frame.groupby(UNIT, sort=False, observed=True)))
    with_relevance = []
    for entry in entries:
        unit = groups[tuple(entry[name] for name in UNIT)]
        per_query: dict[tuple[str, str], list[list[float]]] = {}
        for key, scores in zip(zip(unit["dataset"], unit["task"], strict=True), unit["scores"], strict=True):
            if key in grades and not math.isnan(chance[key].ndcg):
                per_query.setdefault(key, []).append(_values(evaluate_relevance(scores, grades[key])))
        levels = [_values(chance[key]) for key in per_query]
        with_relevance.append({**entry, **_relevance_fields(list(per_query.values()), levels)})
    return with_relevance


def _values(metrics: RetrievalMetrics) -> list[float]:
    return [getattr(metrics, name) for name in NAMES]


def _relevance_fields(per_query: list[list[list[float]]], chance: list[list[float]]) -> dict[str, Any]:
    """The fields of an entry, from the metrics of each query and seed, and their chance levels."""
    if not per_query:
        return {name: 0 if name == "queries" else math.nan for name in RELEVANCE_FIELDS}
    table = np.array([np.mean(seeds, axis=0) for seeds in per_query])  # (queries, metrics)
    interval = mean_with_interval(table[:, 0], np.random.default_rng(0), resamples=RESAMPLES)
    values = [len(table), *table.mean(axis=0).tolist(), interval.low, interval.high]
    return dict(zip(RELEVANCE_FIELDS, [*values, *np.mean(chance, axis=0).tolist()], strict=True))
