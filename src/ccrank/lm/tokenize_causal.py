"""Prompts of causal models as tokens: the answer follows the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm.splice import common_prefix
from ccrank.lm.token_rows import EncodedPrompt, check_answers, last_token_of_item, text_of, token_rows
from ccrank.lm.tokenized import TokenizedPrompt
from ccrank.prompts import Prompt


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
            one = TokenizedPrompt((*bos, *whole.ids), len(bos) + len(whole.ids) - 1, None, ())
            row_for_item = whole
        else:
            full = [next(wholes).ids for _ in answers]
            stem = common_prefix([row.ids, *full])
            tails = tuple(tuple(ids[stem:]) for ids in full)
            check_answers(tokenizer, prompt, answers, tails)
            tokens = (*bos, *row.ids[:stem])
            if not tokens:
                raise CcrankError(f"task {prompt.task!r}: the prompt {text!r} has no token to read from")
            one = TokenizedPrompt(tokens, len(tokens) - 1, None, tails)
            row_for_item = row
            # A candidate may merge with the item's last token, which then is not part of the input.
        item = last_token_of_item(prompt.before, row_for_item, len(one.tokens) - len(bos))
        one = replace(one, item=None if item is None else len(bos) + item)
        yield EncodedPrompt(one, prompt.before, whole_text)
