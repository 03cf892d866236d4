"""Scores of candidate answers from token logits: pure arithmetic, no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class AnswerTree:
    """The candidates of one prompt as a tree of tokens after the slot.

    A causal model gives the logit l(t | …) of a next token and the log-normaliser Z(…). The score of a candidate
    t₁…t_k is l(t₁) + Σ_{j≥2} (l(t_j | t₁…t_{j−1}) − Z(t₁…t_{j−1})): its log-probability as a whole plus Z at the slot,
    which all candidates share, so candidates of one token keep their plain logits. A candidate that is a prefix of
    another one ("1" and "10") is scored without the other: the other's probability is subtracted.
    """

    answers: tuple[Prefix, ...]
    steps: Mapping[Prefix, tuple[int, ...]]
    """Answer prefix → the tokens whose logits are needed after it; () is the slot."""

    def scores(
        self,
        logits: Mapping[Prefix, np.ndarray],
        normalisers: Mapping[Prefix, np.ndarray | float],
        log_probabilities: bool,
    ) -> np.ndarray:
        """(…, candidates) float32, from the logits (…, tokens) at each step and the normalisers (…) at each step except
        possibly the slot; the leading axes are prompts with the same candidates."""
        table = {
            (*prefix, token_id): logits[prefix][..., column].astype(float)
            - (normalisers[prefix] if prefix or log_probabilities else 0.0)
            for prefix, token_ids in self.steps.items()
            for column, token_id in enumerate(token_ids)
        }
        whole = np.stack(
            [sum(table[answer[: length + 1]] for length in range(len(answer))) for answer in self.answers],
            axis=-1,
        )
        alone = whole.copy()
        for index, answer in enumerate(self.answers):
            if inner := self._next_longer(answer):
                share = np.exp(whole[..., inner] - whole[..., [index]]).sum(axis=-1)
                alone[..., index] += np.log1p(-np.minimum(share, 1 - 1e-6))
        return alone.astype(np.float32)

    def _next_longer(self, answer: Prefix) -> list[int]:
        """The candidates that continue `answer` with no other candidate in between."""
        longer = [
            other for other in self.answers if len(other) > len(answer) and other[: len(answer)] == answer
        ]
        return [
            self.answers.index(other)
            for other in longer
            if not any(between != other and other[: len(between)] == between for between in longer)
        ]


@lru_cache(maxsize=4096)
def answer_tree(answers: tuple[Prefix, ...]) -> AnswerTree:
    """The tree of a list of candidates."""
    steps: dict[Prefix, list[int]] = {}
    for answer in answers:
        for length, token_id in enumerate(answer):
            token_ids = steps.setdefault(answer[:length], [])
            if token_id not in token_ids:
                token_ids.append(token_id)
    return AnswerTree(answers, {prefix: tuple(token_ids) for prefix, token_ids in steps.items()})
