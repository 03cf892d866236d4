"""From scored blocks to the output file, in bounded memory: rows by rank, the best compared again, or in their order.

The scores alone are sorted on disk. Rows are then distributed to buckets of consecutive ranks, and each bucket is
sorted and written in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.api import rank_tasks
from ccrank.io.reading import ITEM, Source
from ccrank.io.table import DECIMALS, added_names
from ccrank.jobs.job_folder import JobFolder
from ccrank.models import Reader
from ccrank.scale import Scale
from ccrank.task import Task, normal_form
from ccrank.util.files import arrow, write_atomically
from ccrank.util.zscores import z_scores

MIN_BUCKET_ROWS = 1 << 16
MAX_BUCKETS = 256
"""Files that are open at a time; longer files have larger buckets instead."""
MIN_FINALISTS = 16
FINALISTS_PER_ROW = 2
"""Finalists for each row that is wanted."""


@dataclass(frozen=True)
class ScoredRows:
    """The rows of a file with their scores, as a job has stored them block by block."""

    folder: JobFolder
    source: Source
    blocks: int
    score: str
    """The column of scores."""
    decimals: int | None
    """Decimals to which scores are compared; None compares them as they are."""

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The blocks, in the order of the input."""
        return (self.folder.part_table(block, columns) for block in range(self.blocks))

    def scores(self, table: Any) -> np.ndarray:
        """(rows,) scores as they are compared, with 0 for −0; NaN for rows without an item."""
        scores = _numbers(table, self.score)
        return scores if self.decimals is None else np.round(scores, self.decimals) + 0.0

    def keys(self, table: Any) -> list[str]:
        """The normal form of each row's item; empty without one."""
        return [normal_form(text or "") for text in self.source.items_of(table)]

    def sorted_scores(self, scratch: Path) -> np.ndarray:
        """(rows with an item,) all scores in ascending order, in a file that is mapped into memory."""
        path, count = scratch / "scores", 0
        with path.open("wb") as stream:
            for table in self.tables([self.score]):
                scores = self.scores(table)
                scores = scores[~np.isnan(scores)]
                count += len(scores)
                scores.tofile(stream)
        mapped = np.memmap(path, dtype=float, mode="r+", shape=(count,)) if count else np.zeros(0)
        mapped.sort()
        return mapped

    def with_added(self, table: Any, added: Mapping[str, Any]) -> Any:
        """The columns of the input with others, under names that are not taken."""
        names = self.source.schema.names
        table = table.select(list(range(len(names))))
        for name, values in zip(added_names(names, (*added,)), added.values(), strict=True):
            table = table.append_column(name, values)
        return table


def write_ranked(rows: ScoredRows, out: Path, top: int | None = None, reverse: bool = False) -> int:
    """Write the rows in the order of their ranks, with `rank` and `score` added; returns their number."""
    with rows.folder.scratch() as scratch:
        return _write_tables(out, _ranked(rows, scratch, top, reverse))


def _ranked(rows: ScoredRows, scratch: Path, top: int | None, reverse: bool) -> Iterator[Any]:
    """Tables of the output, each from a bucket of rows of consecutive ranks; the last is of rows without an item."""
    pyarrow = arrow()
    ascending = rows.sorted_scores(scratch)
    size = max(MIN_BUCKET_ROWS, -(-len(ascending) // MAX_BUCKETS))
    last = -(-len(ascending) // size)
    writers: dict[int, Any] = {}
    left = 0
    for table in rows.tables():
        scores = rows.scores(table)
        buckets = np.where(np.isnan(scores), last, (_ranks(scores, ascending) - 1) // size)
        for bucket in map(int, np.unique(buckets)):
            if bucket not in writers:
                writers[bucket] = pyarrow.ipc.new_stream(str(scratch / f"bucket-{bucket}"), table.schema)
            writers[bucket].write_table(table.filter(pyarrow.array(buckets == bucket)))
        left += table.num_rows
    for writer in writers.values():
        writer.close()
    left = left if top is None else min(top, len(ascending))
    for bucket in sorted(writers, key=lambda bucket: (bucket == last, -bucket if reverse else bucket)):
        if left:
            path = scratch / f"bucket-{bucket}"
            with pyarrow.OSFile(str(path)) as file:
                table = pyarrow.ipc.open_stream(file).read_all()
            path.unlink()
            ranks = _ranks(rows.scores(table), ascending)
            order = _order(rows, table, ranks)[:: -1 if reverse and bucket != last else 1][:left]
            left -= len(order)
            table = table.take(pyarrow.array(order, pyarrow.int64()))
            numbers = pyarrow.array(ranks[order], pyarrow.int64(), mask=np.full(len(order), bucket == last))
            added = rows.with_added(table, {"rank": numbers, "score": _rounded(_numbers(table, rows.score))})
            yield added.select(["rank", ITEM, "score"]) if rows.source.plain else added


def _ranks(scores: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """1 + the number of higher scores among all; 1 for NaN."""
    ranks: np.ndarray = 1 + len(ascending) - np.searchsorted(ascending, scores, side="right")
    return ranks


def _order(rows: ScoredRows, table: Any, ranks: np.ndarray) -> list[int]:
    """Rows by rank, then by text, then as they are, as a ranking in memory has them."""
    pyarrow = arrow()
    _, group, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    tied = np.flatnonzero(counts[group] > 1)
    texts = rows.keys(table.select([rows.source.column]).take(pyarrow.array(tied)))
    text_of = dict(zip(tied.tolist(), texts, strict=True))
    keys = [(rank, text_of.get(row, "")) for row, rank in enumerate(ranks.tolist())]
    return sorted(range(len(keys)), key=keys.__getitem__)


def write_finalists(rows: ScoredRows, out: Path, top: int, scale: Scale, reader: Reader, method: str) -> int:
    """Write the best rows, with `rank`, `score` and `refined` added; returns their number.

    On a scale that was fitted to a sample of all items, the best lie close together. Ranked again by themselves, they
    are spread; the score of the stream is added: refined = z(score by the method) + z(score of the stream).
    """
    pyarrow = arrow()
    finalists = _best(rows, max(MIN_FINALISTS, FINALISTS_PER_ROW * top))
    values = np.array([score for _, score in finalists.values()])
    if len(finalists) > 1:
        texts = tuple(text for text, _ in finalists.values())
        task = Task(scale.criterion, texts, scale.notes.context, id=scale.notes.id)
        [ranking] = rank_tasks([task], reader, method, scale.templates)
        values = z_scores(ranking.scores) + z_scores(values)
    refined = dict(zip(finalists, values.tolist(), strict=True))
    tables = []
    for table in rows.tables():
        chosen = [row for row, key in enumerate(rows.keys(table)) if key in refined]
        tables.append(table.take(pyarrow.array(chosen, pyarrow.int64())))
    table = pyarrow.concat_tables(tables)
    scores = np.array([refined[key] for key in rows.keys(table)])
    ranks = _ranks(scores, np.sort(scores))
    order = _order(rows, table, ranks)[:top]
    table = table.take(pyarrow.array(order, pyarrow.int64()))
    added = {"rank": pyarrow.array(ranks[order]), "score": _rounded(_numbers(table, rows.score))}
    return _write_tables(out, [rows.with_added(table, added | {"refined": _rounded(scores[order])})])


def _best(rows: ScoredRows, count: int) -> dict[str, tuple[str, float]]:
    """The different items of the best `count` rows, best first: normal form → text and score."""
    pyarrow = arrow()
    with rows.folder.scratch() as scratch:
        ascending = rows.sorted_scores(scratch)
        lowest = float(ascending[-min(count, len(ascending))])
        del ascending
    best: dict[str, tuple[str, float]] = {}
    for table in rows.tables([rows.source.column, rows.score]):
        scores = rows.scores(table)
        chosen = np.flatnonzero(scores >= lowest)
        texts = rows.source.items_of(table.take(pyarrow.array(chosen)))
        for text, score in zip(texts, scores[chosen].tolist(), strict=True):
            best.setdefault(normal_form(text or ""), (text or "", score))
    ordered = sorted(best, key=lambda key: (-best[key][1], key))
    return {key: best[key] for key in ordered[:count]}


def write_scored(rows: ScoredRows, out: Path, names: Sequence[str]) -> int:
    """Write the rows in their own order, with the scores that were added under `names`; returns their number."""

    def tables() -> Iterator[Any]:
        for table in rows.tables():
            added = {name: _rounded(_numbers(table, name)) for name in names if name in table.column_names}
            yield rows.with_added(table, added)

    return _write_tables(out, tables())


def _write_tables(out: Path, tables: Iterable[Any]) -> int:
    """Write tables of one schema to a Parquet file, one after the other; returns their number of rows."""
    count = 0

    def write(partial: Path) -> None:
        nonlocal count
        writer = None
        for table in tables:
            writer = writer or arrow().parquet.ParquetWriter(partial, table.schema)
            writer.write_table(table)
            count += table.num_rows
        if writer is not None:
            writer.close()

    write_atomically(out, write, sync=True)
    return count


def _rounded(scores: Iterable[float]) -> Any:
    """A column of scores as they are written; null for NaN."""
    pyarrow = arrow()
    values = [None if score != score else round(float(score), DECIMALS) for score in scores]
    return pyarrow.array(values, pyarrow.float64())


def _numbers(table: Any, column: str) -> np.ndarray:
    return np.asarray(table.column(column).to_numpy(zero_copy_only=False), dtype=float)
