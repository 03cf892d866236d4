"""Scoring the blocks of a stream on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ccrank.distributed.reader import ClusterReader
from ccrank.errors import CcrankError
from ccrank.lm import Reader
from ccrank.prompts import Templates
from ccrank.stream.folder import PROBE, SCALE, JobFolder
from ccrank.stream.scorer import Blocks, Engine, Scored
from ccrank.task import Task


def cluster_engine(folder: JobFolder, task: Task, reader: Reader, templates: Templates) -> Engine:
    """Scores blocks on the workers of a `ClusterReader`. A block is read as one process reads it, so the scores are the
    same.

    Parameters
    ----------
    folder
        The job's folder, with its scale or its probe.
    task, templates
        As those of a `BlockScorer`.
    reader
        A reader of a cluster.
    """
    if not isinstance(reader, ClusterReader):
        raise CcrankError(
            "a cluster's engine needs a ClusterReader; open one with `ccrank.distributed.connect`"
        )
    pool = reader.pool
    files = {name: path.read_bytes() for name in (SCALE, PROBE) if (path := folder.path / name).exists()}
    # Two items stand for the sample, which may be large.
    small = Task(task.criterion, task.items[:2], task.context, id=task.id)
    common = tuple(pool.ray.put(one) for one in (small, templates, files))

    def run(blocks: Blocks) -> Scored:
        def calls() -> Iterator[tuple[int, tuple[Any, ...]]]:
            for number, items in blocks:
                yield number, (items, *common)

        return pool.run("score", calls())

    return run
