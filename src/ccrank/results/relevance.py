"""Metrics of retrieval for the results of a study: computed from the stored scores and the tasks' grades."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ccrank.metrics.retrieval import CUT, NAMES, chance_relevance, evaluate_relevance
from ccrank.metrics.tasks import mean_with_interval
from ccrank.results.summary import RESAMPLES, UNIT
from ccrank.task import Task

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = tuple(f"{name}_{CUT}" if name in ("ndcg", "recall") else name for name in NAMES)
"""The names of the metrics in tables, in the order of `NAMES`."""
FIELDS = (
    "queries",
    *COLUMNS,
    f"ndcg_{CUT}_low",
    f"ndcg_{CUT}_high",
    *(f"chance_{name}" for name in COLUMNS),
)


def add_relevance(
    entries: Sequence[Mapping[str, Any]], frame: pd.DataFrame, tasks: Mapping[tuple[str, str], Task]
) -> list[dict[str, Any]]:
    """The entries of `summarise_results` by dataset, with the metrics of tasks that have a query and gold.

    Nothing is added where no task has a query. NaN stands for entries of other datasets. The mean over seeds is taken
    first; the interval of nDCG is a bootstrap over queries.

    Parameters
    ----------
    entries
        One for each model, dataset, method, split and layer.
    frame
        The results that they summarise.
    tasks
        The study's tasks by dataset and id.
    """
    graded = {key: task for key, task in tasks.items() if task.query is not None and task.values is not None}
    if not graded:
        return [dict(entry) for entry in entries]
    chance = {key: chance_relevance(task.values or ()) for key, task in graded.items()}
    groups = {tuple(key): group for key, group in frame.groupby(UNIT, sort=False, observed=True)}
    found = []
    for entry in entries:
        unit = groups[tuple(entry[name] for name in UNIT)]
        per_query: dict[str, list[list[float]]] = {}
        for name, scores in zip(unit["task"], unit["scores"], strict=True):
            task = graded.get((entry["dataset"], name))
            if task is not None and not math.isnan(chance[entry["dataset"], name].ndcg):
                metrics = evaluate_relevance(scores, task.values or ())
                per_query.setdefault(name, []).append([getattr(metrics, one) for one in NAMES])
        found.append({**entry, **_fields(entry["dataset"], per_query, chance)})
    return found


def _fields(
    dataset: str, per_query: Mapping[str, list[list[float]]], chance: Mapping[tuple[str, str], Any]
) -> dict[str, Any]:
    if not per_query:
        return {name: 0 if name == "queries" else math.nan for name in FIELDS}
    table = np.array([np.mean(seeds, axis=0) for seeds in per_query.values()])  # (queries, metrics)
    levels = np.array([[getattr(chance[dataset, name], one) for one in NAMES] for name in per_query])
    interval = mean_with_interval(table[:, 0], np.random.default_rng(0), resamples=RESAMPLES)
    values = [len(table), *table.mean(axis=0).tolist(), interval.low, interval.high]
    return dict(zip(FIELDS, [*values, *levels.mean(axis=0).tolist()], strict=True))
