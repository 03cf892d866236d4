"""WorldLists: the 69 lists that the paper names for its WikiLists, rewritten with values, units and years."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccrank.datasets.dataset import Dataset, packaged_lists, task_of_gold
from ccrank.task import Criterion, Task

CARD: dict[str, Any] = {
    "what": (
        "69 lists of facts about the world (buildings by height, planets by size, presidents by term): "
        "4 to 10 items each, every item with its value, every list with its unit, year and source"
    ),
    "licence": "Apache-2.0, written for ccrank",
    "source": "packaged with ccrank; each list names a source for its values",
    "paper": {"dataset": "WikiLists", "tasks": 69, "mean_items": 9.23},
    "departs": (
        "the titles are those of the paper's appendix, the lists are our own: items have values and not only "
        "ranks, and are chosen without ties; more is always higher, whereas "
        "some of the paper's lists run from low to high; and where a published order is outdated, wrong "
        "or based on another measure, the list states this under `differs`"
    ),
}
"""The dataset's metadata, and how it differs from the paper's."""

_NOTES = ("title", "unit", "year", "source", "differs", "note")


def _read(data_dir: str | Path | None = None) -> list[Task]:
    """The tasks of `load` with items shuffled as in every dataset."""
    return [
        task_of_gold(
            task.criterion, dict(zip(task.items, task.values or (), strict=True)), task.id, about=task.about
        )
        for task in load()
    ]


DATASET = Dataset(
    name="worldlists",
    kind="facts",
    summary=CARD["what"],
    licence=CARD["licence"],
    source=CARD["source"],
    paper_tasks=None,
    paper_items=None,
    departs=CARD["departs"],
    read=_read,
)


def load() -> list[Task]:
    """The 69 tasks in the appendix's order, items in alphabetical order so that their positions carry no information.

    `about` contains the title, unit, year and source, and optionally `differs` and `note`.

    >>> task = next(task for task in load() if task.id == "buildings-by-height")
    >>> task.order[0], task.about["unit"]
    ('Burj Khalifa', 'm')
    """
    return [_task(entry) for entry in read_lists()]


def read_lists() -> list[dict[str, Any]]:
    """The lists as in the packaged file: dicts whose `items` are [name, value], highest first."""
    return packaged_lists("worldlists")


def _task(entry: dict[str, Any]) -> Task:
    criterion = Criterion(entry["name"], entry["comparative"], tuple(entry["poles"]), entry["category"])
    values = dict(sorted(entry["items"], key=lambda item: str.casefold(item[0])))
    about = {key: entry[key] for key in _NOTES if key in entry}
    return Task(criterion, tuple(values), values=tuple(values.values()), id=entry["id"], about=about)
