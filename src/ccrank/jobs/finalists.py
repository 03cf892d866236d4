"""The best rows of a stream, compared with each other.

The scale of a stream is that of a sample of all items, on which the best lie close together. Finalists are ranked again
as a list of their own, on which their differences count in full; the score of the stream is added to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.io.blocks import Source
from ccrank.io.cells import item_text
from ccrank.io.ranked import DECIMALS, added_names
from ccrank.jobs.job_folder import JobFolder
from ccrank.jobs.ordering import comparable, sorted_scores
from ccrank.methods.registry import METHODS
from ccrank.models import Reader
from ccrank.prompts import Templates
from ccrank.task import Task, normal_form
from ccrank.util.files import write_atomically
from ccrank.util.zscores import z_scores

DEFAULT_REFINEMENT = "auto"
LEAST_FINALISTS = 16
PER_PLACE = 2
"""Finalists for each row that is wanted."""


def check_refinement(method: str) -> None:
    """Raise an error unless finalists can be compared so."""
    if method != "none" and method not in METHODS:
        raise CcrankError(f"--refine {method}: there is no such method; choose auto, prompt-pair or none")


def refine(
    folder: JobFolder,
    source: Source,
    blocks: int,
    task: Task,
    reader: Reader,
    templates: Templates,
    top: int,
    method: str,
    order: Mapping[str, Any],
) -> dict[str, float]:
    """Rank the finalists among themselves: normal form → z(score by the method) + z(score of the stream)."""
    scores = {
        normal_form(text): (score, text)
        for text, score in _best(folder, source, blocks, max(LEAST_FINALISTS, PER_PLACE * top), order)
    }
    if len(scores) < 2:
        return {key: score for key, (score, _) in scores.items()}
    finalists = Task(task.criterion, tuple(text for _, text in scores.values()), task.context, id=task.id)
    [ranking] = rank_tasks([finalists], reader, method, templates)
    refined = z_scores(ranking.scores) + z_scores(np.array([score for score, _ in scores.values()]))
    return dict(zip(scores, map(float, refined), strict=True))


def write_finalists(
    folder: JobFolder,
    source: Source,
    blocks: int,
    out: Path,
    refined: Mapping[str, float],
    top: int,
    order: Mapping[str, Any],
) -> int:
    """Write the best rows in the order of their refined scores, with rank, score and refined score added; returns
    their number.
    """
    import pyarrow
    from pyarrow import parquet

    tables = []
    for block in range(blocks):
        table = folder.part_table(block)
        texts = table.column(source.column).to_pylist()
        kept = [place for place, text in enumerate(texts) if _key(text) in refined]
        if kept:
            tables.append(table.take(pyarrow.array(kept, pyarrow.int64())))
    whole = pyarrow.concat_tables(tables)
    keys = [_key(text) for text in whole.column(source.column).to_pylist()]
    scores = np.array([refined[key] for key in keys])
    places = sorted(range(len(keys)), key=lambda place: (-scores[place], keys[place], place))[:top]
    ranks = [1 + int((scores > scores[place]).sum()) for place in places]
    best = whole.take(pyarrow.array(places, pyarrow.int64()))
    streamed = [round(float(value), DECIMALS) for value in best.column(order["score"]).to_pylist()]
    found = [round(float(scores[place]), DECIMALS) for place in places]
    columns = list(source.schema.names)
    for name, values, kind in zip(
        added_names(columns, ("rank", "score", "refined")),
        (ranks, streamed, found),
        (pyarrow.int64(), pyarrow.float64(), pyarrow.float64()),
        strict=True,
    ):
        if name == order["score"]:
            best = best.drop_columns([name])
        best = best.append_column(name, pyarrow.array(values, kind))
    write_atomically(out, lambda partial: parquet.write_table(best, partial), sync=True)
    return len(places)


def _key(text: object) -> str:
    return normal_form(item_text(text, "") or "")


def _best(
    folder: JobFolder, source: Source, blocks: int, count: int, order: Mapping[str, Any]
) -> list[tuple[str, float]]:
    """The different items of the best `count` rows, best first."""
    score, decimals = order["score"], order["decimals"]
    with folder.scratch() as scratch:
        ascending = sorted_scores(folder, blocks, score, decimals, scratch).ascending
        least = float(ascending[-min(count, len(ascending))])
        del ascending
    found: dict[str, tuple[str, float]] = {}
    for block in range(blocks):
        table = folder.part_table(block, [source.column, score])
        own = comparable(folder.part_scores(block, score), decimals)
        for place in np.flatnonzero(own >= least):
            text = item_text(table.column(source.column)[int(place)].as_py(), source.column) or ""
            found.setdefault(normal_form(text), (text, float(own[place])))
    ordered = sorted(found, key=lambda key: (-found[key][1], key))
    return [found[key] for key in ordered[:count]]
