"""Several rankings as one table: of the same rows by several criteria, or of groups of rows by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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

    @classmethod
    def of(cls, rows: Rows, names: Sequence[str], rankings: Sequence[Ranking]) -> Rankings:
        """Rankings of the distinct items of rows."""
        return cls(rows, {name: replace(one, rows=rows) for name, one in zip(names, rankings, strict=True)})

    @cached_property
    def first(self) -> Ranking:
        """The ranking by the first criterion, whose order tables have."""
        return next(iter(self.by.values()))

    @property
    def cost(self) -> Cost:
        """The prompts and tokens read for all criteria."""
        return sum((one.cost for one in self.by.values()), Cost())

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
        columns: list[tuple[str, tuple[Any, ...]]] = []
        for name, ranking in self.by.items():
            ranked = ranking.ranked_rows(exact=exact)
            for column, values in (("rank", ranked.ranks), ("score", ranked.scores), *ranked.more):
                by_row = dict(zip(ranked.order, values, strict=True))
                columns.append((f"{name}_{column}", tuple(by_row[row] for row in order)))
        rows = self.rows
        if not rows.columns:  # a list becomes a table, so that its items come first
            rows = replace(rows, columns=("item",), records=[(text,) for text in rows.texts])
        (rank_name, ranks), (score_name, scores), *more = columns
        return RankedRows(rows, order, ranks, scores, tuple(more), (rank_name, score_name))

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
        lines = {
            name: {entry.row: one.entry_json(entry) for entry in entries.values()}
            for (name, entries), one in zip(self.entries_by_row.items(), self.by.values(), strict=True)
        }
        items = []
        for entry in self.first.entries(top, reverse):
            own = {name: by_row[entry.row] for name, by_row in lines.items()}
            shared = {key: value for key, value in self.first.entry_json(entry).items() if key in SHARED}
            by = {
                name: {key: value for key, value in line.items() if key not in SHARED}
                for name, line in own.items()
            }
            items.append({**shared, "by": by})
        about = {name: one.to_json(top=0) for name, one in self.by.items()}
        for one in about.values():
            del one["items"]
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

    @classmethod
    def of(cls, groups: Groups, rankings: Sequence[Ranking]) -> GroupedRankings:
        """The rankings of the groups that have one."""
        named = zip(groups.parts.items(), rankings, strict=True)
        return cls(groups, {value: replace(one, rows=part) for (value, part), one in named})

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
            cells = {"rank": ranked.ranks, "score": ranked.scores, **dict(ranked.more)}
            own = zip(ranked.order, *cells.values(), strict=True)
            lines += [(members[row], dict(zip(cells, values, strict=True))) for row, *values in own]
        rows = self.groups.rows
        if top is None:
            lines += [(row, {}) for row, text in enumerate(rows.texts) if text is None]
        names = dict.fromkeys(name for _, cells in lines for name in cells if name not in ("rank", "score"))
        columns = {name: tuple(cells.get(name) for _, cells in lines) for name in ("rank", "score", *names)}
        ranks, scores = columns.pop("rank"), columns.pop("score")
        return RankedRows(rows, tuple(row for row, _ in lines), ranks, scores, tuple(columns.items()))

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
        rows, found = self.groups.rows, []
        for value, members in self.groups.members.items():
            if value in self.by:
                about = self.by[value].to_json(top, reverse)
            else:
                lone = (
                    {"rank": 1, "item": rows.texts[row], "score": None} | row_json(rows, row)
                    for row in members
                )
                about = {"items": list(lone)[:top]}
            found.append({"group": json_value(value), **about})
        return {"group_by": json_value(self.groups.column), "groups": found}

    def __repr__(self) -> str:
        return f"<GroupedRankings of {len(self.groups.members)} groups by {self.groups.column}>"
