"""The datasets whose data is part of the package.

SynthFacts and SynthContext are printed in the paper's appendix. WorldLists are the 69 lists that the paper names for
its WikiLists, rewritten with values, units and years. Everyday are short lists over many different criteria, in two
halves: one to select methods, one to report results.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Literal

from ccrank.study.datasets.dataset import task_of_gold
from ccrank.task import Criterion, Task
from ccrank.util.files import parse_toml

HALVES = ("choose", "report")

_SENTIMENT = Criterion(
    "sentiment", comparative="more positive", poles=("negative", "positive"), category="adjective"
)
_CARDINALITY = Criterion("cardinality", comparative="larger", poles=("small", "large"), category="number")
# The paper's table lists the lowest first.
_ADJECTIVES = ("horrible", "bad", "okay", "good", "great", "awesome")
_NUMBERS = (1, 10, 100, 500, 1000, 10000)

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


def read_synthfacts(data_dir: str | Path | None = None) -> list[Task]:
    return [
        task_of_gold(_SENTIMENT, _ADJECTIVES[::-1], "adjectives-by-sentiment"),
        task_of_gold(_CARDINALITY, {str(number): number for number in _NUMBERS}, "numbers-by-cardinality"),
    ]


def read_synthcontext(data_dir: str | Path | None = None) -> list[Task]:
    return [
        task_of_gold(_POPULARITY, _COLORS, "colors-by-popularity", context=_STUDENTS),
        task_of_gold(_WEALTH, _DOLLARS, "people-by-wealth", context=_PURSES, about={"unit": "dollar"}),
    ]


def read_worldlists(data_dir: str | Path | None = None) -> list[Task]:
    """`about` contains the title, unit, year and source, and optionally `differs` and `note`."""
    notes = ("title", "unit", "year", "source", "differs", "note")
    return [_task(entry, notes) for entry in read_lists("worldlists")]


def read_everyday(
    data_dir: str | Path | None = None, *, half: Literal["all", "choose", "report"] = "all"
) -> list[Task]:
    """The tasks of one half, or all; `about` contains `basis`, `half` and, for facts, `unit`."""
    notes = ("unit", "basis", "half")
    return [_task(entry, notes) for entry in read_lists("everyday") if half in ("all", entry["half"])]


def read_lists(name: str) -> list[dict[str, Any]]:
    """The lists as in the packaged file: dicts whose `items` are [text, value], highest first."""
    lists: list[dict[str, Any]] = parse_toml(
        resources.files("ccrank.study.datasets") / "data" / f"{name}.toml"
    )["list"]
    return lists


def _task(entry: dict[str, Any], notes: tuple[str, ...]) -> Task:
    criterion = Criterion(entry["name"], entry["comparative"], tuple(entry["poles"]), entry["category"])
    about = {key: entry[key] for key in notes if key in entry}
    return task_of_gold(criterion, dict(entry["items"]), entry["id"], about=about)
