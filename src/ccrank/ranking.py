"""The result of a method: scores and order of the items, whether the direction is known, and consistency."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ccrank.confidence import Confidence
from ccrank.io import Entry, RankedRows, Rows, frame_of, json_value, ranked_entries
from ccrank.io.table import DECIMALS
from ccrank.models.prompter import Prompter
from ccrank.models.reading import Cost
from ccrank.task import Task, Understood, normal_form
from ccrank.util.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HTML_ROWS = 100
"""Rows of a notebook's table; the rest is counted."""


@dataclass(frozen=True)
class Uncertainty:
    """The standard deviation of each score, and an interval that holds its rank."""

    deviation: np.ndarray
    """(N,) aligned with the scores."""
    rank_low: np.ndarray
    """(N,) the best rank of the interval, 1 = highest."""
    rank_high: np.ndarray
    """(N,) the worst rank."""
    probability: float = 0.8
    """How often the interval holds the rank."""


@dataclass(frozen=True)
class ItemScores:
    """Scores of items on the scale of a list that need not contain them."""

    values: np.ndarray
    """(N,) more = higher; NaN for rows without an item."""
    deviation: np.ndarray | None = None
    """(N,) the standard deviation of each; None where it is not known."""
    cost: Cost = field(default_factory=Cost)
    """Of reading the items that were not known."""

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=bool(copy)) if copy else np.asarray(self.values, dtype)


class Scorer(Protocol):
    """Scores items one by one, with the constants of a list."""

    def score(self, task: Task, prompter: Prompter) -> ItemScores:
        """The scores of the task's items, of which there may be one alone."""


MakeScorer = Callable[[], Any]
"""Makes a `Scorer` when it is needed: most rankings never need one."""


@dataclass(frozen=True)
class Answer:
    """The output of a method for one task."""

    scores: np.ndarray
    """(N,) aligned with the task's items, more = higher."""
    consistency: Mapping[str, float] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    details: Mapping[str, Any] = field(default_factory=dict)
    scorer: MakeScorer | None = None
    """Makes what scores items that are not in the list; None where the method compares the items of a list."""
    directed: bool | None = None
    """Overrides the method's default."""
    uncertainty: Uncertainty | None = None
    """Of the scores and ranks; None where the method gives none."""
    warnings: tuple[str, ...] = ()
    """What to know before relying on the order, each with a remedy; a low confidence always has a warning."""
    confidence: Confidence | None = None
    """How likely the order is right; None for methods without signals."""
    pair_margins: np.ndarray | None = None
    """(N, N) the single answers of a method that compares pairs, as margins (see `ccrank.metrics.aggregation`)."""
    runs: np.ndarray | None = None
    """(R, N) the scores of the single runs that `scores` joins."""


@dataclass(frozen=True, eq=False, repr=False)
class Ranking:
    """The ranking of a task by a method: `len`, iteration (items, best first), equality, and tables for notebooks.

    Two rankings are equal if they give the same scores to the same task by the same method and model.
    """

    task: Task
    scores: np.ndarray
    """(N,) aligned with the task's items, more = higher."""
    method: str
    model: str
    directed: bool
    """Whether the direction is known; if not, the order may be reversed."""
    consistency: Mapping[str, float] = field(default_factory=dict)
    """Measures of how well the answers agree with each other; see the docs of each method."""
    cost: Cost = field(default_factory=Cost)
    """The prompts and tokens read for this task; for tasks ranked together, its share."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further information, such as the signals by item and the number of comparisons."""
    rows: Rows | None = None
    """The rows or the list that the task's items are from, where these may repeat; None for a task's own items."""
    uncertainty: Uncertainty | None = None
    """Of the scores and ranks, aligned with the task's items; None where the method gives none."""
    warnings: tuple[str, ...] = ()
    """What to know before relying on the order, each with what to do about it; empty if there is nothing."""
    confidence: Confidence | None = None
    """How likely the order is right (auto, anchored); None where nothing is known: other methods, lists with labels."""
    pair_margins: np.ndarray | None = None
    """(N, N) the single answers of `prompt-pair`: [i, j] is the log-odds that item i is higher when presented before
    j, NaN if not compared; None for other methods and for sorts."""
    runs: np.ndarray | None = None
    """(R, N) the scores of the single runs that `scores` joins (`prompt-list`: one per shuffle); None elsewhere."""

    @property
    def order(self) -> tuple[int, ...]:
        """Item indices, best first. Equal scores are ordered by text, so that the input order of the items never
        matters."""
        return tuple(entry.index for entry in ranked_entries(Rows(self.task.items), self.scores))

    @property
    def understood(self) -> Understood | None:
        """What the criterion was taken to mean, and what comes first: `understood.first` is "cheapest first"."""
        return self.task.criterion.understood

    @property
    def items(self) -> tuple[str, ...]:
        """The items, best first; an item that was given twice is listed twice."""
        return tuple(entry.item for entry in self.entries())

    def entries(self, top: int | None = None, reverse: bool = False) -> list[Entry]:
        """Rank, item and score of each row that has an item, best first; equal scores share a rank: 1, 2, 2, 4.

        Parameters
        ----------
        top
            Keep this many.
        reverse
            Put the lowest first; ranks stay what they are.
        """
        entries = ranked_entries(self.rows or Rows(self.task.items), self.scores)
        return (entries[::-1] if reverse else entries)[:top]

    def ranked_rows(self, top: int | None = None, reverse: bool = False, exact: bool = False) -> RankedRows:
        """The rows that were given, in ranked order, for `ccrank.io.encode_rows`.

        Parameters
        ----------
        top, reverse
            As in `entries`; without `top`, rows that have no item come last.
        exact
            Do not round scores.
        """
        entries = self.entries(None, reverse)
        doubts = [self._doubt(entry.index) for entry in entries[:top]]
        more = {name: [doubt[name] for doubt in doubts] for name in self._doubt(0)}
        return RankedRows.of(
            self.rows or Rows(self.task.items), entries, top, None if exact else DECIMALS, more
        )

    def plot(self, path: str | Path | None = None) -> Figure:
        """The items on the scale of their scores, as a matplotlib figure; notebooks show it.

        Parameters
        ----------
        path
            A file to write the figure to as well (.png, .pdf, .svg).
        """
        from ccrank.ranking_plot import plot_scale, scale_figure

        return scale_figure(self) if path is None else plot_scale(self, Path(path))

    def to_frame(self) -> Any:
        """A frame in ranked order: of the kind that was ranked, all columns kept and `rank` and `score` added (as
        `ccrank_rank` and `ccrank_score` where these names are taken); for a list, a pandas frame of rank, item, score.
        `deviation`, `rank_low` and `rank_high` follow where they are known.

        Rows without an item come last, without rank and score.
        """
        return frame_of(self.ranked_rows(exact=True))

    def __len__(self) -> int:
        return len(self.scores) if self.rows is None else len(self.rows.texts) - self.rows.unranked

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranking):
            return NotImplemented
        about = attrgetter("task", "method", "model", "directed", "items")
        return bool(about(self) == about(other)) and np.array_equal(self.scores, other.scores)

    def __hash__(self) -> int:
        return hash((self.task, self.method, self.model))

    def __repr__(self) -> str:
        shown = " > ".join(one_line(item, 30) for item in self.items[:5])
        more = f" > … ({len(self)} items)" if len(self) > 5 else ""
        return f"<Ranking by {one_line(self.task.criterion.name, 40)}: {shown}{more}>"

    def _repr_html_(self) -> str:
        """A table for notebooks, best first."""
        rows = "".join(
            f"<tr><td>{row['rank']}</td><td style='text-align:left'>{escape(one_line(row['item'], 120))}</td>"
            f"<td>{row['score']:.2f}</td></tr>"
            for row in self.to_json(top=HTML_ROWS)["items"]
        )
        left_out = f"<p>… and {len(self) - HTML_ROWS} more</p>" if len(self) > HTML_ROWS else ""
        first = f": {self.understood.first}" if self.understood is not None and self.directed else ""
        about = [f"by {self.task.criterion.name}{first}", f"{self.method} on {self.model}"]
        if self.confidence is not None:
            about.append(f"confidence: {self.confidence.level} ({self.confidence.probability:.2f})")
        return (
            f"<table><caption>{escape(one_line('; '.join(about), 240))}</caption>"
            f"<thead><tr><th>rank</th><th>item</th><th>score</th></tr></thead><tbody>{rows}</tbody></table>{left_out}"
        )

    def to_json(self, top: int | None = None, reverse: bool = False) -> dict[str, Any]:
        """The JSON form.

        Parameters
        ----------
        top
            The number of items to include; None includes all.
        reverse
            List the lowest first; ranks do not change.
        """
        rows = [self.entry_json(entry) for entry in self.entries(top, reverse)]
        result: dict[str, Any] = {
            "task": self.task.id,
            "criterion": self.task.criterion.to_json(),
            **({} if self.task.query is None else {"query": self.task.query}),
            "model": self.model,
            "method": self.method,
            "directed": self.directed,
            "items": rows,
            "confidence": None if self.confidence is None else self.confidence.to_json(),
            "warnings": list(self.warnings),
            "consistency": {key: finite(value) for key, value in self.consistency.items()},
            "cost": asdict(self.cost),
        }
        if self.rows is not None and self.rows.unranked:
            result["skipped"] = self.rows.unranked
        if self.understood is not None:
            result["understood"] = self.understood.to_json()
        if self.details:
            result["details"] = dict(self.details)
        return result

    def entry_json(self, entry: Entry) -> dict[str, Any]:
        """Rank, item and score; for rows of a file their id, where one was chosen, and their other columns.

        Parameters
        ----------
        entry
            One of `entries`.
        """
        line = {"rank": entry.rank, "item": entry.item, "score": round(entry.score, 6)}
        others = {} if self.rows is None else row_json(self.rows, entry.row)
        return {**line, **self._doubt(entry.index), **others}

    def _doubt(self, index: int) -> dict[str, Any]:
        """The uncertainty of an item, as columns and JSON have it; empty where it is not known."""
        known = self.uncertainty
        if known is None:
            return {}
        ranks = {name: int(getattr(known, name)[index]) for name in ("rank_low", "rank_high")}
        return {"deviation": round(float(known.deviation[index]), 6), **ranks}


def row_json(rows: Rows, row: int) -> dict[str, Any]:
    """The id of a row, where one was chosen, and its cells other than the item; empty for a list."""
    if not rows.records:
        return {}
    cells = [json_value(cell) for cell in rows.records[row]]
    line = {} if rows.id_column is None else {"id": cells[rows.id_column]}
    others = dict(zip(rows.names, cells, strict=True))
    del others[rows.names[rows.item_column]]
    return line | ({"row": others} if others else {})


def finite(value: float) -> float | None:
    """The number, or None for NaN and infinities, which JSON lacks."""
    number = float(value)
    return round(number, 6) if math.isfinite(number) else None


def canonical(task: Task) -> tuple[Task, list[int]]:
    """The task with its items sorted by text, and for each of its items the index in the original. Methods see only
    this form, so that shuffles, pivots and sums do not depend on the input order."""
    order = sorted(range(len(task.items)), key=lambda index: normal_form(task.items[index]))
    aligned = {name: getattr(task, name) for name in ("items", "values", "first_stage", "item_ids")}
    changes: dict[str, Any] = {
        name: tuple(row[index] for index in order) for name, row in aligned.items() if row is not None
    }
    return replace(task, **changes), order


def from_canonical(values: Sequence[Any] | np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Numbers of the canonical task's items, (…, N), in the original order."""
    return np.asarray(values, dtype=float)[..., np.argsort(order)]


def margins_from_canonical(margins: np.ndarray | None, order: Sequence[int]) -> np.ndarray | None:
    """(N, N) margins between the canonical task's items, in the original order."""
    places = np.argsort(order)
    return None if margins is None else margins[np.ix_(places, places)]
