"""WikiLists: the paper's own 69 lists of facts, most of them from Wikipedia.

**Direction.** Each list of the CSV is ordered, and its first item is the extreme one in the sense of the column
`Ordering`: the largest for "larger", the first in time for "earlier". That holds for all 69 lists, without
exception. For 54 of them this is also the item with the most of the quantity in the column `Criterion`. For
the other 15 (10 "earlier", 2 "lower", and "closer", "softer", "less" once each) it is the one with the least: there
the scale is reversed, so that name, comparative, poles and gold values all have the same direction and a signed τ means
the same for every prompt. `turn=False` keeps the CSV's direction for those 15 ("earlier", first item highest).

**Items.** An entry ends at a comma outside brackets; white space is collapsed, repeats and empty entries are dropped,
then the list is cut to its first 10. The wording and the few corrected entries are data: `data/wikilists.toml`.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.study.datasets.dataset import MIN_ITEMS, task_of_gold
from ccrank.study.datasets.locate import DataFile, locate
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.files import parse_toml, read_text

_COMMIT = "695fe86dd524bd09e5f4569475d85decef9abc09"
_REPOSITORY = "niklasstoehr/contrast-consistent-ranking"
LISTS = DataFile(
    path="wikilists/WikiLists Rankings.csv",
    url=f"https://raw.githubusercontent.com/{_REPOSITORY}/{_COMMIT}/WikiLists%20Rankings.csv",
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


def read(data_dir: str | Path | None = None, *, turn: bool = True) -> list[Task]:
    path = locate(LISTS, data_dir)
    wording = parse_toml(files("ccrank.study.datasets") / "data" / "wikilists.toml")
    tasks: list[Task] = []
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
    for column in _COLUMNS:
        if column not in (rows.fieldnames or ()):
            raise CcrankError(f"{path} has no column {column!r}; take the file from {LISTS.url}")
    for row in rows:
        order = _entries(row["List"], wording["repair"].get(row["Full name"], {}))[:_MAX_ITEMS]
        if len(order) < MIN_ITEMS:
            continue
        if turn and row["Ordering"] in wording["against"]:
            order.reverse()
        about = {name: row[column] for name, column in _NOTES.items() if row.get(column)}
        tasks.append(
            task_of_gold(_criterion(row, wording, turn), order, _slug(row["Full name"]), about=about)
        )
    return tasks


def _criterion(row: dict[str, str], wording: dict[str, Any], turn: bool) -> Criterion:
    # A list that is not in wikilists.toml gets the paper's own phrase and no poles.
    ordering, named = row["Ordering"], row["Criterion"]
    scale = wording["scale"].get(named, {"comparative": f"{ordering} in terms of {named}"})
    low_high = scale.get("poles")
    comparative = scale["comparative"]
    if not turn and ordering in wording["against"]:
        comparative = scale.get("reverse", comparative)
        low_high = low_high and low_high[::-1]
    return Criterion(
        name=scale.get("name", named),
        comparative=comparative,
        poles=low_high and (low_high[0], low_high[1]),
        category=wording["category"].get(row["Category"], row["Category"]),
    )


def _entries(joined: str, repair: dict[str, list[str]]) -> list[str]:
    """The entries of a list without duplicates."""
    entries: dict[str, None] = {}
    for piece in re.split(r",(?![^()]*\))", joined):
        entry = normal_form(piece)
        for corrected in repair.get(entry, [entry]):
            if corrected:
                entries.setdefault(corrected)
    return list(entries)


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return "-".join(re.findall(r"[a-z0-9]+", plain.lower().replace("'", "")))
