"""A compact encoding of every task's rankings, from which the page draws one task on demand."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ccrank.study.results.load import StudyTasks
from ccrank.study.results.tables import family_rank, one_layer
from ccrank.task import Task
from ccrank.util.text import shortened

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
LEVELS = len(DIGITS) ** 2
MAX_BYTES = 2_000_000
"""Maximal size of the rankings on the page; if exceeded, an evenly spaced subset of tasks is included."""
MAX_CONTEXT = 700
MAX_ITEM = 160


def pack_scores(scores: ArrayLike) -> str:
    """Two digits per score: its position between the lowest and the highest.

    The order and the ties of up to `LEVELS` different scores are kept exactly, distances up to 1 / `LEVELS`.
    """
    values = np.nan_to_num(np.asarray(scores, dtype=float), nan=0.0, posinf=1e300, neginf=-1e300)
    distinct, indices = np.unique(values, return_inverse=True)
    if len(distinct) == 1:
        levels = np.array([LEVELS // 2])
    elif len(distinct) > LEVELS:
        levels = np.arange(len(distinct)) * (LEVELS - 1) // (len(distinct) - 1)
    else:
        # Halve first: the difference of finite numbers may overflow.
        share = (distinct / 2 - distinct[0] / 2) / (distinct[-1] / 2 - distinct[0] / 2)
        steps = np.arange(len(distinct))
        # Make levels strictly increasing from below, then push them down from above.
        levels = np.maximum.accumulate(np.rint(share * (LEVELS - 1)).astype(int) - steps) + steps
        levels = np.minimum(levels, LEVELS - len(distinct) + steps)
    return "".join(DIGITS[level // 64] + DIGITS[level % 64] for level in levels[indices])


def pack_rankings(results: pd.DataFrame, tasks: StudyTasks) -> dict[str, Any]:
    """The data to draw any task: columns (model, method, split), tasks, and a short entry for each ranking.

    An entry is [column, scores of the first run, 100 τ of it, minimum and maximum of 100 τ over runs]; without a known
    direction τ is |τ|, and the scores are then oriented in the better direction.
    """
    rows = one_layer(results)
    keys = ["model", "method", "split"]
    columns = rows.drop_duplicates(keys).sort_values(
        "family", key=lambda families: families.map(family_rank), kind="stable"
    )
    models = list(dict.fromkeys(rows["model"]))
    column_of = {key: index for index, key in enumerate(columns[keys].itertuples(index=False, name=None))}
    measured = rows["tau"].where(rows["directed"], rows["abs_tau"])
    span = measured.groupby([rows[name] for name in (*keys, "dataset", "task")], sort=False).agg(
        ["min", "max"]
    )
    first = rows.sort_values("seed", kind="stable").drop_duplicates([*keys, "dataset", "task"])
    entries: dict[tuple[str, str], list[list[Any]]] = {}
    for row in first.itertuples():
        task = tasks.get((row.dataset, row.task))
        if task is None or row.scores is None or len(row.scores) != len(task.items):
            continue
        key = (row.model, row.method, row.split)
        sign = -1.0 if not row.directed and row.tau < 0 else 1.0
        taus = (row.tau if row.directed else row.abs_tau, *span.loc[(*key, row.dataset, row.task)])
        entry = [
            column_of[key],
            pack_scores(sign * np.asarray(row.scores, dtype=float)),
            *map(_percent, taus),
        ]
        entries.setdefault((row.dataset, row.task), []).append(entry)
    packed = [
        _pack_task(dataset, tasks[dataset, name], entries[dataset, name])
        for dataset, name in tasks
        if (dataset, name) in entries
    ]
    kept = _within(packed, MAX_BYTES)
    return {
        "models": models,
        "columns": [
            {
                "model": models.index(row.model),
                "method": row.method,
                "split": row.split,
                "family": row.family,
                "directed": bool(row.directed),
                "layer": int(row.layer),
            }
            for row in columns.itertuples()
        ],
        "tasks": kept,
        "left_out": len(packed) - len(kept),
    }


def script_json(value: object) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


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
        gold = np.asarray(task.values)
        packed["gold"] = [int((gold > value).sum()) for value in gold]  # equal grades share a place
    return packed


def _within(packed: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Evenly spaced tasks whose JSON has at most `most` bytes."""
    sizes = [len(script_json(task).encode("utf-8", "backslashreplace")) for task in packed]
    kept = list(range(len(packed)))
    while (size := sum(sizes[index] for index in kept)) > most:
        count = min(len(kept) - 1, int(len(kept) * most / size))
        kept = [kept[int(index)] for index in np.linspace(0, len(kept) - 1, count)]
    return [packed[index] for index in kept]


def _percent(value: float) -> int | None:
    return None if value is None or math.isnan(value) else round(100 * value)
