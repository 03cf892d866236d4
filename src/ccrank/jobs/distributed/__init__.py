"""Reading and scoring on a Ray cluster: one copy of the model for each worker, blocks balanced by length, lost workers
replaced."""

from ccrank.jobs.distributed.pool import Pool, connect
from ccrank.jobs.distributed.ray_engine import cluster_engine
from ccrank.jobs.distributed.ray_reader import ClusterReader

__all__ = ["ClusterReader", "Pool", "cluster_engine", "connect"]
