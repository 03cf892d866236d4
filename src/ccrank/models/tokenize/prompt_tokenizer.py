"""Tokenizing prompts: the position of the answer slot, and the tokens of each candidate answer after its prompt.

Nothing here assumes that "Yes" is one token, that it starts with a space, or that a prompt's tokens stay the same
when an answer follows: each candidate is tokenized after the whole prompt and compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ccrank.errors import CcrankError, needs_extra
from ccrank.models.tokenize.by_form import (
    TOKENIZE,
    Layout,
    cut_middle,
    text_of,
    token_rows,
    without_last_blanks,
)
from ccrank.models.tokenize.chat_template import render_chat
from ccrank.models.tokenize.splice import WordTokens, splice
from ccrank.models.tokenize.tokenized import TokenizedPrompt, TokenizedPrompts
from ccrank.prompts import Form, Piece, Prompt, broken_up, plain_answers, plain_prompts

MIN_SPLICED = 16  # fewer prompts, or fewer candidates of a prompt, are tokenized whole


@dataclass(frozen=True)
class PromptTokenizer:
    """Turns prompts into tokens for one tokenizer and one form of model."""

    tokenizer: Any
    form: Form
    bos: tuple[int, ...] = ()
    """Tokens that start every input of a causal model; for the other forms the tokenizer adds them."""
    decoder_start: tuple[int, ...] = ()
    window: int | None = None
    """The maximal input length in tokens."""
    chat: bool = False
    """Wrap the prompt in the model's chat template, as a user message."""
    truncate: bool = False
    """Cut tokens from the middle of the context (then of the items) of prompts that are too long, instead of
    failing."""
    translates: bool = False
    """The decoder of an encoder-decoder model translates the text before the slot, instead of filling the slot."""

    def encode(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool = False
    ) -> TokenizedPrompts:
        """The tokens of all prompts; `items` asks for the positions of their last items."""
        # Most prompts have the very same list of candidates.
        lists = {id(answers): index for index, answers in enumerate(candidates)}
        for index in lists.values():
            refuse_blanks(prompts[index], candidates[index])
        longest = max((len(candidates[index]) for index in lists.values()), default=0)
        plain = plain_answers(candidates, self._break_up)
        prompts = plain_prompts(prompts, self._break_up)
        for index, prompt in enumerate(prompts):
            if prompt.answer is not None:  # no slot is left for candidates
                refuse_blanks(prompt, (prompt.answer,))
                plain[index] = ()
        if self.chat:
            prompts = list(map(self._framed, prompts))
        if self.form == "causal" and max(len(prompts), longest) >= MIN_SPLICED and self._words.separable:
            spliced = splice(prompts, plain, self._words, self.bos, items)
            if spliced is not None and self._fits(spliced):
                return spliced
        encoded = TOKENIZE[self.form](self, prompts, plain, items)
        return TokenizedPrompts.of([self._fit(*each) for each in zip(prompts, encoded, strict=True)])

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without special tokens."""
        rows = token_rows(self.tokenizer, map(self._break_up, texts), special=False, offsets=False)
        return [len(row.ids) for row in rows]

    @cached_property
    def _words(self) -> WordTokens:
        return WordTokens(self.tokenizer)

    def _fits(self, encoded: TokenizedPrompts) -> bool:
        """Whether all prompts fit the window."""
        lengths = encoded.tokens.lengths + encoded.tail_lengths - 1
        return self.window is None or int(lengths.max(initial=0)) <= self.window

    def _framed(self, prompt: Prompt) -> Prompt:
        """The prompt in the chat template."""
        head, tail = self._chat_frame
        # The template's blank before the slot must not end the user message.
        words = without_last_blanks(prompt.before)
        return replace(prompt, pieces=(Piece(head), *words, Piece(tail), Piece("", "slot")))

    def _break_up(self, text: str) -> str:
        """User text without names of special tokens."""
        # Looking for the few characters that special tokens start with is much faster than for all tokens.
        if any(start in text for start in self._special_starts):
            for token in self._special_tokens:
                text = text.replace(token, broken_up(token))
        return text

    @cached_property
    def _special_tokens(self) -> tuple[str, ...]:
        """Every string that the tokenizer maps to one special token, longest first; single characters are excluded."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {}).values()
        names = {*self.tokenizer.all_special_tokens, *(str(token) for token in added if token.special)}
        return tuple(sorted((name for name in names if len(name) > 1), key=len, reverse=True))

    @cached_property
    def _special_starts(self) -> tuple[str, ...]:
        """The first characters of all special tokens."""
        return tuple({name[0] for name in self._special_tokens})

    @cached_property
    def _chat_frame(self) -> tuple[str, str]:
        """The text that the chat template adds before and after a user message, without the BOS, which `bos` adds."""
        if self.form != "causal":
            raise CcrankError(f"a chat template needs a causal model; this one is {self.form}")
        if not getattr(self.tokenizer, "chat_template", None):
            raise CcrankError("this model has no chat template; remove --chat")
        with needs_extra("chat", "--chat"):
            import jinja2  # noqa: F401 - `transformers` renders chat templates with it
        marker = "\ue000ccrank\ue001"  # private-use characters, which no template contains
        # Models with a thinking mode (Qwen3) would otherwise continue with their thoughts, not with the answer.
        framed = render_chat(self.tokenizer, [{"role": "user", "content": marker}], enable_thinking=False)
        head, kept, tail = framed.partition(marker)
        if not kept:
            raise CcrankError("this model's chat template drops the user message; remove --chat")
        return head.removeprefix(self.tokenizer.bos_token) if self.bos else head, tail

    def _fit(self, prompt: Prompt, laid_out: tuple[Layout, TokenizedPrompt]) -> TokenizedPrompt:
        """Raise an error for prompts longer than the model's window, or cut them from the middle."""
        layout, encoded = laid_out
        # All but the last token of an answer are input too: after the slot, or as further masks.
        more = max(map(len, encoded.answers), default=1) - 1 if self.form != "encoder_decoder" else 0
        length = len(encoded.tokens) + more
        if self.window is None or length <= self.window:
            return encoded
        too_long = (
            f"task {prompt.task!r}: a prompt of {length:,} tokens does not fit the model's window of "
            f"{self.window:,}"
        )
        if not self.truncate:
            raise CcrankError(
                f"{too_long}; shorten the context or the items, or have them cut with --truncate"
            )
        causal = self.form == "causal"
        [row] = token_rows(self.tokenizer, [text_of(layout)], special=not causal, offsets=True)
        dropped = cut_middle(layout, row, length - self.window)
        if dropped is None:
            raise CcrankError(f"{too_long}, and there is too little context to cut")
        shift = len(self.bos) if causal else 0
        kept = [index for index in range(len(encoded.tokens)) if index - shift not in dropped]
        new_index = {index: position for position, index in enumerate(kept)}
        return replace(
            encoded,
            tokens=tuple(encoded.tokens[index] for index in kept),
            slot=encoded.slot if encoded.decoder else new_index[encoded.slot],
            item=None if encoded.item is None else new_index.get(encoded.item),
        )


def refuse_blanks(prompt: Prompt, answers: Sequence[str]) -> None:
    """Raise an error for a blank answer."""
    for answer in answers:
        if not answer.strip():
            raise CcrankError(f"task {prompt.task!r}: the answer {answer!r} is blank")
