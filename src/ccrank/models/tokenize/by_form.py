"""Prompts as tokens, for each form of model: where the answer is differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ccrank.errors import CcrankError
from ccrank.models.tokenize.splice import common_prefix
from ccrank.models.tokenize.tokenized import (
    EncodedPrompt,
    TokenizedPrompt,
    TokenRow,
    check_answers,
    last_token_of_item,
    tail_after,
    text_of,
    token_rows,
    without_last_blanks,
)
from ccrank.prompts import Piece, Prompt


def tokenize_causal(
    tokenizer: Any,
    bos: tuple[int, ...],
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    items: bool,
) -> Iterator[EncodedPrompt]:
    """The text up to the slot; candidates are what they add to its tokens."""
    texts, leads = [], []
    for prompt in prompts:
        text = text_of(prompt.before)
        open_text = text.rstrip(" ")
        # The blank before the slot belongs to the answer's first token: " Yes".
        leads.append(text[len(open_text) :])
        texts.append(open_text)
    spoken = [
        answers if prompt.answer is None else (prompt.answer,)
        for prompt, answers in zip(prompts, candidates, strict=True)
    ]
    answered = [
        text + lead + answer
        for text, lead, answers in zip(texts, leads, spoken, strict=True)
        for answer in answers
    ]
    filled = any(prompt.answer is not None for prompt in prompts)
    rows = token_rows(tokenizer, texts, special=False, offsets=items)
    wholes = iter(token_rows(tokenizer, answered, special=False, offsets=items and filled))
    for prompt, row, answers, text, lead in zip(prompts, rows, candidates, texts, leads, strict=True):
        whole_text = text
        if prompt.answer is not None:
            whole, whole_text = next(wholes), text + lead + prompt.answer
            tokenized = TokenizedPrompt((*bos, *whole.ids), len(bos) + len(whole.ids) - 1, None, ())
            row_for_item = whole
        else:
            full = [next(wholes).ids for _ in answers]
            stem = common_prefix([row.ids, *full])
            tails = tuple(tuple(ids[stem:]) for ids in full)
            check_answers(tokenizer, prompt, answers, tails)
            tokens = (*bos, *row.ids[:stem])
            if not tokens:
                raise CcrankError(f"task {prompt.task!r}: the prompt {text!r} has no token to read from")
            tokenized = TokenizedPrompt(tokens, len(tokens) - 1, None, tails)
            row_for_item = row
            # A candidate may merge with the item's last token, which then is not part of the input.
        item = last_token_of_item(prompt.before, row_for_item, len(tokenized.tokens) - len(bos))
        tokenized = replace(tokenized, item=None if item is None else len(bos) + item)
        yield EncodedPrompt(tokenized, prompt.before, whole_text)


def tokenize_masked(
    tokenizer: Any, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]]
) -> Iterator[EncodedPrompt]:
    """The whole text with a mask in the slot; candidates are the tokens that they have there."""
    mask = tokenizer.mask_token
    if mask is None:
        raise CcrankError("this tokenizer has no mask token, so it cannot be used with masked prompts")
    # A filled prompt has no slot left for candidates.
    candidates = [
        answers if prompt.answer is None else () for prompt, answers in zip(prompts, candidates, strict=True)
    ]
    laid_out: list[tuple[Piece, ...]] = []
    spans, answered = [], []
    takes_blank = _mask_takes_blank(tokenizer)
    for prompt, answers in zip(prompts, candidates, strict=True):
        before = prompt.before
        if prompt.answer is None and not takes_blank:
            before = without_last_blanks(before, " ")
        filler = mask if prompt.answer is None else prompt.answer
        laid_out.append((*before, Piece(filler), *prompt.after))
        start = len(text_of(before))
        spans.append((start, start + len(filler)))
        answered += [(text_of(prompt.before), answer, text_of(prompt.after)) for answer in answers]
    texts = [text_of(pieces) for pieces in laid_out]
    rows = token_rows(tokenizer, texts, special=True, offsets=True)
    wholes = iter(token_rows(tokenizer, ["".join(parts) for parts in answered], special=True, offsets=True))
    ends = iter(len(before) + len(answer) for before, answer, _ in answered)
    for prompt, row, span, pieces, text, answers in zip(
        prompts, rows, spans, laid_out, texts, candidates, strict=True
    ):
        inside = [
            index
            for index, (start, end) in enumerate(row.offsets)
            if start < span[1] and end > span[0] and end > start
        ]
        if prompt.answer is None:
            inside = [index for index in inside if row.ids[index] == tokenizer.mask_token_id]
        if not inside:
            raise CcrankError(f"task {prompt.task!r}: the tokenizer dropped the answer slot of {text!r}")
        slot, after = inside[-1], text_of(prompt.after)
        tails = []
        for answer in answers:
            whole = next(wholes)
            tail = tail_after(row.ids[:slot], whole, next(ends))
            # A tokenizer may start a new word after a mask ("▁." for "."): harmless unless it splits a word.
            glued = after[:1].isalnum() and whole.ids[slot + len(tail or ()) :] != row.ids[slot + 1 :]
            if tail is None or glued:
                raise CcrankError(
                    f"task {prompt.task!r}: the answer {answer!r} merges with the text around the slot in "
                    f"{text!r}; put a blank before and after {{slot}} in the template"
                )
            tails.append(tail)
        check_answers(tokenizer, prompt, answers, tuple(tails))
        item = last_token_of_item(pieces, row)
        yield EncodedPrompt(TokenizedPrompt(tuple(row.ids), slot, item, tuple(tails)), pieces, text)


def _mask_takes_blank(tokenizer: Any) -> bool:
    """Whether the tokenizer absorbs a blank before the mask, as it does before a word.

    Otherwise the blank would be a separate token that precedes no answer.
    """
    mask = tokenizer.mask_token
    with_blank, without = token_rows(tokenizer, [f"a {mask}", f"a{mask}"], special=False, offsets=False)
    return with_blank.ids == without.ids


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
            tuple(row_of_answer.ids[row_of_answer.ids.index(sentinel_id) + 1 :])
            for row_of_answer in token_rows(
                tokenizer, [f"{sentinel} {answer}" for answer in spoken], special=False, offsets=False
            )
        )
        decoder = (*decoder_start, sentinel_id)
        check_answers(tokenizer, prompt, spoken, tails)
        if prompt.answer is not None:
            decoder, tails = (*decoder, *tails[0]), ()
        pieces = tuple(Piece(sentinel) if piece.role == "slot" else piece for piece in prompt.pieces)
        item = last_token_of_item(pieces, row)
        tokenized = TokenizedPrompt(tuple(row.ids), len(decoder) - 1, item, tails, decoder)
        yield EncodedPrompt(tokenized, pieces, text)


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
        tokenized = TokenizedPrompt(tuple(row.ids), len(decoder) - 1, item, tails, decoder)
        yield EncodedPrompt(tokenized, prompt.before, text)


def _last_token_of_item(tokenizer: Any, pieces: Sequence[Piece], row: TokenRow) -> int | None:
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
