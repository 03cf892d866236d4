"""ccrank ranks any list of items by any criterion with a language model, without labels."""

from typing import TYPE_CHECKING, Any

from ccrank.errors import CcrankError
from ccrank.task import Criterion, Task

if TYPE_CHECKING:
    from ccrank.datasets import load_dataset
    from ccrank.lm import Reader
    from ccrank.rank import rank, rank_tasks
    from ccrank.ranking import Ranking

__version__ = "0.1.0"
__all__ = ["CcrankError", "Criterion", "Ranking", "Reader", "Task", "load_dataset", "rank", "rank_tasks"]

# Importing torch takes seconds, so what needs it is imported when it is first asked for.
_LAZY = {
    "Ranking": "ccrank.ranking",
    "Reader": "ccrank.lm",
    "load_dataset": "ccrank.datasets",
    "rank": "ccrank.rank",
    "rank_tasks": "ccrank.rank",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'ccrank' has no attribute {name!r}")
