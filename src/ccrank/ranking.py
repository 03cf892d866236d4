"""The result: items in order with scores, whether the direction is known, and how consistent the answers were."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from ccrank.lm.reading import Cost
from ccrank.task import Task, normal_form
from ccrank.text import one_line
from ccrank.understood import Understood

HTML_ROWS = 100
"""Rows of a notebook's table; the rest is counted."""


@dataclass(frozen=True)
class Answer:
    """What a method gives for one task."""

    scores: np.ndarray
    """(N,) aligned with the items that the method was given, more = higher."""
    consistency: Mapping[str, float] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    details: Mapping[str, Any] = field(default_factory=dict)
    probe: Any = None
    """The Probe that was fitted, if any."""
    directed: bool | None = None
    """Overrides what the method says of itself; a saved probe knows whether it is directed."""


@dataclass(frozen=True, eq=False, repr=False)
class Ranking:
    """A method's answer to a task: `len`, iteration (items, best first), equality, and tables for notebooks.

    Two rankings are equal if they give the same scores to the same task by the same method and model.
    """

    task: Task
    scores: np.ndarray
    """(N,) aligned with the task's items, more = higher."""
    method: str
    model: str
    directed: bool
    """Whether the method knows which end is the high one; if not, the order may be reversed."""
    consistency: Mapping[str, float] = field(default_factory=dict)
    """How well the answers agree with each other; see the docs of each method."""
    cost: Cost = field(default_factory=Cost)
    """What was read for this task; for tasks ranked together, their even share."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else there is to know: the number of comparisons, warnings."""
    probe: Any = None
    """The Probe that was fitted, if any; it can be saved and applied to other items."""

    @property
    def order(self) -> tuple[int, ...]:
        """Item indices, best first. Equal scores stand in the order of their texts, so that the order in which the
        items were given never matters."""
        return tuple(
            sorted(
                range(len(self.scores)),
                key=lambda index: (-self.scores[index], normal_form(self.task.items[index])),
            )
        )

    @property
    def understood(self) -> Understood | None:
        """What the criterion was taken to mean, and what comes first: `understood.first` is "cheapest first"."""
        return self.task.criterion.understood

    @property
    def items(self) -> tuple[str, ...]:
        """The items, best first."""
        return tuple(self.task.items[index] for index in self.order)

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranking):
            return NotImplemented
        same = (self.task, self.method, self.model, self.directed)
        return same == (other.task, other.method, other.model, other.directed) and np.array_equal(
            self.scores, other.scores
        )

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
        source = f"by {self.task.criterion.name}; {self.method} on {self.model}"
        return (
            f"<table><caption>{escape(one_line(source, 120))}</caption>"
            f"<thead><tr><th>rank</th><th>item</th><th>score</th></tr></thead><tbody>{rows}</tbody></table>{left_out}"
        )

    def to_json(self, top: int | None = None, reverse: bool = False) -> dict[str, Any]:
        """The JSON form, best first; `reverse` puts the lowest first, ranks staying what they are."""
        rows: list[dict[str, Any]] = [
            {"rank": rank, "item": self.task.items[index], "score": round(float(self.scores[index]), 6)}
            for rank, index in enumerate(self.order, start=1)
        ]
        if reverse:
            rows.reverse()
        result: dict[str, Any] = {
            "task": self.task.id,
            "criterion": self.task.criterion.to_json(),
            "model": self.model,
            "method": self.method,
            "directed": self.directed,
            "items": rows[:top],
            "consistency": {key: finite(value) for key, value in self.consistency.items()},
            "cost": {
                "prompts": self.cost.prompts,
                "prompt_tokens": self.cost.prompt_tokens,
                "distinct_tokens": self.cost.distinct_tokens,
                "computed_tokens": self.cost.computed_tokens,
            },
        }
        if self.understood is not None:
            result["understood"] = self.understood.to_json()
        if self.details:
            result["details"] = dict(self.details)
        return result


def finite(value: float) -> float | None:
    """A number that JSON knows; None for NaN and infinities."""
    number = float(value)
    return round(number, 6) if math.isfinite(number) else None


def canonical(task: Task) -> tuple[Task, list[int]]:
    """The task with its items in the order of their texts, and for each of its items the place in the original.

    Methods see this form alone, so that shuffles, pivots and sums do not depend on how the items were given.
    """
    order = sorted(range(len(task.items)), key=lambda index: normal_form(task.items[index]))
    values = None if task.values is None else tuple(task.values[index] for index in order)
    same = Task(
        task.criterion, tuple(task.items[index] for index in order), task.context, values, task.id, task.about
    )
    return same, order


def from_canonical(scores: Sequence[float] | np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Scores of the canonical task's items, put back in the original order."""
    back = np.empty(len(order), dtype=float)
    back[list(order)] = np.asarray(scores, dtype=float)
    return back
