"""What a reader gives back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
