"""What a report shows beside tables and figures: the best methods, and every task's rankings, packed for its script."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from ccrank.metrics.chance import Interval, chance_floor, chance_tau_sd
from ccrank.study.results.load import StudyTasks
from ccrank.study.results.summary import family_rank, one_layer
from ccrank.task import Task
from ccrank.util.text import shortened

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
LEVELS = len(DIGITS) ** 2
MAX_BYTES = 2_000_000
"""Maximal size of the rankings on the page; if exceeded, an evenly spaced subset of tasks is included."""
MAX_CONTEXT = 700
MAX_ITEM = 160


class Best(NamedTuple):
    """The best of several methods on one dataset, with the chance level on the same tasks."""

    method: str
    split: str
    family: str
    value: float
    chance: Interval
    """Its interval is corrected for the choice, so that the best of as many random orders is above it in 2.5 % of cases
    at most (Bonferroni)."""
    methods: int
    """The number of methods and splits that it is the best of."""

    @property
    def above_chance(self) -> bool:
        """Whether it is above the corrected 95 % interval of chance."""
        return self.value > self.chance.high


class Headline(NamedTuple):
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
    """The best methods per dataset and model, from the rows of one layer per method (`summarise`)."""
    best = []
    for (dataset, model), rows in table[table["graded"] > 0].groupby(["dataset", "model"], sort=False):
        supervised = rows[rows["family"] == "supervised"]
        held_out = supervised[supervised["split"] != "same-task"]
        label_free = rows[rows["family"] != "supervised"]
        directed = _best(label_free[label_free["directed"].astype(bool)], "tau")
        ceiling = _best(held_out if len(held_out) else supervised, "tau")
        tasks = int(rows["graded"].max())
        best.append(Headline(model, dataset, tasks, directed, _best(label_free, "abs_tau"), ceiling))
    return best


def _best(rows: pd.DataFrame, metric: str) -> Best | None:
    if rows.empty:
        return None
    row = rows.loc[rows[metric].idxmax()]
    floor = signed_floor if metric == "tau" else chance_floor
    chance = floor(row["n_items"], 1 - 0.05 / len(rows))
    return Best(row["method"], row["split"], row["family"], float(row[metric]), chance, len(rows))


def signed_floor(n_items: Sequence[int], level: float = 0.95) -> Interval:
    """The floor of the mean signed τ: 0, with interval ± z √(Σ sd²) / tasks."""
    deviation = math.sqrt(sum(chance_tau_sd(int(n)) ** 2 for n in n_items)) / len(n_items)
    half = float(stats.norm.ppf((1 + level) / 2)) * deviation
    return Interval(0.0, -half, half)


def pack_scores(scores: ArrayLike) -> str:
    """Two digits per score: its position between the lowest and the highest.

    The order and the ties of up to `LEVELS` different scores are kept exactly, distances up to 1 / `LEVELS`.
    """
    values = np.nan_to_num(np.asarray(scores, dtype=float), nan=0.0, posinf=1e300, neginf=-1e300)
    distinct, indices = np.unique(values, return_inverse=True)
    steps = np.arange(len(distinct))
    if len(distinct) == 1:
        levels = np.array([LEVELS // 2])
    elif len(distinct) > LEVELS:
        levels = steps * (LEVELS - 1) // (len(distinct) - 1)
    else:
        # Scale first: differences of large numbers may overflow, and of the smallest ones be 0 when halved.
        scaled = distinct / np.abs(distinct).max()
        share = (scaled - scaled[0]) / (scaled[-1] - scaled[0])
        # Make levels strictly increasing from below, then push them down from above.
        levels = np.maximum.accumulate(np.rint(share * (LEVELS - 1)).astype(int) - steps) + steps
        levels = np.minimum(levels, LEVELS - len(distinct) + steps)
    return "".join(DIGITS[level // 64] + DIGITS[level % 64] for level in levels[indices])


def pack_rankings(results: pd.DataFrame, tasks: StudyTasks) -> dict[str, Any]:
    """The data to draw any task: columns (model, method, split), tasks, and a short entry for each ranking.

    An entry is [column, scores of the first run, 100 τ of it, minimum and maximum of 100 τ over runs]; without a known
    direction τ is |τ|, and the scores are then oriented in the better direction.
    """
    keys, task_keys = ["model", "method", "split"], ["dataset", "task"]
    rows = one_layer(results)
    rows = rows.assign(measured=rows["tau"].where(rows["directed"], rows["abs_tau"]))
    columns = rows.drop_duplicates(keys).sort_values(
        "family", key=lambda families: families.map(family_rank), kind="stable"
    )
    models = [*rows["model"].unique()]
    column_of = {key: index for index, key in enumerate(columns[keys].itertuples(index=False, name=None))}
    runs = rows.sort_values("seed", kind="stable").groupby([*keys, *task_keys], sort=False)
    first = runs.head(1).assign(low=runs["measured"].transform("min"), high=runs["measured"].transform("max"))
    entries: dict[tuple[str, str], list[list[Any]]] = {}
    for row in first.itertuples():
        task = tasks.get((row.dataset, row.task))
        if task is None or row.scores is None or len(row.scores) != len(task.items):
            continue
        sign = -1.0 if not row.directed and row.tau < 0 else 1.0
        packed_scores = pack_scores(sign * np.asarray(row.scores, dtype=float))
        taus = [None if math.isnan(tau) else round(100 * tau) for tau in (row.measured, row.low, row.high)]
        entry = [column_of[row.model, row.method, row.split], packed_scores, *taus]
        entries.setdefault((row.dataset, row.task), []).append(entry)
    packed = [_pack_task(key[0], task, entries[key]) for key, task in tasks.items() if key in entries]
    kept = _within(packed, MAX_BYTES)
    return {
        "models": models,
        "columns": [
            {**row, "model": models.index(row["model"])}
            for row in columns[[*keys, "family", "directed", "layer"]].to_dict("records")
        ],
        "tasks": kept,
        "left_out": len(packed) - len(kept),
    }


def script_json(value: object) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _pack_task(dataset: str, task: Task, entries: list[list[Any]]) -> dict[str, Any]:
    packed: dict[str, Any] = {
        "dataset": dataset,
        "id": task.id,
        "by": task.criterion.name,
        "items": [shortened(item, MAX_ITEM) for item in task.items],
        "rankings": sorted(entries),
    }
    if task.context is not None:
        packed["context"] = shortened(task.context, MAX_CONTEXT)
    if task.values is not None:
        # Equal grades share a rank.
        packed["gold"] = [sum(other > value for other in task.values) for value in task.values]
    return packed


def _within(packed: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Evenly spaced tasks whose JSON has at most `most` bytes."""
    sizes = np.array(
        [len(script_json(task).encode("utf-8", "backslashreplace")) for task in packed], dtype=int
    )
    kept = np.arange(len(packed))
    while (size := int(sizes[kept].sum())) > most:
        count = min(len(kept) - 1, int(len(kept) * most / size))
        kept = kept[np.linspace(0, len(kept) - 1, count).astype(int)]
    return [packed[index] for index in kept]
