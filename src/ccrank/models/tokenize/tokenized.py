"""Prompts as tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ccrank.models.tokenize.ragged import Ragged

Tails = tuple[tuple[int, ...], ...]  # the tokens of each candidate of a prompt in its slot


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """The token ids of a prompt."""

    tokens: tuple[int, ...]  # all input tokens, special ones included; those of the encoder if there is one
    slot: int  # the position that is read for the answer: in `decoder` if there is one, else in `tokens`
    item: int | None  # the position of the last token of the last item
    answers: Tails  # the tokens of each candidate in the slot
    decoder: tuple[int, ...] = ()  # decoder input before the answer; empty except for encoder-decoder models


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedPrompts:
    """The token ids of P prompts."""

    tokens: Ragged  # all input tokens of each prompt
    slots: np.ndarray  # (P,) the position that is read for the answer
    items: np.ndarray  # (P,) the position of the last token of the last item; -1 where there is none
    tails_of: np.ndarray  # (P,) which of `tail_sets` are the candidates' tokens
    tail_sets: tuple[Tails, ...]  # the distinct lists of candidates, as tokens
    decoders: Ragged | None = None  # decoder input before the answer, for encoder-decoder models

    @classmethod
    def of(cls, prompts: Sequence[TokenizedPrompt]) -> TokenizedPrompts:
        """From single prompts."""
        sets: dict[Tails, int] = {}
        tails_of = np.array([sets.setdefault(prompt.answers, len(sets)) for prompt in prompts], np.int64)
        return cls(
            Ragged.of([prompt.tokens for prompt in prompts]),
            np.array([prompt.slot for prompt in prompts], np.int64),
            np.array([-1 if prompt.item is None else prompt.item for prompt in prompts], np.int64),
            tails_of,
            tuple(sets),
            Ragged.of([prompt.decoder for prompt in prompts])
            if any(prompt.decoder for prompt in prompts)
            else None,
        )

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[TokenizedPrompt]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> TokenizedPrompt:
        item = int(self.items[index])
        return TokenizedPrompt(
            tuple(self.tokens[index].tolist()),
            int(self.slots[index]),
            None if item < 0 else item,
            self.tail_sets[self.tails_of[index]],
            () if self.decoders is None else tuple(self.decoders[index].tolist()),
        )

    @property
    def prompts_by_tails(self) -> list[np.ndarray]:
        """For each of `tail_sets` the prompts that have it."""
        order = np.argsort(self.tails_of, kind="stable")
        edges = np.searchsorted(self.tails_of[order], np.arange(len(self.tail_sets) + 1))
        return [order[start:end] for start, end in itertools.pairwise(edges)]

    @property
    def tail_lengths(self) -> np.ndarray:
        """(P,) the length of each prompt's longest candidate; 1 where it has none."""
        longest: np.ndarray = np.array([max(map(len, tails), default=1) for tails in self.tail_sets] + [1])
        lengths: np.ndarray = longest[self.tails_of]
        return lengths
