"""Everyday: short lists over many different criteria, in two halves: one to select methods, one to report results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccrank.datasets.dataset import Dataset, check_choice, packaged_lists, task_of_gold
from ccrank.task import Criterion, Task

HALVES = ("choose", "report")
_NOTES = ("unit", "basis", "half")


def _read(data_dir: str | Path | None = None, *, half: str | None = None) -> list[Task]:
    """The tasks of one half, or all; `about` contains `basis`, `half` and, for facts, `unit`."""
    check_choice("half", half, (None, *HALVES))
    return [_task(entry) for entry in read_lists() if half in (None, entry["half"])]


DATASET = Dataset(
    name="everyday",
    kind="facts",
    summary=(
        "124 lists of 8 to 10 items, each with its own criterion (animals by speed, requests by politeness, "
        "crimes by seriousness), in two halves: one to select methods, one to report results"
    ),
    licence="Apache-2.0, written for ccrank",
    source="packaged with ccrank",
    paper_tasks=None,
    paper_items=None,
    departs="not in the paper",
    read=_read,
)


def read_lists() -> list[dict[str, Any]]:
    """The lists as in the packaged file: dicts whose `items` are [text, value], highest first."""
    return packaged_lists("everyday")


def _task(entry: dict[str, Any]) -> Task:
    criterion = Criterion(entry["name"], entry["comparative"], tuple(entry["poles"]), entry["category"])
    about = {key: entry[key] for key in _NOTES if key in entry}
    return task_of_gold(criterion, dict(entry["items"]), entry["id"], about=about)
