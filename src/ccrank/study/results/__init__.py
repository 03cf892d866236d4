"""The results of a study: schema, storing, loading, summaries, export. Nothing here imports torch."""

from ccrank.results.load import load_environment, load_failures, load_results, load_tasks
from ccrank.results.schema import SCHEMA
from ccrank.results.summary import choose, summarise_results

__all__ = [
    "SCHEMA",
    "choose",
    "load_environment",
    "load_failures",
    "load_results",
    "load_tasks",
    "summarise_results",
]
