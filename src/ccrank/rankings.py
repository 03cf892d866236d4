"""Rankings of the same rows by several criteria, as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ccrank.io import Entry, RankedRows, Rows, frame_of
from ccrank.models.reading import Cost
from ccrank.ranking import Ranking

SHARED = ("item", "id", "row")
"""What the entries of an item have in common whatever the criterion."""


@dataclass(frozen=True, eq=False, repr=False)
class Rankings(Mapping[str, Ranking]):
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

    def __getitem__(self, name: str) -> Ranking:
        return self.by[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by)

    def __len__(self) -> int:
        return len(self.by)

    def __repr__(self) -> str:
        return f"<Rankings of {len(self.first)} items by {', '.join(self.by)}>"
