"""Ranking a file of any length: a sample fixes the scale, one pass scores every row in bounded memory."""

from ccrank.jobs.run import StreamOptions, StreamResult, Watch, rank_file, run_job

__all__ = ["StreamOptions", "StreamResult", "Watch", "rank_file", "run_job"]
