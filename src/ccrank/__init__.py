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
    from ccrank.study.results import load_results

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
    "GroupedRankings": "ccrank.rankings",
    "ItemScores": "ccrank.ranking",
    "Method": "ccrank.methods.registry",
    "Probe": "ccrank.methods.probing.probe",
    "Question": "ccrank.methods.labelled.session",
    "Ranker": "ccrank.api",
    "Ranking": "ccrank.ranking",
    "Rankings": "ccrank.rankings",
    "Reader": "ccrank.models",
    "Scale": "ccrank.scale",
    "Session": "ccrank.methods.labelled.session",
    "annotate": "ccrank.methods.labelled.annotate",
    "ask": "ccrank.api.asking",
    "fit": "ccrank.api",
    "load": "ccrank.api",
    "load_dataset": "ccrank.study.datasets",
    "load_results": "ccrank.study.results",
    "load_templates": "ccrank.prompts",
    "rank": "ccrank.api",
    "rank_file": "ccrank.jobs",
    "rank_tasks": "ccrank.api",
    "read_tasks": "ccrank.io.taskfiles",
    "register": "ccrank.methods.registry",
    "register_objective": "ccrank.methods.registry",
    "run_study": "ccrank.study",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'ccrank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
