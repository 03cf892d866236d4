"""Several rankings as one table: of the same rows by several criteria, or of groups of rows by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

from ccrank.io import Entry, RankedRows, Rows, frame_of
from ccrank.io.cells import json_value
from ccrank.io.groups import Groups
from ccrank.models.reading import Cost
from ccrank.ranking import Ranking, row_json

K = TypeVar("K")
SHARED = ("item", "id", "row")
"""What the entries of an item have in common whatever the criterion."""


class _Named(Mapping[K, Ranking]):
    """Rankings by their names."""

    by: Mapping[K, Ranking]

    def __getitem__(self, name: K) -> Ranking:
        return self.by[name]

    def __iter__(self) -> Iterator[K]:
        return iter(self.by)

    def __len__(self) -> int:
        return len(self.by)


@dataclass(frozen=True, eq=False, repr=False)
class Rankings(_Named[str]):
    """One ranking of the same items for each criterion, by the words that named it: `rankings["politeness"]`.

    Tables are in the order of the first criterion.
    """

    rows: Rows
    by: Mapping[str, Ranking]
    """Criterion → its ranking, in the order in which they were given."""

    @cached_property
    def first(self) -> Ranking:
        """The ranking by the first criterion, whose order tables have."""
        return next(iter(self.by.values()))

    @property
    def cost(self) -> Cost:
        """The prompts and tokens read for all criteria."""
        return sum((ranking.cost for ranking in self.by.values()), Cost())

    @cached_property
    def entries_by_row(self) -> dict[str, dict[int, Entry]]:
        """Criterion → row → its entry."""
        return {name: {entry.row: entry for entry in one.entries()} for name, one in self.by.items()}

    def ranked_rows(self, top: int | None = None, reverse: bool = False, exact: bool = False) -> RankedRows:
        """The rows with a rank and a score for each criterion, in the order of the first.

        Parameters
        ----------
        top, reverse
            As in `Ranking.entries`, by the first criterion.
        exact
            Do not round scores.
        """
        order = self.first.ranked_rows(top, reverse).order
        columns: dict[str, list[Any]] = {}
        for name, ranking in self.by.items():
            ranked = ranking.ranked_rows(exact=exact)
            for column in ("rank", "score"):
                by_row = dict(zip(ranked.order, ranked.values[column], strict=True))
                columns[f"{name}_{column}"] = [by_row[row] for row in order]
        return RankedRows(self.rows.as_table, order, columns)  # the items of a list come first

    def to_frame(self) -> Any:
        """A frame with the columns CRITERION_rank and CRITERION_score for each criterion; see `Ranking.to_frame`."""
        return frame_of(self.ranked_rows(exact=True))

    def to_json(self, top: int | None = None, reverse: bool = False) -> dict[str, Any]:
        """The JSON form: `items` with rank and score by criterion, and `criteria` with all else about each ranking.

        Parameters
        ----------
        top, reverse
            As in `Ranking.entries`, by the first criterion.
        """
        items = []
        for first in self.first.entries(top, reverse):
            by_row = self.entries_by_row.items()
            entries = {name: self.by[name].entry_json(rows[first.row]) for name, rows in by_row}
            shared = {key: value for key, value in self.first.entry_json(first).items() if key in SHARED}
            for entry, key in product(entries.values(), shared):
                del entry[key]
            items.append({**shared, "by": entries})
        about = {name: one.to_json(top=0) for name, one in self.by.items()}
        for ranking in about.values():
            del ranking["items"]
        return {"items": items, "criteria": about}

    def __repr__(self) -> str:
        return f"<Rankings of {len(self.first)} items by {', '.join(self.by)}>"


@dataclass(frozen=True, eq=False, repr=False)
class GroupedRankings(_Named[Any]):
    """One ranking for each group of rows, by the value they share: `rankings["north"]`; scores of different groups do
    not compare. Groups of one item are in tables alone.
    """

    groups: Groups
    by: Mapping[Any, Ranking]
    """Value → its ranking, in the order of first appearance."""

    def ranked_rows(self, top: int | None = None, reverse: bool = False, exact: bool = False) -> RankedRows:
        """The rows with rank and score, group by group, then rows without an item.

        Parameters
        ----------
        top, reverse
            As in `Ranking.entries`, of each group.
        exact
            Do not round scores.
        """
        lines: list[tuple[int, dict[str, Any]]] = []
        for value, members in self.groups.members.items():
            if value not in self.by:
                lines += [(row, {"rank": 1}) for row in members[:top]]
                continue
            ranked = self.by[value].ranked_rows(top, reverse, exact)
            for row, *values in zip(ranked.order, *ranked.values.values(), strict=True):
                lines.append((members[row], dict(zip(ranked.values, values, strict=True))))
        rows = self.groups.rows
        if top is None:
            lines += [(row, {}) for row, text in enumerate(rows.texts) if text is None]
        names = dict.fromkeys(("rank", "score", *(name for _, cells in lines for name in cells)))
        columns = {name: [cells.get(name) for _, cells in lines] for name in names}
        return RankedRows(rows, tuple(row for row, _ in lines), columns)

    def to_frame(self) -> Any:
        """A frame with the rows of each group in ranked order; see `Ranking.to_frame`."""
        return frame_of(self.ranked_rows(exact=True))

    def to_json(self, top: int | None = None, reverse: bool = False) -> dict[str, Any]:
        """The JSON form: `groups`, each with its value as `group`, and the JSON form of its ranking.

        Parameters
        ----------
        top, reverse
            As in `Ranking.entries`, of each group.
        """
        rows, groups = self.groups.rows, []
        for value, members in self.groups.members.items():
            if value in self.by:
                about = self.by[value].to_json(top, reverse)
            else:
                lone = ((row, {"rank": 1, "item": rows.texts[row], "score": None}) for row in members[:top])
                about = {"items": [line | row_json(rows, row) for row, line in lone]}
            groups.append({"group": json_value(value), **about})
        return {"group_by": json_value(self.groups.column), "groups": groups}

    def __repr__(self) -> str:
        return f"<GroupedRankings of {len(self.groups.members)} groups by {self.groups.column}>"
