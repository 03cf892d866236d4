"""Rows with an item each, the distinct items among them, and their scores put back on the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from ccrank.errors import CcrankError
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.text import did_you_mean, quoted

if TYPE_CHECKING:
    import numpy as np

DECIMALS = 6
"""Digits of a score in files and JSON."""


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
    def as_table(self) -> Rows:
        """The rows with a column of items, which a plain list has not."""
        return (
            self
            if self.columns
            else replace(self, columns=("item",), records=[(text,) for text in self.texts])
        )

    @property
    def unranked(self) -> int:
        """The number of rows without an item."""
        return self.texts.count(None)

    @property
    def repeated(self) -> int:
        """The number of rows that repeat the item of an earlier row."""
        return len(self.texts) - self.unranked - len(self.items)

    def task(self, by: Criterion | str, context: str | None = None, id: str = "task") -> Task:
        """The task of ranking the distinct items by a criterion, or by their relevance to a query."""
        if len(self.items) == 1 and self.repeated:
            raise CcrankError(
                f"all {len(self.texts) - self.unranked} items are the same, {quoted(self.items[0])}; "
                "a ranking needs at least 2 different items"
            )
        if isinstance(by, str):
            return Task.of_query(by, self.items, context=context, id=id)
        return Task(by, self.items, context, id=id)

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
            names[index] = next(new for number in count(2) if (new := f"{name}_{number}") not in taken)
            taken.add(names[index])
        seen.add(name)
    return names


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a ranking."""

    rank: int
    """1 + the number of entries with a higher score: 1, 2, 2, 4."""
    item: str
    """The item as it was written in its row."""
    score: float
    index: int
    """Its place among the task's items."""
    row: int
    """Its place among the rows that were given."""


def ranked_entries(rows: Rows, scores: Sequence[float] | np.ndarray) -> list[Entry]:
    """One entry for each row that has an item, best first. Equal scores share a rank and are in the order of their
    texts, then of their rows.
    """
    order = sorted(range(len(rows.items)), key=lambda index: (-scores[index], normal_form(rows.items[index])))
    members: dict[int, list[int]] = {index: [] for index in order}
    for row, index in enumerate(rows.places):
        if index is not None:
            members[index].append(row)
    entries: list[Entry] = []
    for index in order:
        score = float(scores[index])
        tied = bool(entries) and entries[-1].score == score
        rank = entries[-1].rank if tied else len(entries) + 1
        entries += [Entry(rank, str(rows.texts[row]), score, index, row) for row in members[index]]
    return entries


@dataclass(frozen=True)
class RankedRows:
    """Rows in the order of the output, with the columns that are added."""

    rows: Rows
    order: tuple[int, ...]
    values: Mapping[str, Sequence[Any]]
    """Name → one value for each row, None for one without an item; the first two columns are ranks and scores."""

    @classmethod
    def of(
        cls,
        rows: Rows,
        entries: Sequence[Entry],
        top: int | None = None,
        decimals: int | None = DECIMALS,
        more: Mapping[str, Sequence[Any]] | None = None,
    ) -> RankedRows:
        """The rows of the entries, in their order; without `top`, rows that have no item follow. `more` has a value for
        each entry."""
        kept = entries[:top]
        rest = [row for row, text in enumerate(rows.texts) if text is None] if top is None else []
        ranks = [entry.rank for entry in kept]
        scores = [entry.score if decimals is None else round(entry.score, decimals) for entry in kept]
        values: dict[str, Sequence[Any]] = {"rank": ranks, "score": scores, **(more or {})}
        empty = [None] * len(rest)
        order = (*(entry.row for entry in kept), *rest)
        return cls(rows, order, {name: [*column, *empty] for name, column in values.items()})

    @classmethod
    def unscored(cls, rows: Rows) -> RankedRows:
        """All rows as they were given, to check that they can be written before they are ranked."""
        empty = [None] * len(rows.texts)
        return cls(rows, tuple(range(len(rows.texts))), {"rank": empty, "score": empty})

    @property
    def added(self) -> dict[str, Sequence[Any]]:
        """The columns that are added, by names that are not taken."""
        names = added_names(self.rows.columns, (*self.values,))
        return dict(zip(names, self.values.values(), strict=True))

    @property
    def columns(self) -> tuple[Any, ...]:
        """The header, with rank and score added; of a plain list rank, item and score."""
        if self.rows.columns:
            return (*self.rows.columns, *self.added)
        rank, *others = self.values
        return (rank, "item", *others)

    @property
    def records(self) -> list[tuple[Any, ...]]:
        """The cells of `columns`."""
        lines = zip(self.order, *self.values.values(), strict=True)
        if self.rows.columns:
            return [(*self.rows.records[row], *values) for row, *values in lines]
        return [(rank, self.rows.texts[row], *values) for row, rank, *values in lines]


def added_names(columns: Sequence[Any], wanted: Sequence[str] = ("rank", "score")) -> tuple[str, ...]:
    """Names for added columns that are not taken."""
    taken = {str(name).strip().casefold() for name in columns}

    def free(name: str) -> str:
        names = chain((name, f"ccrank_{name}"), (f"ccrank_{name}_{number}" for number in count(2)))
        return next(new for new in names if new.casefold() not in taken)

    return tuple(free(name) for name in wanted)
