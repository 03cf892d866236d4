"""Texts as tokens, and places in them: which belong to a slot, an answer, an item, or the middle of a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm.tokenized import TokenizedPrompt
from ccrank.prompts import Piece, Prompt


@dataclass(frozen=True, slots=True)
class Row:
    """A tokenized text: ids, and the characters (start, end) that each token covers."""

    ids: list[int]
    offsets: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as tokens, and the text that they were made of: it tells which tokens may be cut."""

    tokenized: TokenizedPrompt
    pieces: Sequence[Piece]
    text: str


def token_rows(tokenizer: Any, texts: Sequence[str], special: bool, offsets: bool) -> list[Row]:
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
    return [Row(list(ids), where) for ids, where in zip(batch["input_ids"], mapping, strict=True)]


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


def tail_after(left: Sequence[int], whole: Row, end: int) -> tuple[int, ...] | None:
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


def tokens_of(pieces: Sequence[Piece], row: Row) -> list[tuple[Piece, list[int]]]:
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


def last_token_of_item(pieces: Sequence[Piece], row: Row, before: int | None = None) -> int | None:
    """The last token (before position `before`) that overlaps the last item; None without an item or without
    offsets."""
    items = [inside for piece, inside in tokens_of(pieces, row) if piece.role == "item" and inside]
    if not items:
        return None
    return max((index for index in items[-1] if before is None or index < before), default=None)


def cut_middle(pieces: Sequence[Piece], row: Row, surplus: int) -> set[int] | None:
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
