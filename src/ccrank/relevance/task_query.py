"""The query of a task."""

from __future__ import annotations

from ccrank.errors import CcrankError
from ccrank.task import Task
from ccrank.text import quoted


def query_of(task: Task) -> str:
    """The query of a task, without white space around it; an error where there is none.

    Parameters
    ----------
    task
        A task.
    """
    if task.query is None:
        raise CcrankError(
            f"task {task.id!r} has no query to rank documents for; give --query TEXT (query=…), or use another "
            f"method for the criterion {quoted(task.criterion.name)}"
        )
    return task.query.strip()
