"""TREC run files in and out: `query Q0 document rank score tag`, one line for each document of each query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from ccrank.errors import CcrankError
from ccrank.task import Task
from ccrank.util.files import read_text
from ccrank.util.text import encodable, quoted

Run = Mapping[str, Mapping[str, float]]
"""Query id → document id → score."""


def read_run(path: str | Path) -> dict[str, dict[str, float]]:
    """The scores of a run file by query and document; ranks and tags are not used."""
    run: dict[str, dict[str, float]] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        cells = line.split()
        if len(cells) != 6:
            raise CcrankError(
                f"{where}: a run has 6 cells, `query Q0 document rank score tag`, got {quoted(line)}"
            )
        query, _, document, _, text, _ = cells
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise CcrankError(f"{where}: the score {text!r} is not a finite number")
        scores = run.setdefault(query, {})
        if document in scores:
            raise CcrankError(f"{where}: the document {document!r} is twice in the run of query {query!r}")
        scores[document] = score
    if not run:
        raise CcrankError(f"{path} is an empty run; give lines `query Q0 document rank score tag`")
    return run


def run_lines(query: str, documents: Sequence[tuple[str, float]], tag: str) -> Iterator[str]:
    for rank, (document, score) in enumerate(documents, start=1):
        yield f"{safe(query)} Q0 {safe(document)} {rank} {score:.9g} {safe(tag)}\n"


def with_first_stage(tasks: Iterable[Task], run: Run) -> list[Task]:
    """The tasks with the scores of a run as first-stage scores.

    A query is named by the task's id, or by `dataset/id` as in the runs of studies; a document by `document_ids`. One
    that the run of its query lacks was not found, and gets the lowest score of that run.
    """
    by_task = {**{name.rpartition("/")[2]: scores for name, scores in run.items()}, **run}
    with_scores = []
    for task in tasks:
        scores = by_task.get(safe(task.id))
        names = document_ids(task)
        if scores is None:
            raise CcrankError(
                f"the run has no query {safe(task.id)!r}; it has {', '.join(map(repr, list(run)[:5]))} …; the id of a "
                "task is the id of its query"
            )
        if not any(name in scores for name in names):
            raise CcrankError(
                f"task {task.id!r}: the run has none of its documents, {', '.join(map(repr, names[:3]))} …; "
                f"its documents are {', '.join(map(repr, list(scores)[:3]))} …: give the tasks item_ids"
            )
        lowest = min(scores.values())
        with_scores.append(replace(task, first_stage=tuple(scores.get(name, lowest) for name in names)))
    return with_scores


def query_id(dataset: str, task: str) -> str:
    """A task's query id in the files of a study."""
    return f"{safe(dataset)}/{safe(task)}"


def document_ids(task: Task) -> list[str]:
    """Unique ids of the items, without white space: the task's own, the places of documents, or the items' texts."""
    if task.item_ids is not None:
        return list(task.item_ids)
    if task.query is not None:
        return [str(number) for number in range(1, len(task.items) + 1)]
    ids: dict[str, None] = {}
    for name in map(safe, task.items):
        names = chain((name,), (f"{name}#{number}" for number in count(2)))
        ids[next(new for new in names if new not in ids)] = None
    return [*ids]


def safe(text: str) -> str:
    """A text without white space or control characters, never empty."""
    folded = "_".join(encodable(text).split())
    return "".join(char if char.isprintable() else "_" for char in folded) or "_"
