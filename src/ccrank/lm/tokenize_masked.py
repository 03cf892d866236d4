"""Prompts of masked models as tokens: the answer is in place of a mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm.token_rows import (
    EncodedPrompt,
    check_answers,
    last_token_of_item,
    tail_after,
    text_of,
    token_rows,
    without_last_blanks,
)
from ccrank.lm.tokenized import TokenizedPrompt
from ccrank.prompts import Piece, Prompt


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
