"""Rows in groups: those with the same value in a column."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.io.cells import cell_text, is_missing
from ccrank.io.dataframes import cells_of, rows_at
from ccrank.io.table import Rows, pick_column
from ccrank.util.text import one_line, quoted

MAX_GROUPS = 1000
SHOWN = 5


@dataclass(frozen=True)
class Groups:
    """The rows that have an item, by their value in a column."""

    rows: Rows
    column: Any
    """Its name in the header."""
    members: Mapping[Any, tuple[int, ...]]
    """Value → its rows, in the order of first appearance; rows without a value are a group, None, which is last."""
    parts: Mapping[Any, Rows]
    """Value → the rows of a group with at least two different items; a single item needs no ranking."""

    @classmethod
    def of(cls, rows: Rows, column: Any) -> Groups:
        """Group rows by a column."""
        if not rows.columns:
            raise CcrankError("groups are the values of a column; give a file or a frame that has one")
        index = pick_column(rows.columns, column, "the groups")
        name = rows.columns[index]
        rows_of: dict[Any, list[int]] = {}
        for row, (text, cell) in enumerate(zip(rows.texts, cells_of(rows, index), strict=True)):
            value = cell.strip() if isinstance(cell, str) else cell
            if not isinstance(value, Hashable):
                raise CcrankError(
                    f"a group is a text, a number or a date, got {quoted(value)} in column {name!r}"
                )
            if text is not None:
                rows_of.setdefault(None if is_missing(value) or value == "" else value, []).append(row)
        if len(rows_of) > MAX_GROUPS:
            raise CcrankError(
                f"column {str(name)!r} has {len(rows_of):,} values; up to {MAX_GROUPS:,} groups are ranked: choose a "
                "column with fewer"
            )
        if None in rows_of:
            rows_of[None] = rows_of.pop(None)
        members = {value: tuple(indices) for value, indices in rows_of.items()}
        parts = {value: rows_at(rows, indices) for value, indices in members.items()}
        ranked = {value: part for value, part in parts.items() if len(part.items) > 1}
        if not ranked:
            raise CcrankError(
                f"no group of column {str(name)!r} has 2 different items; choose a column with fewer values"
            )
        return cls(rows, name, members, ranked)

    def name_of(self, value: Any) -> str:
        """What a group is called: "region north".

        >>> Groups(Rows(()), "region", {}, {}).name_of(None)
        'no region'
        """
        return f"no {self.column}" if value is None else f"{self.column} {cell_text(value)}"

    def notes(self) -> list[str]:
        """What a user should know about the groups, one sentence each."""
        notes = []
        if None in self.members:
            count = len(self.members[None])
            notes.append(
                f"{count} row{'s' if count > 1 else ''} without a value in column {str(self.column)!r}: a group of "
                "their own, which comes last"
            )
        if lone := [one_line(self.name_of(value), 40) for value in self.members if value not in self.parts]:
            more = f" and {len(lone) - SHOWN} more" if len(lone) > SHOWN else ""
            notes.append(
                f"{len(lone)} group{'s' if len(lone) > 1 else ''} of one item: rank 1, without score: "
                f"{', '.join(lone[:SHOWN])}{more}"
            )
        return notes
