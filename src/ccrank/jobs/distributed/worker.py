"""What runs on a worker: a model, read for the driver or used to score blocks of a stream."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ccrank.models.reading import Readings
from ccrank.prompts import Prompt
from ccrank.ranking import ItemScores
from ccrank.reader_options import ReaderOptions


class Worker:
    """A copy of the model."""

    def __init__(self, model: str, options: ReaderOptions, threads: int | None, cache: bool) -> None:
        self.arguments = model, options, threads, cache
        self.reader: Any = None
        self.scale: Any = None
        self.fitted = b""

    def open(self) -> tuple[str, int]:
        """Load the model; returns the identity of its weights and the number of the process.

        It is not loaded where the worker is made: an error there would be reported as the loss of a worker.
        """
        import torch

        from ccrank.models import Reader, ReadingCache

        model, options, threads, cache = self.arguments
        if threads is not None:
            torch.set_num_threads(threads)
        self.reader = Reader.open(model, options, cache=ReadingCache() if cache else None)
        return self.reader.loaded.identity, os.getpid()

    def read(self, prompts: Sequence[Prompt], candidates: Any, options: Mapping[str, Any]) -> Readings:
        """See `Reader.read`."""
        found: Readings = self.reader.read(prompts, candidates, **options)
        return found

    def score(self, items: Sequence[str], content: bytes) -> ItemScores:
        """Scores of a block of a stream, on the scale of a file's content."""
        from ccrank.scale import Scale

        if self.scale is None or content != self.fitted:
            # None of a stream's readings is read twice.
            uncached = copy.copy(self.reader)
            uncached.cache = None
            self.scale, self.fitted = Scale.from_bytes(content, uncached), content
        found: ItemScores = self.scale.scores_of(items)
        return found
