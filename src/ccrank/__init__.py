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
    from ccrank.api import ask, load, rank, rank_tasks
    from ccrank.datasets import load_dataset
    from ccrank.lm import Reader
    from ccrank.ranking import Ranking
    from ccrank.results import load_results

__all__ = [
    "CcrankError",
    "CcrankWarning",
    "Criterion",
    "Ranking",
    "Reader",
    "ReaderOptions",
    "Task",
    "__version__",
    "ask",
    "load",
    "load_dataset",
    "load_results",
    "rank",
    "rank_tasks",
]

# Importing torch takes seconds, so names that need it are imported on first access.
_LAZY = {
    "Ranking": "ccrank.ranking",
    "Reader": "ccrank.lm",
    "load": "ccrank.api",
    "ask": "ccrank.api",
    "load_dataset": "ccrank.datasets",
    "load_results": "ccrank.results",
    "rank": "ccrank.api",
    "rank_tasks": "ccrank.api",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'ccrank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
