"""The second pass over a file: every block is scored and stored, with the rows that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.io.blocks import Source
from ccrank.io.cells import item_text
from ccrank.jobs.job_folder import JobFolder
from ccrank.jobs.scan import Scan, block_digest
from ccrank.jobs.scorer import Engine
from ccrank.task import normal_form


@dataclass(frozen=True)
class ScoringPass:
    """The pass over all rows."""

    folder: JobFolder
    source: Source
    scan: Scan
    known: Mapping[str, float]
    """Normal form → score of the items that are in the sample."""
    score_column: str
    advance: Callable[[int], None]
    """Is called with the number of rows that were just stored."""

    def score(self, engine: Engine, finished: set[int]) -> None:
        """Score and store every block that is not finished. Rows of blocks in flight are in memory."""
        waiting: dict[int, tuple[Any, list[str | None], list[str]]] = {}

        def blocks() -> Iterator[tuple[int, list[str]]]:
            for number, table in enumerate(_cut(self.source.tables(), self.scan.blocks)):
                if number in finished:
                    continue
                texts, new = self._items(table)
                if block_digest(texts) != self.scan.digests[number]:
                    raise CcrankError(
                        f"{self.source.path} was changed after the job had begun: its rows are no longer those of the "
                        f"first pass; delete the folder {self.folder.path} and repeat the command"
                    )
                waiting[number] = table, texts, new
                yield number, new

        for number, scores in engine(blocks()):
            table, texts, new = waiting.pop(number)
            own = {normal_form(item): float(score) for item, score in zip(new, scores, strict=True)}
            self._store(number, table, texts, own)
            self.advance(table.num_rows)

    def _items(self, table: Any) -> tuple[list[str | None], list[str]]:
        """The item of each row, and the different ones that are not in the sample."""
        texts = [
            item_text(value, str(self.source.path)) for value in table.column(self.source.column).to_pylist()
        ]
        new: dict[str, str] = {}
        for text in texts:
            if text is not None and (key := normal_form(text)) not in self.known:
                new[key] = min(text, new.get(key, text))
        return texts, [new[key] for key in sorted(new)]

    def _store(self, number: int, table: Any, texts: list[str | None], own: Mapping[str, float]) -> None:
        import pyarrow

        known = self.known
        scores = [
            float("nan") if text is None else known[key] if (key := normal_form(text)) in known else own[key]
            for text in texts
        ]
        column = pyarrow.array(scores, pyarrow.float64())
        self.folder.put(number, table.append_column(self.score_column, column))


def _cut(tables: Iterator[Any], sizes: tuple[int, ...]) -> Iterator[Any]:
    """The rows of tables of any length as tables of the given lengths."""
    import pyarrow

    rest: Any = None
    for size in sizes:
        while rest is None or rest.num_rows < size:
            more = next(tables, None)
            if more is None:
                raise CcrankError("the input has fewer rows than in the first pass; it was changed meanwhile")
            rest = more if rest is None else pyarrow.concat_tables([rest, more])
        yield rest.slice(0, size)
        # A copy of what is left: a slice would keep the whole table in memory.
        rest = rest.slice(size)
        rest = None if rest.num_rows == 0 else rest.take(pyarrow.array(np.arange(rest.num_rows)))
