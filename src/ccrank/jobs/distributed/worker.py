"""What runs on a worker: a model, read for the driver or used to score blocks of a stream."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.models.reading import Readings
from ccrank.prompts import Prompt, Templates
from ccrank.reader_options import ReaderOptions
from ccrank.task import Task


class Worker:
    """A copy of the model."""

    def __init__(self, model: str, options: ReaderOptions, threads: int | None, cache: bool) -> None:
        self.arguments = model, options, threads, cache
        self.reader: Any = None
        self.scorer: Any = None
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

    def score(
        self, items: Sequence[str], task: Task, templates: Templates, files: Mapping[str, bytes]
    ) -> np.ndarray:
        """Scores of a block of a stream."""
        from ccrank.jobs.scorer import BlockScorer

        key = b"".join(files[name] for name in sorted(files))
        if self.scorer is None or key != self.fitted:
            self.folder = tempfile.TemporaryDirectory(prefix="ccrank-")
            for name, content in files.items():
                Path(self.folder.name, name).write_bytes(content)
            # None of a stream's readings is read twice.
            uncached = copy.copy(self.reader)
            uncached.cache = None
            self.scorer = BlockScorer.load(Path(self.folder.name), task, uncached, templates)
            self.fitted = key
        found: np.ndarray = self.scorer(items)
        return found
