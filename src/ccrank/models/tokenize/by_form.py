"""Prompts as tokens, for each form of model: where the answer is, and which tokens are candidates, items and contexts.

A prompt is laid out as pieces of text and tokenized as a whole, alone and with each candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ccrank.errors import CcrankError
from ccrank.models.tokenize.ragged import common_prefix
from ccrank.models.tokenize.tokenized import Tails, TokenizedPrompt
from ccrank.prompts import Piece, Prompt

if TYPE_CHECKING:
    from ccrank.models.tokenize.prompt_tokenizer import PromptTokenizer

SENTINEL = "<extra_id_0>"  # T5's mark of a gap in the encoder's input; the decoder generates what fills it
Layout = tuple[Piece, ...]  # what is tokenized of a prompt; for an encoder-decoder model the encoder's input


def tokenize_causal(
    settings: PromptTokenizer, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool
) -> Iterator[tuple[Layout, TokenizedPrompt]]:
    """The text up to the slot; candidates are what they add to its tokens."""
    tokenizer, bos = settings.tokenizer, settings.bos
    # The blank before the slot belongs to the answer's first token: " Yes".
    layouts = [
        without_last_blanks(prompt.before, " ")
        if prompt.answer is None
        else (*prompt.before, Piece(prompt.answer))
        for prompt in prompts
    ]
    rows = token_rows(tokenizer, map(text_of, layouts), special=False, offsets=items)
    answered = (
        text_of(prompt.before) + answer
        for prompt, answers in zip(prompts, candidates, strict=True)
        for answer in answers
    )
    wholes = iter(token_rows(tokenizer, answered, special=False, offsets=False))
    for prompt, layout, row, answers in zip(prompts, layouts, rows, candidates, strict=True):
        full = [next(wholes).ids for _ in answers]
        shared = common_prefix([row.ids, *full])
        tails = tuple(tuple(ids[shared:]) for ids in full)
        check_answers(prompt.task, answers, tails, tokenizer.unk_token_id)
        tokens = (*bos, *row.ids[:shared])
        if not tokens:
            raise CcrankError(
                f"task {prompt.task!r}: the prompt {text_of(layout)!r} has no token to read from"
            )
        # A candidate may merge with the item's last token, which then is not part of the input.
        item = last_token_of_item(layout, row, shared)
        item = None if item is None else len(bos) + item
        yield layout, TokenizedPrompt(tokens, len(tokens) - 1, item, tails)


def tokenize_masked(
    settings: PromptTokenizer, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool
) -> Iterator[tuple[Layout, TokenizedPrompt]]:
    """The whole text with a mask in the slot; candidates are the tokens that they have there."""
    tokenizer, mask = settings.tokenizer, settings.tokenizer.mask_token
    if mask is None:
        raise CcrankError("this tokenizer has no mask token, so it cannot be used with masked prompts")
    takes_blank = _mask_takes_blank(tokenizer)
    layouts: list[Layout] = []
    for prompt in prompts:
        strip = prompt.answer is None and not takes_blank
        before = without_last_blanks(prompt.before, " ") if strip else prompt.before
        layouts.append((*before, Piece(prompt.answer or mask), *prompt.after))
    rows = token_rows(tokenizer, map(text_of, layouts), special=True, offsets=True)
    answered = (
        prompt.filled(answer).text
        for prompt, answers in zip(prompts, candidates, strict=True)
        for answer in answers
    )
    wholes = iter(token_rows(tokenizer, answered, special=True, offsets=True))
    for prompt, layout, row, answers in zip(prompts, layouts, rows, candidates, strict=True):
        text, after = text_of(layout), text_of(prompt.after)
        end = len(text) - len(after)
        inside = overlapping(row.offsets, end - len(prompt.answer or mask), end)
        if prompt.answer is None:
            inside = [index for index in inside if row.ids[index] == tokenizer.mask_token_id]
        if not inside:
            raise CcrankError(f"task {prompt.task!r}: the tokenizer dropped the answer slot of {text!r}")
        slot = inside[-1]
        tails = []
        for answer in answers:
            whole = next(wholes)
            tail = tail_after(row.ids[:slot], whole, len(text_of(prompt.before)) + len(answer))
            # A tokenizer may start a new word after a mask ("▁." for "."): harmless unless it splits a word.
            glued = after[:1].isalnum() and whole.ids[slot + len(tail or ()) :] != row.ids[slot + 1 :]
            if tail is None or glued:
                raise CcrankError(
                    f"task {prompt.task!r}: the answer {answer!r} merges with the text around the slot in "
                    f"{text!r}; put a blank before and after {{slot}} in the template"
                )
            tails.append(tail)
        check_answers(prompt.task, answers, tails, tokenizer.unk_token_id)
        yield layout, TokenizedPrompt(tuple(row.ids), slot, last_token_of_item(layout, row), tuple(tails))


def _mask_takes_blank(tokenizer: Any) -> bool:
    """Whether the tokenizer absorbs a blank before the mask, as it does before a word.

    Otherwise the blank would be a separate token that precedes no answer.
    """
    mask = tokenizer.mask_token
    with_blank, without = token_rows(tokenizer, [f"a {mask}", f"a{mask}"], special=False, offsets=False)
    return with_blank.ids == without.ids


def tokenize_two_sides(
    settings: PromptTokenizer, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool
) -> Iterator[tuple[Layout, TokenizedPrompt]]:
    """An encoder-decoder model: the encoder gets the text, the decoder the answer."""
    tokenizer, start = settings.tokenizer, settings.decoder_start
    if settings.translates:
        layouts = [_source(prompt, answers) for prompt, answers in zip(prompts, candidates, strict=True)]
    else:  # T5's pretraining task
        layouts = [(*prompt.before, Piece(SENTINEL), *prompt.after) for prompt in prompts]
        start = (*start, _sentinel_id(tokenizer))
    rows = token_rows(tokenizer, map(text_of, layouts), special=True, offsets=items)
    for prompt, layout, row, answers in zip(prompts, layouts, rows, candidates, strict=True):
        spoken = answers if prompt.answer is None else (prompt.answer,)
        tails = (
            _translations(settings, prompt, spoken) if settings.translates else _fillings(tokenizer, spoken)
        )
        check_answers(prompt.task, spoken, tails, tokenizer.unk_token_id)
        decoder = start
        if prompt.answer is not None:
            # The states are those at the answer's last token, not at </s>.
            decoder, tails = (*start, *(tails[0][:-1] if settings.translates else tails[0])), ()
        item = _last_token_of_item(tokenizer, layout, row) if items else None
        yield layout, TokenizedPrompt(tuple(row.ids), len(decoder) - 1, item, tails, decoder)


def _sentinel_id(tokenizer: Any) -> int:
    number: int | None = tokenizer.convert_tokens_to_ids(SENTINEL)
    if number is None or number == tokenizer.unk_token_id:
        raise CcrankError(f"this tokenizer has no {SENTINEL}, so the slot cannot be marked")
    return number


def _fillings(tokenizer: Any, answers: Sequence[str]) -> Tails:
    """What the decoder generates after the sentinel."""
    rows = token_rows(tokenizer, [f"{SENTINEL} {answer}" for answer in answers], special=False, offsets=False)
    sentinel = _sentinel_id(tokenizer)
    return tuple(tuple(row.ids[row.ids.index(sentinel) + 1 :]) for row in rows)


def _source(prompt: Prompt, answers: Sequence[str]) -> Layout:
    """The text before the slot, which is translated."""
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
    return without_last_blanks(prompt.before)


def _translations(settings: PromptTokenizer, prompt: Prompt, answers: Sequence[str]) -> Tails:
    """Whole translations, which end with </s>."""
    rows = settings.tokenizer(text_target=list(answers), verbose=False)["input_ids"] if answers else []
    longest = max(map(len, rows), default=0)
    if settings.window is not None and longest > settings.window:
        raise CcrankError(
            f"task {prompt.task!r}: an answer of {longest:,} tokens does not fit the model's window of "
            f"{settings.window:,}; shorten it"
        )
    return tuple(map(tuple, rows))


def _last_token_of_item(tokenizer: Any, layout: Layout, row: TokenRow) -> int | None:
    """As `last_token_of_item`, which needs offsets. Marian's tokenizer has none: the text up to the item's end is
    tokenized alone, and where its last tokens differ, the first that does overlaps that end."""
    if tokenizer.is_fast:
        return last_token_of_item(layout, row)
    last = max((index for index, piece in enumerate(layout) if piece.role == "item"), default=None)
    if last is None:
        return None
    [alone] = token_rows(tokenizer, [text_of(layout[: last + 1])], special=False, offsets=False)
    shared = common_prefix([row.ids, alone.ids])
    return shared - 1 if shared == len(alone.ids) else shared


class TokenRow(NamedTuple):
    """A tokenized text: ids, and the characters (start, end) that each token covers."""

    ids: list[int]
    offsets: Sequence[tuple[int, int]]


def token_rows(tokenizer: Any, texts: Iterable[str], special: bool, offsets: bool) -> list[TokenRow]:
    """Tokenize texts, with special tokens and with offsets on request; a slow tokenizer gives no offsets."""
    texts = list(texts)
    if not texts:
        return []
    if not tokenizer.is_fast:
        rows = tokenizer(texts, add_special_tokens=special, truncation=False, verbose=False)["input_ids"]
        return [TokenRow(ids, ()) for ids in rows]
    backend = tokenizer.backend_tokenizer
    # `transformers` may have left these set; changing them for no reason would disturb other threads.
    if backend.padding is not None:
        backend.no_padding()
    if backend.truncation is not None:
        backend.no_truncation()
    encode = backend.encode_batch if offsets else backend.encode_batch_fast  # several times as fast
    encoded = encode(texts, add_special_tokens=special)
    return [TokenRow(row.ids, row.offsets if offsets else ()) for row in encoded]


def check_answers(
    task: str, answers: Sequence[str], tails: Sequence[tuple[object, ...]], unknown: int | None = None
) -> None:
    """Raise an error for candidates without tokens, with the unknown token, or with the same tokens."""
    seen: dict[tuple[object, ...], str] = {}
    for answer, tail in zip(answers, tails, strict=True):
        if not tail:
            raise CcrankError(f"task {task!r}: the candidate {answer!r} has no tokens")
        if unknown is not None and unknown in tail:
            raise CcrankError(
                f"task {task!r}: the tokenizer maps the candidate {answer!r} to the unknown token"
            )
        if tail in seen:
            raise CcrankError(
                f"task {task!r}: the candidates {seen[tail]!r} and {answer!r} have the same tokens"
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


def overlapping(offsets: Sequence[tuple[int, int]], start: int, end: int) -> list[int]:
    """The tokens that overlap these characters, from the characters that each token covers."""
    return [
        index
        for index, (token_start, token_end) in enumerate(offsets)
        if token_start < end and token_end > start and token_end > token_start
    ]


def tokens_of(pieces: Sequence[Piece], row: TokenRow) -> list[tuple[Piece, list[int]]]:
    """Each piece of user text with the tokens that overlap it."""
    spans, end = [], 0
    for piece in pieces:
        start, end = end, end + len(piece.text)
        if piece.role in ("context", "item"):
            spans.append((piece, overlapping(row.offsets, start, end)))
    return spans


def last_token_of_item(pieces: Sequence[Piece], row: TokenRow, before: int | None = None) -> int | None:
    """The last token (before `before`) that overlaps the last item; None without an item or offsets."""
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


TOKENIZE = {"causal": tokenize_causal, "masked": tokenize_masked, "encoder_decoder": tokenize_two_sides}
"""Form of model → the layout and the tokens of each prompt."""
