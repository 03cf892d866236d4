"""The second pass over a file: every block is scored and stored, with the rows that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.io.blocks import Source
from ccrank.io.cells import item_text
from ccrank.jobs.job_folder import JobFolder
from ccrank.jobs.scan import Scan, block_digest
from ccrank.ranking import ItemScores
from ccrank.scale import Scale, digest
from ccrank.task import normal_form

Blocks = Iterable[tuple[int, list[str]]]
Scored = Iterator[tuple[int, ItemScores]]
Engine = Callable[[Blocks], Scored]
"""(block, its different items) → (block, their scores), in any order."""


def local_engine(scale: Scale) -> Engine:
    """Scores blocks in this process, one after the other."""
    return lambda blocks: ((number, scale.scores_of(items)) for number, items in blocks)


@dataclass(frozen=True)
class ScoringPass:
    """The pass over all rows."""

    folder: JobFolder
    source: Source
    scan: Scan
    scale: Scale
    names: Sequence[str]
    """The columns that are added: score and, if there are two, its deviation."""
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
            self._store(number, table, texts, {digest(item): place for place, item in enumerate(new)}, scores)
            self.advance(table.num_rows)

    def _items(self, table: Any) -> tuple[list[str | None], list[str]]:
        """The item of each row, and the different ones that the scale was not fitted on."""
        texts = [
            item_text(value, str(self.source.path)) for value in table.column(self.source.column).to_pylist()
        ]
        known = self.scale.known.places
        new: dict[bytes, str] = {}
        for text in texts:
            if text is not None and (key := digest(text)) not in known:
                new[key] = min(text, new.get(key, text))
        return texts, sorted(new.values(), key=normal_form)

    def _store(
        self,
        number: int,
        table: Any,
        texts: list[str | None],
        places: Mapping[bytes, int],
        scores: ItemScores,
    ) -> None:
        import pyarrow

        known = self.scale.known
        doubts = None if known.doubts is None else known.doubts[0]
        columns = (known.scores, scores.values), (doubts, scores.deviation)
        for name, (old, new) in zip(self.names, columns, strict=False):
            empty = np.full(max(len(known.scores), len(scores)), np.nan)
            old, new = (empty if one is None else one for one in (old, new))
            values = [
                float("nan")
                if text is None
                else old[known.places[key]]
                if (key := digest(text)) in known.places
                else new[places[key]]
                for text in texts
            ]
            table = table.append_column(name, pyarrow.array(values, pyarrow.float64()))
        self.folder.put(number, table)


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
