"""Short lists with a gold order: packaged ones, adjectives by intensity, and the paper's lists of facts.

How they differ from the paper's is in data/cards.toml.

**ScalarAdj** (de Melo & Bansal 2013, Wilkinson & Oates 2016, Cocos et al. 2018). A file contains one half-scale,
weakest first: `level<TAB>word`, with words of one level joined by ` || `. Of a level with several words the first is
kept; scales that then have the same words in the same order are one task, named after the first file.

**WikiLists.** The first item of a list is the extreme one in the sense of the column `Ordering`: the largest for
"larger", the first in time for "earlier". In 54 of the 69 lists it is also the item with the most of the quantity in
the column `Criterion`. In the other 15 (10 "earlier", 2 "lower", and "closer", "softer", "less" once each) it is the
item with the least: there the scale is reversed, so that name, comparative, poles and gold values all have the same
direction and a signed τ means the same for every prompt. An entry ends at a comma outside brackets; white space is
collapsed, repeats and empty entries are dropped, then the list is cut to its first 10. The wording and the few
corrected entries are data: `data/wikilists.toml`.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from ccrank.errors import CcrankError
from ccrank.study.datasets.dataset import MIN_ITEMS, task_of_gold
from ccrank.study.datasets.locate import DataFile, locate
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.files import parse_toml, read_text

_SENTIMENT = Criterion("sentiment", "more positive", ("negative", "positive"), category="adjective")
_CARDINALITY = Criterion("cardinality", "larger", ("small", "large"), category="number")
# The paper's table lists the lowest first.
_ADJECTIVES = ("horrible", "bad", "okay", "good", "great", "awesome")
_NUMBERS = (1, 10, 100, 500, 1000, 10000)

_POPULARITY = Criterion("popularity", "more popular", ("unpopular", "popular"), category="color")
_WEALTH = Criterion("wealth", "wealthier", ("poor", "rich"), category="person")
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

_INTENSITY = Criterion("intensity", "more intense", ("mild", "intense"), category="adjective")
_COLLECTIONS = ("crowd", "demelo", "wilkinson")
RANKINGS = DataFile(
    path="scalaradj",
    url="https://codeload.github.com/ainagari/scalar_adjs/tar.gz/b6c4194285e3fa6324aec0babe17b3c3c65038e1",
    sha256="b0a26d5832bb87c1cb69e56255bd9df91a5561987763e7e3a85b5a7bace42c93",
    members=rf"[^/]+/data/((?:{'|'.join(_COLLECTIONS)})/gold_rankings/[^/]+\.rankings)",
    holds="*/gold_rankings/*.rankings",
)
WIKILISTS = DataFile(
    path="wikilists/WikiLists Rankings.csv",
    url=(
        "https://raw.githubusercontent.com/niklasstoehr/contrast-consistent-ranking/"
        "695fe86dd524bd09e5f4569475d85decef9abc09/WikiLists%20Rankings.csv"
    ),
    sha256="51a6f402db404a39178709e0f27fb01d5022704d11b6ffc0f623782794527618",
)
_COLUMNS = ("Full name", "Category", "Criterion", "Ordering", "List")
_NOTES = {
    "title": "Full name",
    "ordering": "Ordering",
    "source": "Reference",
    "type": "Type",
    "theme": "Theme",
}
_MAX_ITEMS = 10


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
    return _tasks_of("worldlists", ("title", "unit", "year", "source", "differs", "note"))


def read_everyday(
    data_dir: str | Path | None = None, *, half: Literal["all", "choose", "report"] = "all"
) -> list[Task]:
    """The tasks of one half, or all; `about` contains `basis`, `half` and, for facts, `unit`."""
    tasks = _tasks_of("everyday", ("unit", "basis", "half"))
    return [task for task in tasks if half in ("all", task.about["half"])]


def _tasks_of(name: str, notes: tuple[str, ...]) -> list[Task]:
    """The lists of a packaged file, whose `items` are [text, value]."""
    tasks = []
    for entry in packaged(name)["list"]:
        criterion = Criterion(entry["name"], entry["comparative"], tuple(entry["poles"]), entry["category"])
        about = {key: entry[key] for key in notes if key in entry}
        tasks.append(task_of_gold(criterion, dict(entry["items"]), entry["id"], about=about))
    return tasks


def packaged(name: str) -> dict[str, Any]:
    """The tables of a packaged file."""
    return parse_toml(resources.files("ccrank.study.datasets") / "data" / f"{name}.toml")


def read_scalaradj(data_dir: str | Path | None = None) -> list[Task]:
    folder = locate(RANKINGS, data_dir)
    tasks: dict[tuple[str, ...], Task] = {}
    for collection in _COLLECTIONS:
        rankings = folder / collection / "gold_rankings"
        paths = sorted(rankings.glob("*.rankings"))
        if not paths:
            raise CcrankError(f"there are no rankings in {rankings}; get that folder from {RANKINGS.url}")
        for path in paths:
            scale = _scale(path)
            if len(scale) >= MIN_ITEMS and tuple(scale) not in tasks:
                task_id, about = f"{collection}-{path.stem}", {"collection": collection, "file": path.name}
                tasks[tuple(scale)] = task_of_gold(_INTENSITY, scale, task_id, about=about)
    return list(tasks.values())


def _scale(path: Path) -> dict[str, float]:
    """Level by word, weakest first, the first word of each level."""
    levels: dict[float, str] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        level, _, words = line.partition("\t")
        try:
            levels.setdefault(float(level), normal_form(words.split("||")[0]))
        except ValueError:
            raise CcrankError(f"{path}, line {number}: {line!r} is not `level<TAB>word`") from None
    return {word: level for level, word in sorted(levels.items())}


def read_wikilists(data_dir: str | Path | None = None, *, turn: bool = True) -> list[Task]:
    """`turn=False` keeps the CSV's direction for the 15 lists ("earlier", first item highest)."""
    path = locate(WIKILISTS, data_dir)
    wording = packaged("wikilists")
    tasks: list[Task] = []
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
    for column in _COLUMNS:
        if column not in (rows.fieldnames or ()):
            raise CcrankError(f"{path} has no column {column!r}; take the file from {WIKILISTS.url}")
    for row in rows:
        order = _entries(row["List"], wording["repair"].get(row["Full name"], {}))[:_MAX_ITEMS]
        if len(order) < MIN_ITEMS:
            continue
        if turn and row["Ordering"] in wording["against"]:
            order.reverse()
        about = {name: row[column] for name, column in _NOTES.items() if row.get(column)}
        plain = unicodedata.normalize("NFKD", row["Full name"]).encode("ascii", "ignore").decode()
        task_id = "-".join(re.findall(r"[a-z0-9]+", plain.lower().replace("'", "")))
        tasks.append(task_of_gold(_criterion(row, wording, turn), order, task_id, about=about))
    return tasks


def _criterion(row: dict[str, str], wording: dict[str, Any], turn: bool) -> Criterion:
    # A list that is not in wikilists.toml gets the paper's own phrase and no poles.
    ordering, named = row["Ordering"], row["Criterion"]
    scale = wording["scale"].get(named, {"comparative": f"{ordering} in terms of {named}"})
    poles, comparative = scale.get("poles"), scale["comparative"]
    if not turn and ordering in wording["against"]:
        comparative = scale.get("reverse", comparative)
        poles = poles and poles[::-1]
    category = wording["category"].get(row["Category"], row["Category"])
    return Criterion(scale.get("name", named), comparative, poles and tuple(poles), category)


def _entries(joined: str, repair: dict[str, list[str]]) -> list[str]:
    """The entries of a list without duplicates."""
    entries = map(normal_form, re.split(r",(?![^()]*\))", joined))
    corrected = (text for entry in entries for text in repair.get(entry, [entry]) if text)
    return list(dict.fromkeys(corrected))
