"""The two passes over a file: the first counts rows and samples items, the second scores and stores each block."""

from __future__ import annotations

import copy
import hashlib
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.io import Rows
from ccrank.io.reading import Source
from ccrank.jobs.job_folder import JobFolder
from ccrank.models import Reader
from ccrank.ranking import ItemScores
from ccrank.scale import Scale
from ccrank.task import normal_form
from ccrank.util.files import arrow

MAX_BLOCK_ROWS = 4096
MAX_BLOCK_CHARACTERS = 1 << 18
"""A block ends at either limit, so that all blocks take about as long."""

Blocks = Iterable[tuple[int, list[str]]]
Scored = Iterator[tuple[int, ItemScores]]
Engine = Callable[[Scale, Reader, Blocks], Scored]
"""(block, its different items) → (block, their scores), in any order."""


@dataclass(frozen=True)
class Scan:
    """What the first pass found."""

    blocks: tuple[int, ...]
    """The number of rows of each block."""
    digests: tuple[str, ...]
    """A digest of the items of each block, by which the second pass knows that the file has not changed."""
    items: int
    """Rows that have an item."""
    sample: tuple[str, ...]
    """Different items, sorted by text."""
    complete: bool
    """Whether the sample has every item of the file."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.blocks)


def scan(
    texts: Iterable[list[str | None]],
    size: int,
    always: Collection[str] = frozenset(),
    block_rows: int = MAX_BLOCK_ROWS,
    block_characters: int = MAX_BLOCK_CHARACTERS,
) -> Scan:
    """Count the rows, cut them into blocks and sample the items.

    The sample has the `size` items with the smallest hashes: a uniform sample of the different items, whatever their
    order in the file and however often each is repeated, and those of `always`, which are in normal form. Of two
    spellings that count as the same item the first in the order of texts is taken, as in a ranking in memory.
    """
    counts, digests = list[int](), list[str]()
    spelling: dict[str, str] = {}
    labelled: dict[str, str] = {}
    items, complete = 0, True
    for block in _blocks(texts, block_rows, block_characters):
        counts.append(len(block))
        digests.append(_block_digest(block))
        for text in filter(None, block):
            items += 1
            key = normal_form(text)
            spelling[key] = min(text, spelling.get(key, text))
            if key in always:
                labelled[key] = min(text, labelled.get(key, text))
            if len(spelling) > 2 * size + MAX_BLOCK_ROWS:
                spelling, complete = _sampled(spelling, size), False
    complete = complete and len(spelling) <= size
    sample = {**labelled, **_sampled(spelling, size)}
    return Scan(tuple(counts), tuple(digests), items, tuple(sample[key] for key in sorted(sample)), complete)


def _sampled(spelling: dict[str, str], size: int) -> dict[str, str]:
    kept = heapq.nsmallest(size, spelling, key=lambda key: _digest(key).digest())
    return {key: spelling[key] for key in kept}


def _blocks(texts: Iterable[list[str | None]], rows: int, characters: int) -> Iterator[list[str | None]]:
    """Blocks that end when they have `rows` rows, or at least `characters` characters."""
    block: list[str | None] = []
    length = 0
    for some_texts in texts:
        for text in some_texts:
            block.append(text)
            length += len(text or "")
            if len(block) == rows or length >= characters:
                yield block
                block, length = [], 0
    if block:
        yield block


def _block_digest(texts: Sequence[str | None]) -> str:
    return _digest("".join(f"{-1 if text is None else len(text)}:{text or ''}" for text in texts)).hexdigest()


def _digest(text: str) -> hashlib.blake2b:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)


def uncached(reader: Reader) -> Reader:
    """The reader without its cache: a million readings would fill a disk, and none of them is read twice."""
    copied = copy.copy(reader)
    copied.cache = None
    return copied


def local_engine(scale: Scale, reader: Reader, blocks: Blocks) -> Scored:
    """Scores blocks in this process, one after the other."""
    scale = scale.with_reader(uncached(reader))
    return ((number, scale.scores_of(items)) for number, items in blocks)


def score_blocks(
    folder: JobFolder, source: Source, scan: Scan, names: Sequence[str], scored: Callable[[Blocks], Scored]
) -> Iterator[int]:
    """Score and store every block that is not finished; yields the number of rows of each. Memory holds the blocks that
    `scored` has taken. `names` are the columns that are added: score and, if there are two, its deviation."""
    pyarrow = arrow()
    finished = folder.finished()
    taken: dict[int, tuple[Any, list[int]]] = {}

    def blocks() -> Iterator[tuple[int, list[str]]]:
        for number, table in enumerate(_cut(source.tables(), scan.blocks)):
            if number in finished:
                continue
            texts = source.items_of(table)
            if _block_digest(texts) != scan.digests[number]:
                raise CcrankError(
                    f"{source.path} was changed after the job had begun: its rows are no longer those of the first "
                    f"pass; delete the folder {folder.path} and repeat the command"
                )
            items, indices = _different(texts)
            taken[number] = table, indices
            yield number, items

    for number, scores in scored(blocks()):
        table, indices = taken.pop(number)
        for name, values in zip(names, (scores.values, scores.deviation), strict=False):
            column = np.append(np.asarray(values, float), np.nan)[indices]
            table = table.append_column(name, pyarrow.array(column, pyarrow.float64()))
        folder.put(number, table)
        yield table.num_rows


def _different(texts: Sequence[str | None]) -> tuple[list[str], list[int]]:
    """The different items, sorted by text, and the index of each row's item among them; −1 without an item."""
    items = sorted(Rows(tuple(texts)).items, key=normal_form)
    index_of = {normal_form(item): index for index, item in enumerate(items)}
    return items, [-1 if text is None else index_of[normal_form(text)] for text in texts]


def _cut(tables: Iterator[Any], sizes: tuple[int, ...]) -> Iterator[Any]:
    """The rows of tables of any length as tables of the given lengths."""
    pyarrow = arrow()
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
