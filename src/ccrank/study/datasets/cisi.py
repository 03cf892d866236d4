"""CISI: 35 queries about library and information science, each with the first 30 abstracts that BM25 finds.

The file has one JSON object per line: id, query, items (title and first 100 words), values (1 = relevant) and bm25, the
scores by which they were found (k1 0.9, b 0.4, over the whole collection). The items are shuffled here; their ids are
their ranks by BM25.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ccrank.datasets.dataset import Dataset, check_choice, shuffled
from ccrank.datasets.files import DataFile, locate
from ccrank.errors import CcrankError
from ccrank.files import json_lines, read_text
from ccrank.task import Task, normal_form

_FILE = DataFile(
    path="cisi/candidates.jsonl",
    url="https://ir.dcs.gla.ac.uk/resources/test_collections/cisi/",
    sha256=None,
)
HALVES = ("all", "choose", "report")


def _read(data_dir: str | Path | None = None, *, half: str = "all") -> list[Task]:
    """`half=choose` has the queries with even places in the file, the first being 0; `half=report` the others."""
    check_choice("half", half, HALVES)
    path = locate(_FILE, data_dir)
    tasks = [
        _task(value, f"{path}, line {number}") for number, _, value in json_lines(read_text(path), str(path))
    ]
    return tasks if half == "all" else tasks[HALVES.index(half) - 1 :: 2]


def _task(value: Any, where: str) -> Task:
    try:
        task = Task.parse(_without_repeats(value))
    except CcrankError as error:
        raise CcrankError(f"{where}: {error}") from None
    if task.query is None or task.values is None or task.first_stage is None:
        raise CcrankError(f"{where}: needs a query, values and bm25")
    ids = shuffled([str(rank) for rank in range(1, len(task.items) + 1)], task.id)
    order = [int(one) - 1 for one in ids]
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
    places: dict[str, list[int]] = {}
    for place, item in enumerate(value["items"]):
        places.setdefault(normal_form(str(item)), []).append(place)
    return {
        **value,
        "items": [value["items"][own[0]] for own in places.values()],
        "values": [max(value["values"][place] for place in own) for own in places.values()],
        "bm25": [value["bm25"][own[0]] for own in places.values()],
    }


DATASET = Dataset(
    name="cisi",
    kind="relevance",
    summary="Abstracts by relevance to a query: the first 30 of BM25, 35 queries on information science",
    licence="none stated",
    source=_FILE.url,
    paper_tasks=None,
    paper_items=None,
    departs=(
        "not in the paper. Of the collection's queries 35 are kept, and of its 1,460 abstracts the first 30 of BM25 "
        "for each, repeated ones once; relevance is binary"
    ),
    read=_read,
    files=(_FILE,),
)
