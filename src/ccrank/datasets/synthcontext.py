"""SynthContext: two synthetic rankings determined by a short text, from the paper's appendix."""

from __future__ import annotations

from pathlib import Path

from ccrank.datasets.dataset import PAPER, Dataset, task_of_gold
from ccrank.task import Criterion, Task

_POPULARITY = Criterion(
    "popularity", comparative="more popular", poles=("unpopular", "popular"), category="color"
)
_WEALTH = Criterion("wealth", comparative="wealthier", poles=("poor", "rich"), category="person")

_STUDENTS = (
    "Most students selected blue as their favourite color, followed by red, then yellow. "
    "Brown ranked lowest, green second lowest and purple third lowest."
)
_COLORS = ("blue", "red", "yellow", "purple", "green", "brown")

_PURSES = (
    "An owns 100 dollar, Tom owns 50 dollars more and Sam 75 dollars more. Jenny is the richest owning 1000 dollar. "
    "Emily and Muhammad are at the lower end owning only 5 dollar and 10 dollars respectively."
)
# "75 dollars more" is read as more than An, like the 50 before it; more than Tom would give the same order.
_DOLLARS = {"Emily": 5, "Muhammad": 10, "An": 100, "Tom": 150, "Sam": 175, "Jenny": 1000}


def _read(data_dir: str | Path | None = None) -> list[Task]:
    return [
        task_of_gold(_POPULARITY, _COLORS, "colors-by-popularity", context=_STUDENTS),
        task_of_gold(_WEALTH, _DOLLARS, "people-by-wealth", context=_PURSES, about={"unit": "dollar"}),
    ]


DATASET = Dataset(
    name="synthcontext",
    kind="context",
    summary="Colors by popularity and people by wealth, each described in two or three sentences",
    licence="CC BY 4.0 (printed in the paper)",
    source=PAPER,
    paper_tasks=2,
    paper_items=6.0,
    departs="none: both tasks are the paper's",
    read=_read,
)
