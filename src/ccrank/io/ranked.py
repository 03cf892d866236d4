"""Scores of distinct items put back on rows: ranks, ties, the order of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccrank.io.table import Rows
from ccrank.task import normal_form

if TYPE_CHECKING:
    import numpy as np

DECIMALS = 6
"""Digits of a score in files and JSON."""


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
    """Rows in the order of the output, with their ranks and scores; None for rows without an item."""

    rows: Rows
    order: tuple[int, ...]
    ranks: tuple[int | None, ...]
    scores: tuple[float | None, ...]
    more: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """Further columns to add, each with its name and one value per row."""
    names: tuple[str, str] = ("rank", "score")
    """What the columns of ranks and scores are called."""

    @classmethod
    def of(
        cls,
        rows: Rows,
        entries: Sequence[Entry],
        top: int | None = None,
        decimals: int | None = DECIMALS,
    ) -> RankedRows:
        """The rows of the entries, in their order; without `top`, rows that have no item follow."""
        kept = entries[:top]
        rest = [row for row, text in enumerate(rows.texts) if text is None] if top is None else []
        empty = (None,) * len(rest)
        return cls(
            rows,
            (*(entry.row for entry in kept), *rest),
            (*(entry.rank for entry in kept), *empty),
            (*(entry.score if decimals is None else round(entry.score, decimals) for entry in kept), *empty),
        )

    @classmethod
    def unscored(cls, rows: Rows) -> RankedRows:
        """All rows as they were given, to check that they can be written before they are ranked."""
        empty = (None,) * len(rows.texts)
        return cls(rows, tuple(range(len(rows.texts))), empty, empty)

    @property
    def added(self) -> dict[str, tuple[Any, ...]]:
        """The columns that are added, by names that are not taken: ranks, scores and further ones."""
        further = tuple(name for name, _ in self.more)
        names = added_names(self.rows.columns, (*self.names, *further))
        values = (self.ranks, self.scores, *(values for _, values in self.more))
        return dict(zip(names, values, strict=True))

    @property
    def columns(self) -> tuple[Any, ...]:
        """The header, with rank and score added."""
        if not self.rows.columns:
            rank, score = self.names
            return (rank, "item", score, *(name for name, _ in self.more))
        return (*self.rows.columns, *self.added)

    @property
    def records(self) -> list[tuple[Any, ...]]:
        """The cells, with rank and score added."""
        places = zip(self.order, self.ranks, self.scores, *(values for _, values in self.more), strict=True)
        if not self.rows.columns:
            return [(rank, self.rows.texts[row], score, *more) for row, rank, score, *more in places]
        return [(*self.rows.records[row], rank, score, *more) for row, rank, score, *more in places]


def added_names(columns: Sequence[Any], wanted: Sequence[str] = ("rank", "score")) -> tuple[str, ...]:
    """Names for added columns that are not taken."""
    taken = {str(name).strip().casefold() for name in columns}

    def free(name: str) -> str:
        if name.casefold() not in taken:
            return name
        longer, number = f"ccrank_{name}", 2
        while longer in taken:
            longer, number = f"ccrank_{name}_{number}", number + 1
        return longer

    return tuple(free(name) for name in wanted)
