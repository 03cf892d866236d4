"""Prompts of encoder-decoder models as tokens: the encoder gets the text, the decoder the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm.splice import common_prefix
from ccrank.lm.token_rows import EncodedPrompt, Row, check_answers, last_token_of_item, text_of, token_rows
from ccrank.lm.tokenized import TokenizedPrompt
from ccrank.prompts import Piece, Prompt


def tokenize_filling(
    tokenizer: Any,
    decoder_start: tuple[int, ...],
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    items: bool,
) -> Iterator[EncodedPrompt]:
    """T5's pretraining task: the encoder input has a sentinel in the slot, the decoder generates its content."""
    sentinel = "<extra_id_0>"
    sentinel_id = tokenizer.convert_tokens_to_ids(sentinel)
    if sentinel_id is None or sentinel_id == tokenizer.unk_token_id:
        raise CcrankError(f"this tokenizer has no {sentinel}, so the slot cannot be marked")
    texts = [
        "".join(sentinel if piece.role == "slot" else piece.text for piece in prompt.pieces)
        for prompt in prompts
    ]
    rows = token_rows(tokenizer, texts, special=True, offsets=items)
    for prompt, row, text, answers in zip(prompts, rows, texts, candidates, strict=True):
        spoken = [prompt.answer] if prompt.answer is not None else list(answers)
        tails = tuple(
            tuple(one.ids[one.ids.index(sentinel_id) + 1 :])
            for one in token_rows(
                tokenizer, [f"{sentinel} {answer}" for answer in spoken], special=False, offsets=False
            )
        )
        decoder = (*decoder_start, sentinel_id)
        check_answers(tokenizer, prompt, spoken, tails)
        if prompt.answer is not None:
            decoder, tails = (*decoder, *tails[0]), ()
        pieces = tuple(Piece(sentinel) if piece.role == "slot" else piece for piece in prompt.pieces)
        item = last_token_of_item(pieces, row)
        one = TokenizedPrompt(tuple(row.ids), len(decoder) - 1, item, tails, decoder)
        yield EncodedPrompt(one, pieces, text)


def tokenize_translation(
    tokenizer: Any,
    decoder_start: tuple[int, ...],
    window: int | None,
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    items: bool,
) -> Iterator[EncodedPrompt]:
    """The encoder gets the text before the slot, the decoder a whole translation: answers end with </s>."""
    texts = [text_of(prompt.before).rstrip() for prompt in prompts]
    for prompt, answers in zip(prompts, candidates, strict=True):
        if answers and any(piece.role == "criterion" for piece in prompt.pieces):
            raise CcrankError(
                f"task {prompt.task!r}: this model translates and does not answer prompts: it would score "
                f"{answers[0]!r} as a translation of {prompt.text!r}. Use a probing method, or another model"
            )
        if text_of(prompt.after).strip():
            raise CcrankError(
                f"task {prompt.task!r}: this model translates the text before {{slot}}, so {{slot}} must come last "
                f"in the template: {prompt.text!r}"
            )
    rows = token_rows(tokenizer, texts, special=True, offsets=items)
    for prompt, row, text, answers in zip(prompts, rows, texts, candidates, strict=True):
        spoken = [prompt.answer] if prompt.answer is not None else list(answers)
        tails = tuple(map(tuple, tokenizer(text_target=spoken, verbose=False)["input_ids"])) if spoken else ()
        check_answers(tokenizer, prompt, spoken, tails)
        longest = max(map(len, tails), default=0)
        if window is not None and longest > window:
            raise CcrankError(
                f"task {prompt.task!r}: an answer of {longest:,} tokens does not fit the model's window of "
                f"{window:,}; shorten it"
            )
        decoder = decoder_start
        if prompt.answer is not None:
            decoder, tails = (*decoder, *tails[0][:-1]), ()  # the states are those at its last token
        item = _last_token_of_item(tokenizer, prompt.before, row) if items else None
        one = TokenizedPrompt(tuple(row.ids), len(decoder) - 1, item, tails, decoder)
        yield EncodedPrompt(one, prompt.before, text)


def _last_token_of_item(tokenizer: Any, pieces: Sequence[Piece], row: Row) -> int | None:
    """As `last_token_of_item`, which needs offsets. Marian's tokenizer has none: the text up to the item's end is
    tokenized alone, and where its last tokens differ, the first that does overlaps that end."""
    if tokenizer.is_fast:
        return last_token_of_item(pieces, row)
    last = max((index for index, piece in enumerate(pieces) if piece.role == "item"), default=None)
    if last is None:
        return None
    [alone] = token_rows(tokenizer, [text_of(pieces[: last + 1])], special=False, offsets=False)
    shared = common_prefix([row.ids, alone.ids])
    return shared - 1 if shared == len(alone.ids) else shared
