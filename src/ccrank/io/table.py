"""Rows with an item each, and the distinct items among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ccrank.errors import CcrankError
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.text import did_you_mean, quoted


@dataclass(frozen=True)
class Rows:
    """The rows of a table, each with an item to rank; or a plain list of items, which has no columns.

    >>> rows = Rows(("Chad", None, "Peru", "Chad "))
    >>> rows.items, rows.places, rows.repeated, rows.unranked
    (('Chad', 'Peru'), (0, None, 1, 0), 1, 1)
    """

    texts: tuple[str | None, ...]
    """The item of each row; None where its cell is empty."""
    columns: tuple[Any, ...] = ()
    """The header, as it was written."""
    records: Sequence[tuple[Any, ...]] = ()
    """The cells of each row, one for each column; left out for a frame, which keeps its own."""
    item_column: int = 0
    id_column: int | None = None
    """The column that names the rows, if one was chosen."""
    blank: int = 0
    """How many blank lines between rows were left out."""
    format: str = ""
    """One of `FORMATS`, or "frame"."""
    separator: str = ","
    """Between the cells of a CSV."""
    source: Any = None
    """What keeps types and spelling: the pyarrow Table, the lines of JSON, or the frame."""

    @cached_property
    def items(self) -> tuple[str, ...]:
        """The distinct items, by first appearance. Of two spellings that count as the same item the first in the order
        of texts is taken, so that the order of the rows does not matter."""
        spelling: dict[str, str] = {}
        for text in self.texts:
            if text is not None:
                key = normal_form(text)
                spelling[key] = min(text, spelling.get(key, text))
        return tuple(spelling.values())

    @cached_property
    def places(self) -> tuple[int | None, ...]:
        """For each row, the place of its item among `items`."""
        index_of = {normal_form(item): index for index, item in enumerate(self.items)}
        return tuple(None if text is None else index_of[normal_form(text)] for text in self.texts)

    @cached_property
    def names(self) -> list[str]:
        """The header as texts, no two alike, as JSON needs it."""
        return unique_names(self.columns)

    @property
    def unranked(self) -> int:
        """The number of rows without an item."""
        return self.texts.count(None)

    @property
    def repeated(self) -> int:
        """The number of rows that repeat the item of an earlier row."""
        return len(self.texts) - self.unranked - len(self.items)

    def task(self, criterion: Criterion, context: str | None = None, id: str = "task") -> Task:
        """The task of the distinct items."""
        self._check_different()
        return Task(criterion, self.items, context, id=id)

    def task_of_query(self, query: str, context: str | None = None, id: str = "task") -> Task:
        """The task of ranking the distinct items by their relevance to a query."""
        self._check_different()
        return Task.of_query(query, self.items, context=context, id=id)

    def _check_different(self) -> None:
        if len(self.items) == 1 and self.repeated:
            raise CcrankError(
                f"all {len(self.texts) - self.unranked} items are the same, {quoted(self.items[0])}; "
                "a ranking needs at least 2 different items"
            )

    def notes(self, together: bool = True) -> list[str]:
        """What a user should know about how the rows were read, one sentence each; `together` as one list."""
        notes = []
        if self.format == "csv" and self.separator != ",":
            notes.append(f"the cells of the CSV are separated by {self.separator!r}")
        if self.blank:
            notes.append(f"{self.blank} blank line{'s' if self.blank > 1 else ''} skipped")
        if self.unranked:
            notes.append(
                f"{self.unranked} of {len(self.texts)} rows skipped: empty cell in column "
                f"{str(self.columns[self.item_column])!r}; they come last, without rank and score"
            )
        if self.repeated and together:
            notes.append(f"{self.repeated} repeated item{'s' if self.repeated > 1 else ''}: tied")
        return notes


def pick_column(columns: Sequence[Any], column: Any | None, where: str) -> int:
    """The place of the column that was asked for; without a name there must be one column alone."""
    named = ", ".join(quoted(name) for name in columns)
    if column is None:
        if len(columns) != 1:
            raise CcrankError(f"{where}: several columns; name the one with the items: {named}")
        return 0
    matches = [index for index, name in enumerate(columns) if name == column]
    matches = matches or [
        index for index, name in enumerate(columns) if str(name).strip() == str(column).strip()
    ]
    if len(matches) > 1:
        raise CcrankError(f"{where}: {len(matches)} columns are called {column!r}; rename one")
    if not matches:
        guess = did_you_mean(str(column), map(str, columns))
        raise CcrankError(f"{where}: there is no column {column!r}; {guess}there are {named}")
    return matches[0]


def unique_names(columns: Iterable[Any]) -> list[str]:
    """Column names as texts, no two alike, for formats in which names are unique."""
    names = [str(name) for name in columns]
    taken = set(names)
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            number = 2
            while f"{name}_{number}" in taken:
                number += 1
            names[index] = f"{name}_{number}"
            taken.add(names[index])
        seen.add(name)
    return names
