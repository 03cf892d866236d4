"""What a reader gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ccrank.errors import CcrankError
from ccrank.prompts import Prompt
from ccrank.task import Task

Request = tuple[list[Prompt], Sequence[str] | None]
"""Prompts and the candidates that are scored in their slots; None reads states alone."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a reading took."""

    prompts: int = 0
    prompt_tokens: int = 0
    """Tokens in the prompts and candidate answers, each counted where it stands: what one-by-one reading computes."""
    distinct_tokens: int = 0
    """Tokens after sharing common prefixes (causal) or equal inputs (others): what has to be computed."""
    computed_tokens: int = 0
    """Tokens that were computed, prefixes that had to be repeated included, cached ones not."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.prompts + other.prompts,
            self.prompt_tokens + other.prompt_tokens,
            self.distinct_tokens + other.distinct_tokens,
            self.computed_tokens + other.computed_tokens,
        )


@dataclass(frozen=True, slots=True)
class Readings:
    """A model's answers and states at the slots of P prompts. Nothing else is kept."""

    logits: np.ndarray | None
    """(P, C) score of each candidate: its logit, or see `ccrank.lm.answers` for candidates of several tokens; NaN
    where a prompt has fewer candidates than others."""
    states: np.ndarray | None
    """(P, L, d) hidden states at the slot, for the L layers asked for."""
    item_states: np.ndarray | None
    """(P, L, d) hidden states at the last token of the (last) item."""
    layers: tuple[int, ...]
    cost: Cost
    answer_tokens: np.ndarray | None = None
    """(P, C) how many tokens each candidate has in its slot; 0 where a prompt has fewer candidates than others."""


def share_of(cost: Cost, part: int, whole: int) -> Cost:
    """A part's even share of a common cost."""
    share = part / max(1, whole)
    return Cost(
        part,
        round(cost.prompt_tokens * share),
        round(cost.distinct_tokens * share),
        round(cost.computed_tokens * share),
    )


def shares_by_items(cost: Cost, tasks: Sequence[Task]) -> list[Cost]:
    """Each task's share of a common cost, by its items: prompts too, since an item is asked about more than once."""
    total = max(1, sum(len(task.items) for task in tasks))
    return [
        replace(share_of(cost, len(task.items), total), prompts=round(cost.prompts * len(task.items) / total))
        for task in tasks
    ]


def checked_logits(logits: np.ndarray, task: str) -> np.ndarray:
    """The logits as they came, or an error: no order can be made of NaN."""
    if not np.isfinite(logits).all():
        raise CcrankError(
            f"task {task!r}: the model's logits are not all finite numbers; read it in another precision, such as "
            "--dtype float32"
        )
    return logits
