"""Reading and scoring on a Ray cluster: one copy of the model for each worker, blocks balanced by length, lost workers
replaced."""

from ccrank.distributed.engine import cluster_engine
from ccrank.distributed.pool import Pool, connect
from ccrank.distributed.reader import ClusterReader

__all__ = ["ClusterReader", "Pool", "cluster_engine", "connect"]
