"""A reader whose prompts are read on a cluster; everything else, such as fitting probes, runs here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ccrank.jobs.distributed.pool import Pool
from ccrank.models import Reader, ReadingCache, Readings, load_model
from ccrank.models.load.known_models import StatusCallback
from ccrank.models.reading import Progress, joined
from ccrank.prompts import Prompt
from ccrank.reader_options import ReaderOptions

BLOCKS_PER_WORKER = 4
"""More blocks balance the load better; fewer share more prefixes."""
LEAST_CHARACTERS = 20_000
"""A shorter block is not worth the message."""
MOST_PROMPTS = 4096


class ClusterReader(Reader):
    """Reads prompts in blocks on the workers of a pool. It has the model itself too, for its tokenizer and its form."""

    pool: Pool

    @classmethod
    def open(  # type: ignore[override]
        cls,
        pool: Pool,
        name: str = "default",
        options: ReaderOptions | None = None,
        *,
        cache: ReadingCache | None = None,
        say: StatusCallback = lambda _: None,
    ) -> ClusterReader:
        """Open the model of a pool's workers."""
        chosen = options or ReaderOptions()
        loaded = load_model(
            name,
            device="cpu",  # prompts are read elsewhere
            dtype=chosen.dtype,
            allow_pickle=chosen.allow_pickle,
            allow_new_head=chosen.allow_new_head,
            revision=chosen.revision,
            say=say,
        )
        reader = cls(loaded, batch_tokens=chosen.batch_tokens, chat=chosen.chat, truncate=chosen.truncate)
        reader.pool = pool
        return reader

    def read(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]] | None = None,
        layers: Iterable[int] | str = (),
        *,
        items: bool = False,
        log_probabilities: bool = False,
        per_token: bool = False,
        progress: Progress | None = None,
    ) -> Readings:
        """See `Reader.read`; the numbers are the same up to rounding."""
        if not prompts:
            return super().read(prompts, candidates, layers, items=items, log_probabilities=log_probabilities)
        options = {
            "layers": layers if isinstance(layers, str) else tuple(layers),
            "items": items,
            "log_probabilities": log_probabilities,
            "per_token": per_token,
        }
        shared = candidates is None or isinstance(candidates[0], str)

        def blocks() -> Iterator[tuple[int, tuple[Any, ...]]]:
            for start, stop in cuts([_length(prompt) for prompt in prompts], self.pool.count):
                own = candidates if shared or candidates is None else candidates[start:stop]
                yield start, (prompts[start:stop], own, options)

        found: dict[int, Readings] = {}
        for start, block in self.pool.run("read", blocks()):
            found[start] = block
            if progress is not None:
                progress(block.cost.distinct_tokens)
        readings = joined([found[start] for start in sorted(found)])
        self.spent += readings.cost
        return readings


def _length(prompt: Prompt) -> int:
    return sum(len(piece.text) for piece in prompt.pieces)


def cuts(lengths: Sequence[int], workers: int) -> list[tuple[int, int]]:
    """(start, stop) of blocks of about the same length in characters, which is nearly proportional to tokens."""
    total = sum(lengths)
    target = max(LEAST_CHARACTERS, total / (BLOCKS_PER_WORKER * workers))
    found, start, size = [], 0, 0
    for place, length in enumerate(lengths):
        size += length
        if size >= target or place + 1 - start == MOST_PROMPTS:
            found.append((start, place + 1))
            start, size = place + 1, 0
    if start < len(lengths):
        found.append((start, len(lengths)))
    return found
