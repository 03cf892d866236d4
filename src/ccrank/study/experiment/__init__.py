"""Resumable studies: the grid of units, and running them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccrank.study.experiment.runner import StudyReport, StudyWatcher, run_study
    from ccrank.study.experiment.study import Study, preset

__all__ = ["Study", "StudyReport", "StudyWatcher", "preset", "run_study"]

# Importing torch takes seconds, so names that need it are imported on first access.
_LAZY = {
    "Study": "study",
    "StudyReport": "runner",
    "StudyWatcher": "runner",
    "preset": "study",
    "run_study": "runner",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"ccrank.study.experiment.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'ccrank.study.experiment' has no attribute {name!r}")
