"""Scoring the blocks of a stream on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ccrank.errors import CcrankError
from ccrank.jobs.distributed.ray_reader import ClusterReader
from ccrank.jobs.job_folder import PROBE, SCALE, JobFolder
from ccrank.jobs.scorer import Blocks, Engine, Scored
from ccrank.models import Reader
from ccrank.prompts import Templates
from ccrank.task import Task


def cluster_engine(folder: JobFolder, task: Task, reader: Reader, templates: Templates) -> Engine:
    """Scores blocks on the workers of a `ClusterReader`. A block is read as one process reads it, so the scores are the
    same.
    """
    if not isinstance(reader, ClusterReader):
        raise CcrankError(
            "a cluster's engine needs a ClusterReader; open one with `ccrank.jobs.distributed.connect`"
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
