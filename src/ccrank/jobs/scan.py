"""The first pass over a file: how many rows it has, how they are cut into blocks, and a sample of its items."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ccrank.task import normal_form

BLOCK_ROWS = 4096
BLOCK_CHARACTERS = 1 << 18
"""A block ends after so many rows or so many characters of items, so that blocks take about as long as each other."""


@dataclass(frozen=True)
class Scan:
    """What the first pass found."""

    blocks: tuple[int, ...]
    """The number of rows of each block."""
    digests: tuple[str, ...]
    """The digest of the items of each block; see `block_digest`."""
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
    block_rows: int = BLOCK_ROWS,
    block_characters: int = BLOCK_CHARACTERS,
) -> Scan:
    """Count the rows, cut them into blocks and sample the items.

    The sample has the `size` items with the smallest hashes: a uniform sample of the different items, whatever their
    order in the file and however often each is repeated. Of two spellings that count as the same item the first in the
    order of texts is taken, as in a ranking in memory.
    """
    blocks: list[int] = []
    digests: list[str] = []
    block: list[str | None] = []
    characters = items = 0
    heap: list[tuple[int, str]] = []  # (−hash, normal form): the largest hash is first to go
    spelling: dict[str, str] = {}
    extra: dict[str, str] = {}
    complete = True
    for some in texts:
        for text in some:
            block.append(text)
            if text is not None:
                items += 1
                characters += len(text)
                key = normal_form(text)
                if key in always:
                    extra[key] = min(text, extra.get(key, text))
                if key in spelling:
                    spelling[key] = min(text, spelling[key])
                else:
                    entry = (-_hash(key), key)
                    if len(heap) < size:
                        heapq.heappush(heap, entry)
                        spelling[key] = text
                    else:
                        complete = False
                        if heap and entry > heap[0]:
                            del spelling[heapq.heapreplace(heap, entry)[1]]
                            spelling[key] = text
            if len(block) == block_rows or characters >= block_characters:
                blocks.append(len(block))
                digests.append(block_digest(block))
                block, characters = [], 0
    if block:
        blocks.append(len(block))
        digests.append(block_digest(block))
    found = {**extra, **spelling}
    sample = tuple(found[key] for key in sorted(found))
    return Scan(tuple(blocks), tuple(digests), items, sample, complete)


def block_digest(texts: Sequence[str | None]) -> str:
    """A digest of the items of a block, by which a later pass knows that the file has not changed."""
    content = "".join(f"{-1 if text is None else len(text)}:{text or ''}" for text in texts)
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _hash(key: str) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
