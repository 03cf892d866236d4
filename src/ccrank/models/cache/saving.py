"""Readings are saved while they come, so that work that ends early is not lost."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ccrank.models.cache.reading_keys import vectors_of
from ccrank.models.cache.store import ReadingCache
from ccrank.models.engine.read_targets import EngineOutput, Points

SECONDS_BETWEEN_SAVES = 5.0


class ReadingSaver:
    """Writes what was read at some points to the cache, each point once; without a cache nothing."""

    def __init__(self, cache: ReadingCache | None, points: Points, keys: Sequence[Sequence[bytes]]) -> None:
        self.cache, self.points, self.keys = cache, points, keys
        self.output: EngineOutput | None = None
        self._unsaved = np.ones(len(points), bool)
        self._last = time.monotonic()

    def look(self, output: EngineOutput) -> None:
        """Take note of what is being read, and save it now and then."""
        self.output = output
        if self.cache is not None and time.monotonic() - self._last >= SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Save all that was read and is not saved."""
        if self.cache is None or self.output is None:
            return
        self.output.collect()
        fresh = np.flatnonzero(self._unsaved & self.output.done)
        self.cache.put(vectors_of(self.output, self.points, self.keys, fresh))
        self._unsaved[fresh] = False
        self._last = time.monotonic()
