"""The paper's whole study with one command: the grid, resumable runs, results."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccrank.experiment.results import load_failures, load_results, load_tasks
    from ccrank.experiment.runner import StudyReport, Watcher, run_study
    from ccrank.experiment.study import Study, preset
    from ccrank.experiment.summary import summarise_results

__all__ = [
    "Study",
    "StudyReport",
    "Watcher",
    "load_failures",
    "load_results",
    "load_tasks",
    "preset",
    "run_study",
    "summarise_results",
]

# Results are looked at without torch, whose import takes seconds.
_LAZY = {
    "Study": "study",
    "StudyReport": "runner",
    "Watcher": "runner",
    "load_failures": "results",
    "load_results": "results",
    "load_tasks": "results",
    "preset": "study",
    "run_study": "runner",
    "summarise_results": "summary",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"ccrank.experiment.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'ccrank.experiment' has no attribute {name!r}")
