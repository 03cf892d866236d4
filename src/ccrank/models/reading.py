"""The data types that a reader returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ccrank.errors import CcrankError
from ccrank.prompts import Prompt
from ccrank.task import Task

Request = tuple[list[Prompt], Sequence[str] | None]
"""Prompts and the candidates that are scored in their slots; None reads states only."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The number of prompts and tokens of a reading."""

    prompts: int = 0
    prompt_tokens: int = 0
    """Tokens in the prompts and candidate answers, counted with repetition: the cost of reading one by one."""
    distinct_tokens: int = 0
    """Tokens after sharing common prefixes (causal) or equal inputs (others): the tokens that must be computed."""
    computed_tokens: int = 0
    """Tokens that were computed, including repeated prefixes, excluding cached ones."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.prompts + other.prompts,
            self.prompt_tokens + other.prompt_tokens,
            self.distinct_tokens + other.distinct_tokens,
            self.computed_tokens + other.computed_tokens,
        )


@dataclass(frozen=True, slots=True)
class Readings:
    """A model's candidate scores and hidden states at the slots of P prompts."""

    logits: np.ndarray | None
    """(P, C) score of each candidate: its logit, or see `ccrank.lm.answers` for candidates of several tokens; NaN
    where a prompt has fewer candidates than others."""
    states: np.ndarray | None
    """(P, L, d) hidden states at the slot, for the L requested layers."""
    item_states: np.ndarray | None
    """(P, L, d) hidden states at the last token of the (last) item."""
    layers: tuple[int, ...]
    cost: Cost
    answer_tokens: np.ndarray | None = None
    """(P, C) how many tokens each candidate has in its slot; 0 where a prompt has fewer candidates than others."""


def joined(parts: Sequence[Readings]) -> Readings:
    """The readings of consecutive prompts that were read in several steps, as one.

    Parameters
    ----------
    parts
        One reading or more, of the same layers.
    """

    def column(tables: list[np.ndarray | None]) -> np.ndarray | None:
        found = [table for table in tables if table is not None]
        return np.concatenate(found) if found else None

    def padded(tables: list[np.ndarray | None], filler: float) -> np.ndarray | None:
        width = max((table.shape[1] for table in tables if table is not None), default=0)
        return column(
            [
                None
                if table is None
                else np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=filler)
                for table in tables
            ]
        )

    return Readings(
        logits=padded([one.logits for one in parts], np.nan),
        states=column([one.states for one in parts]),
        item_states=column([one.item_states for one in parts]),
        layers=parts[0].layers,
        cost=sum((one.cost for one in parts), Cost()),
        answer_tokens=padded([one.answer_tokens for one in parts], 0),
    )


def share_of(cost: Cost, part: int, whole: int) -> Cost:
    """The proportional share of a common cost, `part` of `whole`."""
    share = part / max(1, whole)
    return Cost(
        part,
        round(cost.prompt_tokens * share),
        round(cost.distinct_tokens * share),
        round(cost.computed_tokens * share),
    )


def shares_by_items(cost: Cost, tasks: Sequence[Task]) -> list[Cost]:
    """Each task's share of a common cost, in proportion to its number of items."""
    total = max(1, sum(len(task.items) for task in tasks))
    return [
        replace(share_of(cost, len(task.items), total), prompts=round(cost.prompts * len(task.items) / total))
        for task in tasks
    ]


def checked_logits(logits: np.ndarray, task: str) -> np.ndarray:
    """The logits unchanged; raises an error unless all are finite, since NaN cannot be ordered."""
    if not np.isfinite(logits).all():
        raise CcrankError(
            f"task {task!r}: the model's logits are not all finite numbers; use another precision, such as "
            "--dtype float32"
        )
    return logits
