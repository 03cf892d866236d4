"""The functions of Python: `rank`, `rank_tasks`, `fit` and `load`; `asking` has `ask`, and `arguments` the checks."""

from ccrank.api.rank import Ranker, fit, load, rank, rank_tasks

__all__ = ["Ranker", "fit", "load", "rank", "rank_tasks"]
