"""Texts and prompts as tokens, and places in them: which tokens belong to a slot, an answer, an item, or a context."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.models.tokenize.ragged import Ragged
from ccrank.prompts import Piece, Prompt

Tails = tuple[tuple[int, ...], ...]
"""The tokens of each candidate of a prompt in its slot."""


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """The token ids of a prompt."""

    tokens: tuple[int, ...]
    """All input tokens, including special ones; for an encoder-decoder model the input of the encoder."""
    slot: int
    """The position that is read for the answer: in `tokens`, or in `decoder` for encoder-decoder models."""
    item: int | None
    """The position of the last token of the last item."""
    answers: Tails
    """The tokens of each candidate in the slot."""
    decoder: tuple[int, ...] = ()
    """Decoder input before the answer; empty except for encoder-decoder models."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedPrompts:
    """The token ids of P prompts."""

    tokens: Ragged
    """All input tokens of each prompt."""
    slots: np.ndarray
    """(P,) the position that is read for the answer."""
    items: np.ndarray
    """(P,) the position of the last token of the last item; -1 where there is none."""
    tails_of: np.ndarray
    """(P,) which of `tail_sets` are the candidates' tokens."""
    tail_sets: tuple[Tails, ...]
    """The distinct lists of candidates, as tokens."""
    decoders: Ragged | None = None
    """Decoder input before the answer, for encoder-decoder models."""

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
        for index in range(len(self)):
            item = int(self.items[index])
            yield TokenizedPrompt(
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


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A tokenized text: ids, and the characters (start, end) that each token covers."""

    ids: list[int]
    offsets: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as tokens, and the text that they were made of: it tells which tokens may be cut."""

    tokenized: TokenizedPrompt
    pieces: Sequence[Piece]
    text: str


def token_rows(tokenizer: Any, texts: Sequence[str], special: bool, offsets: bool) -> list[TokenRow]:
    """Tokenize texts, with special tokens and with offsets on request."""
    if not texts:
        return []
    batch = tokenizer(
        list(texts),
        add_special_tokens=special,
        return_offsets_mapping=offsets and tokenizer.is_fast,
        return_attention_mask=False,
        return_token_type_ids=False,
        truncation=False,
        verbose=False,
    )
    mapping = batch.get("offset_mapping") or [()] * len(texts)
    return [TokenRow(list(ids), where) for ids, where in zip(batch["input_ids"], mapping, strict=True)]


def check_answers(
    tokenizer: Any, prompt: Prompt, answers: Sequence[str], tails: Sequence[tuple[int, ...]]
) -> None:
    """Raise an error for candidates without tokens, with the unknown token, or with the same tokens."""
    seen: dict[tuple[int, ...], str] = {}
    for answer, tail in zip(answers, tails, strict=True):
        if not tail:
            raise CcrankError(f"task {prompt.task!r}: the candidate {answer!r} has no tokens")
        if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in tail:
            raise CcrankError(
                f"task {prompt.task!r}: the tokenizer maps the candidate {answer!r} to the unknown token"
            )
        if tail in seen:
            raise CcrankError(
                f"task {prompt.task!r}: the candidates {seen[tail]!r} and {answer!r} have the same tokens"
            )
        seen[tail] = answer


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def without_last_blanks(pieces: Sequence[Piece], blanks: str | None = None) -> tuple[Piece, ...]:
    """The pieces without trailing blanks (by default any white space), which may span several pieces."""
    kept = list(pieces)
    while kept:
        kept[-1] = replace(kept[-1], text=kept[-1].text.rstrip(blanks))
        if kept[-1].text:
            break
        kept.pop()
    return tuple(kept)


def tail_after(left: Sequence[int], whole: TokenRow, end: int) -> tuple[int, ...] | None:
    """The tokens after `left` up to the character `end`; None where a token crosses either boundary."""
    if list(whole.ids[: len(left)]) != list(left):
        return None
    tail = []
    for token, (token_start, token_end) in list(zip(whole.ids, whole.offsets, strict=True))[len(left) :]:
        if token_start >= end or token_end <= token_start:
            break
        if token_end > end:
            return None
        tail.append(token)
    return tuple(tail)


def tokens_of(pieces: Sequence[Piece], row: TokenRow) -> list[tuple[Piece, list[int]]]:
    """Each piece of user text with the tokens that overlap it."""
    found, end = [], 0
    for piece in pieces:
        start, end = end, end + len(piece.text)
        if piece.role in ("context", "item"):
            inside = [
                index
                for index, (token_start, token_end) in enumerate(row.offsets)
                if token_start < end and token_end > start and token_end > token_start
            ]
            found.append((piece, inside))
    return found


def last_token_of_item(pieces: Sequence[Piece], row: TokenRow, before: int | None = None) -> int | None:
    """The last token (before position `before`) that overlaps the last item; None without an item or without
    offsets."""
    items = [inside for piece, inside in tokens_of(pieces, row) if piece.role == "item" and inside]
    if not items:
        return None
    return max((index for index in items[-1] if before is None or index < before), default=None)


def cut_middle(pieces: Sequence[Piece], row: TokenRow, surplus: int) -> set[int] | None:
    """The token positions to drop: the middle of the context, then the middle of the longest items."""
    spans = tokens_of(pieces, row)
    users = [inside for piece, inside in spans if piece.role == "context"]
    users += sorted((inside for piece, inside in spans if piece.role == "item"), key=len, reverse=True)
    dropped: set[int] = set()
    for inside in users:
        # Keep the first and last tokens: they may overlap the adjacent words, and an item must keep its end.
        spare = inside[1:-1]
        count = min(surplus - len(dropped), max(0, len(spare) - 8))
        start = (len(spare) - count) // 2
        dropped.update(spare[start : start + count])
        if len(dropped) >= surplus:
            return dropped
    return None
