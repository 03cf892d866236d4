"""ccrank ranks any list of items by any criterion with a language model, without labels.

The names in `__all__` are the public interface: within a major version their parameters and the meaning of results do
not change, and a change is announced in CHANGELOG.md one minor version ahead. Everything else may change at any time.
"""

from typing import TYPE_CHECKING, Any

from ccrank.errors import CcrankError, CcrankWarning
from ccrank.reader_options import ReaderOptions
from ccrank.task import Criterion, Task
from ccrank.version import __version__

if TYPE_CHECKING:
    from ccrank.api import Ranker, fit, load, rank, rank_tasks
    from ccrank.api.asking import ask
    from ccrank.io.taskfiles import read_tasks
    from ccrank.jobs import rank_file
    from ccrank.methods.labelled.annotate import annotate
    from ccrank.methods.labelled.session import Question, Session
    from ccrank.methods.probing.probe import Probe
    from ccrank.methods.registry import Method, register, register_objective
    from ccrank.models import Reader
    from ccrank.prompts import load_templates
    from ccrank.ranking import ItemScores, Ranking
    from ccrank.rankings import GroupedRankings, Rankings
    from ccrank.scale import Scale
    from ccrank.study import run_study
    from ccrank.study.datasets import load_dataset
    from ccrank.study.results.load import load_results

__all__ = [
    "CcrankError",
    "CcrankWarning",
    "Criterion",
    "GroupedRankings",
    "ItemScores",
    "Method",
    "Probe",
    "Question",
    "Ranker",
    "Ranking",
    "Rankings",
    "Reader",
    "ReaderOptions",
    "Scale",
    "Session",
    "Task",
    "__version__",
    "annotate",
    "ask",
    "fit",
    "load",
    "load_dataset",
    "load_results",
    "load_templates",
    "rank",
    "rank_file",
    "rank_tasks",
    "read_tasks",
    "register",
    "register_objective",
    "run_study",
]

# Importing torch takes seconds, so names that need it are imported on first access.
_LAZY = {
    "ccrank.api": "Ranker fit load rank rank_tasks",
    "ccrank.api.asking": "ask",
    "ccrank.io.taskfiles": "read_tasks",
    "ccrank.jobs": "rank_file",
    "ccrank.methods.labelled.annotate": "annotate",
    "ccrank.methods.labelled.session": "Question Session",
    "ccrank.methods.probing.probe": "Probe",
    "ccrank.methods.registry": "Method register register_objective",
    "ccrank.models": "Reader",
    "ccrank.prompts": "load_templates",
    "ccrank.ranking": "ItemScores Ranking",
    "ccrank.rankings": "GroupedRankings Rankings",
    "ccrank.scale": "Scale",
    "ccrank.study": "run_study",
    "ccrank.study.datasets": "load_dataset",
    "ccrank.study.results.load": "load_results",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _LAZY.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'ccrank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
