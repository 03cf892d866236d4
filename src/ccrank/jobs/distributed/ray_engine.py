"""Scoring the blocks of a stream on a cluster."""

from __future__ import annotations

from ccrank.errors import CcrankError
from ccrank.jobs.distributed.ray_reader import ClusterReader
from ccrank.jobs.scoring_pass import Blocks, Engine, Scored
from ccrank.models import Reader
from ccrank.scale import Scale


def cluster_engine(scale: Scale, reader: Reader) -> Engine:
    """Scores blocks on the workers of a `ClusterReader`. A block is read as one process reads it, so the scores are the
    same.
    """
    if not isinstance(reader, ClusterReader):
        raise CcrankError(
            "a cluster's engine needs a ClusterReader; open one with `ccrank.jobs.distributed.connect`"
        )
    pool = reader.pool
    content = pool.ray.put(scale.to_bytes())

    def run(blocks: Blocks) -> Scored:
        return pool.run("score", ((number, (items, content)) for number, items in blocks))

    return run
