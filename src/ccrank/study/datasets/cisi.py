"""CISI: 35 queries about library and information science, each with the first 30 abstracts that BM25 finds.

The file has one JSON object per line: id, query, items (title and first 100 words), values (1 = relevant) and bm25, the
scores by which they were found (k1 0.9, b 0.4, over the whole collection). The items are shuffled here; their ids are
their ranks by BM25.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ccrank.errors import CcrankError
from ccrank.study.datasets.dataset import shuffled
from ccrank.study.datasets.locate import DataFile, locate
from ccrank.task import Task, normal_form
from ccrank.util.files import json_lines, read_text

CANDIDATES = DataFile(
    path="cisi/candidates.jsonl",
    url="https://ir.dcs.gla.ac.uk/resources/test_collections/cisi/",
    sha256=None,
)


def read(
    data_dir: str | Path | None = None, *, half: Literal["all", "choose", "report"] = "all"
) -> list[Task]:
    """`half=choose` has the queries with even places in the file, the first being 0; `half=report` the others."""
    path = locate(CANDIDATES, data_dir)
    tasks = [
        _task(value, f"{path}, line {number}") for number, _, value in json_lines(read_text(path), str(path))
    ]
    return tasks if half == "all" else tasks[("choose", "report").index(half) :: 2]


def _task(value: Any, where: str) -> Task:
    try:
        task = Task.parse(_without_repeats(value))
    except CcrankError as error:
        raise CcrankError(f"{where}: {error}") from None
    if task.query is None or task.values is None or task.first_stage is None:
        raise CcrankError(f"{where}: needs a query, values and bm25")
    ids = shuffled([str(rank) for rank in range(1, len(task.items) + 1)], task.id)
    order = [int(rank) - 1 for rank in ids]
    return replace(
        task,
        items=tuple(task.items[index] for index in order),
        values=tuple(task.values[index] for index in order),
        first_stage=tuple(task.first_stage[index] for index in order),
        item_ids=tuple(ids),
    )


def _without_repeats(value: Any) -> Any:
    """The object with each item once, at its first place; it is relevant if one of its copies was judged so."""
    aligned = ("items", "values", "bm25")
    if not isinstance(value, dict) or not all(isinstance(value.get(name), list) for name in aligned):
        return value
    if len({len(value[name]) for name in aligned}) > 1:
        return value
    copies: dict[str, list[int]] = {}
    for index, item in enumerate(value["items"]):
        copies.setdefault(normal_form(str(item)), []).append(index)
    return {
        **value,
        "items": [value["items"][indices[0]] for indices in copies.values()],
        "values": [max(value["values"][index] for index in indices) for indices in copies.values()],
        "bm25": [value["bm25"][indices[0]] for indices in copies.values()],
    }
