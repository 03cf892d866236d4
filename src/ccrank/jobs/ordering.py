"""From scored parts in the order of the input to one file in the order of ranks, in bounded memory.

The scores alone are sorted on disk. Rows are then distributed to buckets of consecutive ranks, and each bucket is
sorted and written in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.io.blocks import Source
from ccrank.io.cells import item_text
from ccrank.io.ranked import DECIMALS, added_names
from ccrank.jobs.job_folder import JobFolder
from ccrank.task import normal_form
from ccrank.util.files import write_atomically

BUCKET_ROWS = 1 << 16
MOST_BUCKETS = 256
"""Files that are open at a time. Beyond this many times `BUCKET_ROWS` buckets grow with the file."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of all scores, from the scores sorted on disk."""

    ascending: np.ndarray
    """(N,) the scores of all rows with an item."""

    def of(self, scores: np.ndarray) -> np.ndarray:
        """1 + the number of rows with a higher score; 0 for rows without an item."""
        higher = len(self.ascending) - np.searchsorted(self.ascending, scores, side="right")
        return np.where(np.isnan(scores), 0, 1 + higher)


def sorted_scores(folder: JobFolder, blocks: int, column: str, decimals: int | None, scratch: Path) -> Ranks:
    """Sort the scores of all parts in a file that is mapped into memory."""
    path, count = scratch / "scores", 0
    with path.open("wb") as stream:
        for block in range(blocks):
            scores = comparable(folder.part_scores(block, column), decimals)
            scores = scores[~np.isnan(scores)]
            count += len(scores)
            scores.tofile(stream)
    mapped = np.memmap(path, dtype=float, mode="r+", shape=(count,)) if count else np.zeros(0)
    mapped.sort()
    return Ranks(mapped)


def comparable(scores: np.ndarray, decimals: int | None) -> np.ndarray:
    """Scores as they are compared; 0 and −0 are the same."""
    return scores if decimals is None else np.round(scores, decimals) + 0.0


def write_ranked(
    folder: JobFolder,
    source: Source,
    blocks: int,
    out: Path,
    *,
    score: str,
    decimals: int | None = None,
    reverse: bool = False,
    top: int | None = None,
    bucket_rows: int = BUCKET_ROWS,
) -> int:
    """Write all rows in the order of their ranks, with `rank` and `score` added; returns their number."""
    from pyarrow import parquet

    names = _Names.of(source, score)
    with folder.scratch() as scratch:
        ranks = sorted_scores(folder, blocks, score, decimals, scratch)
        total = len(ranks.ascending)
        size = max(bucket_rows, -(-total // MOST_BUCKETS))
        buckets = _Buckets(scratch, -(-total // size) + 1)
        wanted = total if top is None else min(top, total)
        start = 0
        for block in range(blocks):
            table = folder.part_table(block)
            own = comparable(_numbers(table, score), decimals)
            rank = ranks.of(own)
            buckets.add(names.with_places(table, rank, start), np.where(rank == 0, -1, (rank - 1) // size))
            start += table.num_rows
        buckets.close()

        def write(partial: Path) -> None:
            left = wanted
            writer = None
            for table in buckets.tables(reverse, with_rest=top is None):
                ordered = names.ordered(names.sorted(table, source.column, reverse))
                if top is not None:
                    ordered = ordered.slice(0, left)
                    left -= ordered.num_rows
                writer = writer or parquet.ParquetWriter(partial, ordered.schema)
                writer.write_table(ordered)
                if top is not None and not left:
                    break
            if writer is not None:
                writer.close()

        write_atomically(out, write, sync=True)
    return wanted if top is not None else start


def write_scored(folder: JobFolder, blocks: int, out: Path, names: Sequence[str]) -> int:
    """Write all rows in their own order, with the scores that were added under `names`; returns their number."""
    import pyarrow
    from pyarrow import parquet

    count = 0

    def write(partial: Path) -> None:
        nonlocal count
        writer = None
        for block in range(blocks):
            table = folder.part_table(block)
            for name in table.column_names[-len(names) :]:
                if name in names:
                    values = [None if one != one else round(one, DECIMALS) for one in _numbers(table, name)]
                    place = table.column_names.index(name)
                    table = table.set_column(place, name, pyarrow.array(values, pyarrow.float64()))
            writer = writer or parquet.ParquetWriter(partial, table.schema)
            writer.write_table(table)
            count += table.num_rows
        if writer is not None:
            writer.close()

    write_atomically(out, write, sync=True)
    return count


def _numbers(table: Any, column: str) -> np.ndarray:
    return np.asarray(table.column(column).to_numpy(zero_copy_only=False), dtype=float)


class _Buckets:
    """Temporary files of rows of consecutive ranks; the last is for rows without an item."""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [folder / f"bucket-{number}" for number in range(count)]
        self.writers: dict[int, Any] = {}

    def add(self, table: Any, numbers: np.ndarray) -> None:
        import pyarrow

        for number in np.unique(numbers):
            place = int(number) % len(self.paths)
            if place not in self.writers:
                self.writers[place] = pyarrow.ipc.new_stream(str(self.paths[place]), table.schema)
            self.writers[place].write_table(table.filter(pyarrow.array(numbers == number)))

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()

    def tables(self, reverse: bool, with_rest: bool) -> Iterator[Any]:
        import pyarrow

        ranked = range(len(self.paths) - 1)
        order = [*(reversed(ranked) if reverse else ranked), *([len(self.paths) - 1] if with_rest else [])]
        for place in order:
            if place in self.writers:
                with pyarrow.OSFile(str(self.paths[place])) as file:
                    yield pyarrow.ipc.open_stream(file).read_all()
                self.paths[place].unlink()


@dataclass(frozen=True)
class _Names:
    """The columns of the output: those of the input with rank and score, under names that are not taken. Until then
    rows carry their rank and their place in the input."""

    plain: bool
    columns: tuple[str, ...]
    score: str
    rank: str
    row: str

    @classmethod
    def of(cls, source: Source, score: str) -> _Names:
        columns = tuple(source.schema.names)
        return cls(source.plain, columns, score, *added_names((*columns, score), ("input rank", "input row")))

    def with_places(self, table: Any, rank: np.ndarray, start: int) -> Any:
        import pyarrow

        rows = pyarrow.array(np.arange(start, start + table.num_rows))
        return table.append_column(self.rank, pyarrow.array(rank)).append_column(self.row, rows)

    def sorted(self, table: Any, column: str, reverse: bool) -> Any:
        """The rows of a bucket by rank, then by text, then by row, as a ranking in memory has them."""
        import pyarrow

        ranks, rows = (table.column(name).to_pylist() for name in (self.rank, self.row))
        texts = table.column(column).to_pylist()
        if all(rank == 0 for rank in ranks):
            order = sorted(range(len(rows)), key=lambda place: rows[place])
        else:
            tied = {
                rank for rank, count in zip(*np.unique(ranks, return_counts=True), strict=True) if count > 1
            }
            keys = [
                (rank, normal_form(item_text(text, column) or "") if rank in tied else "", row)
                for rank, text, row in zip(ranks, texts, rows, strict=True)
            ]
            order = sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
        return table.take(pyarrow.array(order, pyarrow.int64()))

    def ordered(self, table: Any) -> Any:
        import pyarrow

        ranks = [rank or None for rank in table.column(self.rank).to_pylist()]
        scores = [None if value != value else round(value, DECIMALS) for value in _numbers(table, self.score)]
        rank = pyarrow.array(ranks, pyarrow.int64())
        score = pyarrow.array(scores, pyarrow.float64())
        if self.plain:
            return pyarrow.table({"rank": rank, "item": table.column(self.columns[0]), "score": score})
        names = added_names(self.columns)
        kept = table.select(list(range(len(self.columns))))
        return kept.append_column(names[0], rank).append_column(names[1], score)
