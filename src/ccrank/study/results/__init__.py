"""The results of a study: schema, storing, loading, summaries, export. Nothing here imports torch."""

from ccrank.study.results.load import (
    load_environment,
    load_failures,
    load_results,
    load_studies,
    load_tasks,
)
from ccrank.study.results.summary import summarise_results

__all__ = [
    "load_environment",
    "load_failures",
    "load_results",
    "load_studies",
    "load_tasks",
    "summarise_results",
]
