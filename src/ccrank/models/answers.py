"""Scores of candidate answers from token logits: pure arithmetic, no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ccrank.models.tokenize.ragged import Ragged

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTree:
    """The candidates of one prompt as a tree of tokens after the slot.

    A causal model gives the logit l(t | …) of a next token and the log-normaliser Z(…). The score of a candidate
    t₁…t_k is l(t₁) + Σ_{j≥2} (l(t_j | t₁…t_{j−1}) − Z(t₁…t_{j−1})): its log-probability as a whole plus Z at the slot,
    which all candidates share, so candidates of one token keep their plain logits. A candidate that is a prefix of
    another one ("1" and "10") is scored without the other: the other's probability is subtracted.
    """

    answers: tuple[Prefix, ...]
    steps: Mapping[Prefix, tuple[int, ...]]  # prefix → tokens whose logits are needed; () is the slot
    paths: Ragged  # the tokens of each answer, as columns of the tokens of all steps
    longer: Mapping[int, list[int]]  # answer → the answers that continue it with no other answer in between

    @property
    def sizes(self) -> np.ndarray:
        """(steps,) how many tokens each step has."""
        return np.fromiter(map(len, self.steps.values()), np.int64, len(self.steps))

    def scores(self, logits: np.ndarray, normalisers: np.ndarray, log_probabilities: bool) -> np.ndarray:
        """(…, candidates) float32; the leading axes are prompts with the same candidates."""
        shift = normalisers.astype(float)
        if not log_probabilities:
            shift[..., 0] = 0.0
        values = logits.astype(float) - np.repeat(shift, self.sizes, axis=-1)
        whole = np.add.reduceat(values[..., self.paths.flat], self.paths.starts[:-1], axis=-1)
        alone = whole.copy()
        for index, inner in self.longer.items():
            share = np.exp(whole[..., inner] - whole[..., [index]]).sum(axis=-1)
            alone[..., index] += np.log1p(-np.minimum(share, 1 - 1e-6))
        return alone.astype(np.float32)


@lru_cache(maxsize=16)
def answer_tree(answers: tuple[Prefix, ...]) -> AnswerTree:
    """The tree of a list of candidates."""
    steps: dict[Prefix, dict[int, int]] = {}
    for answer in answers:
        for length, token_id in enumerate(answer):
            columns = steps.setdefault(answer[:length], {})
            columns.setdefault(token_id, len(columns))
    first = dict(zip(steps, np.cumsum([0, *map(len, steps.values())]).tolist(), strict=False))
    paths = [
        [first[(prefix := answer[:length])] + steps[prefix][token] for length, token in enumerate(answer)]
        for answer in answers
    ]
    return AnswerTree(
        answers,
        {prefix: tuple(columns) for prefix, columns in steps.items()},
        Ragged.of(paths),
        _next_longer(answers),
    )


def _next_longer(answers: tuple[Prefix, ...]) -> dict[int, list[int]]:
    """Answer → the answers that continue it with no other answer in between."""
    index_of = {answer: index for index, answer in enumerate(answers)}
    longer: dict[int, list[int]] = {}
    for answer, index in index_of.items():
        for length in range(len(answer) - 1, 0, -1):
            if (shorter := index_of.get(answer[:length])) is not None:
                longer.setdefault(shorter, []).append(index)
                break
    return longer
