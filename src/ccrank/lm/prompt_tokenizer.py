"""Tokenizing prompts: the position of the answer slot, and the tokens of each candidate answer after its prompt.

Nothing here assumes that "Yes" is one token, that it starts with a space, or that a prompt's tokens stay the same
when an answer follows: each candidate is tokenized after the whole prompt and compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm.splice import common_prefix, splice
from ccrank.lm.token_rows import (
    Row,
    cut_middle,
    last_token_of_item,
    tail_after,
    text_of,
    without_last_blanks,
)
from ccrank.lm.tokenized import TokenizedPrompt, TokenizedPrompts
from ccrank.lm.words import WordTokens
from ccrank.prompts import Form, Piece, Prompt

FEWEST_SPLICED = 16
"""Fewer prompts, or fewer candidates of a prompt, are tokenized whole."""


@dataclass(frozen=True)
class PromptTokenizer:
    """Turns prompts into tokens for one tokenizer and one form of model."""

    tokenizer: Any
    form: Form
    bos: tuple[int, ...] = ()
    """Tokens that start every input of a causal model; the tokenizer adds those of the other forms."""
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
    ) -> list[TokenizedPrompt]:
        """One TokenizedPrompt per prompt; see `encode_batch`.

        Parameters
        ----------
        prompts
            P prompts.
        candidates
            The answers to score for each prompt; empty for states only.
        items
            Find the last token of each prompt's last item.
        """
        return list(self.encode_batch(prompts, candidates, items))

    def encode_batch(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool = False
    ) -> TokenizedPrompts:
        """The tokens of all prompts.

        Parameters
        ----------
        prompts
            P prompts.
        candidates
            The answers to score for each prompt; empty for states only.
        items
            Find the last token of each prompt's last item; offsets make tokenizing slower.
        """
        # Most prompts have the very same list of candidates, and most open slots.
        lists = {id(answers): index for index, answers in enumerate(candidates)}
        for index in lists.values():
            _refuse_blanks(prompts[index], candidates[index])
        for prompt in prompts:
            if prompt.answer is not None:
                _refuse_blanks(prompt, (prompt.answer,))
        harmless: set[str] = set()
        prepared = [self._prepared(prompt, harmless) for prompt in prompts]
        longest = max((len(candidates[index]) for index in lists.values()), default=0)
        many = max(len(prompts), longest) >= FEWEST_SPLICED
        if self.form == "causal" and many and self._words.separable:
            spliced = splice(prepared, candidates, self._words, self.bos, items, self._check_answers)
            if spliced is not None and self._fits(spliced):
                return spliced
        encode = {
            "causal": self._causal,
            "masked": self._masked,
            "encoder_decoder": self._translation if self.translates else self._encoder_decoder,
        }[self.form]
        return TokenizedPrompts.of(encode(prepared, candidates, items))

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without special tokens."""
        rows = self._tokens([self._spell_out(text) for text in texts], special=False, offsets=False)
        return [len(row.ids) for row in rows]

    @cached_property
    def _words(self) -> WordTokens:
        return WordTokens(self.tokenizer)

    def _fits(self, encoded: TokenizedPrompts) -> bool:
        """Whether all prompts fit the window."""
        lengths = encoded.tokens.lengths + encoded.tail_lengths - 1
        return self.window is None or int(lengths.max(initial=0)) <= self.window

    def _prepared(self, prompt: Prompt, harmless: set[str]) -> Prompt:
        """Escape special tokens in user text and apply the chat template; `harmless` collects texts without any."""
        for piece in prompt.pieces:
            text = piece.text
            if piece.role == "text" or text in harmless:
                continue
            # Looking for the few characters that special tokens start with is much faster than for all tokens.
            for start in self._special_starts:
                if start in text:
                    break
            else:
                harmless.add(text)
                continue
            prompt = replace(prompt, pieces=tuple(map(self._escaped, prompt.pieces)))
            break
        if self.chat:
            head, tail = self._chat_frame
            # The template's blank before the slot must not end the user message.
            words = without_last_blanks(prompt.before)
            prompt = replace(prompt, pieces=(Piece(head), *words, Piece(tail), Piece("", "slot")))
        return prompt

    def _escaped(self, piece: Piece) -> Piece:
        return piece if piece.role in ("text", "slot") else replace(piece, text=self._spell_out(piece.text))

    def _spell_out(self, text: str) -> str:
        """Insert a blank into the name of a special token in user text, so that it is tokenized as text."""
        for token in self._special_tokens:
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
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
        return tuple(sorted({name[0] for name in self._special_tokens}))

    @cached_property
    def _chat_frame(self) -> tuple[str, str]:
        """The text that the chat template adds before and after a user message, without the BOS, which `bos` adds."""
        if self.form != "causal":
            raise CcrankError(f"a chat template needs a causal model; this one is {self.form}")
        if not getattr(self.tokenizer, "chat_template", None):
            raise CcrankError("this model has no chat template; remove --chat")
        marker = "\ue000ccrank\ue001"  # private-use characters, which no template contains
        framed = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": marker}], tokenize=False, add_generation_prompt=True
        )
        head, found, tail = framed.partition(marker)
        if not found:
            raise CcrankError("this model's chat template drops the user message; remove --chat")
        return head.removeprefix(self.tokenizer.bos_token) if self.bos else head, tail

    # causal ---------------------------------------------------------------------------------------------------

    def _causal(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool
    ) -> list[TokenizedPrompt]:
        texts, leads = [], []
        for prompt in prompts:
            text = "".join(piece.text for piece in prompt.before)
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
        rows = self._tokens(texts, special=False, offsets=items)
        wholes = iter(self._tokens(answered, special=False, offsets=items and filled))
        encoded = []
        for prompt, row, answers, text, lead in zip(prompts, rows, candidates, texts, leads, strict=True):
            whole_text = text
            if prompt.answer is not None:
                whole, whole_text = next(wholes), text + lead + prompt.answer
                one = TokenizedPrompt((*self.bos, *whole.ids), len(self.bos) + len(whole.ids) - 1, None, ())
                row_for_item = whole
            else:
                full = [next(wholes).ids for _ in answers]
                stem = common_prefix([row.ids, *full])
                tails = tuple(tuple(ids[stem:]) for ids in full)
                self._check_answers(prompt, answers, tails)
                tokens = (*self.bos, *row.ids[:stem])
                if not tokens:
                    raise CcrankError(f"task {prompt.task!r}: the prompt {text!r} has no token to read from")
                one = TokenizedPrompt(tokens, len(tokens) - 1, None, tails)
                row_for_item = row
                # A candidate may merge with the item's last token, which then is not part of the input.
            item = last_token_of_item(prompt.before, row_for_item, len(one.tokens) - len(self.bos))
            one = replace(one, item=None if item is None else len(self.bos) + item)
            encoded.append(self._fit(prompt, prompt.before, one, whole_text, len(self.bos)))
        return encoded

    # masked ---------------------------------------------------------------------------------------------------

    def _masked(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool
    ) -> list[TokenizedPrompt]:
        mask = self.tokenizer.mask_token
        if mask is None:
            raise CcrankError("this tokenizer has no mask token, so it cannot be used with masked prompts")
        # A filled prompt has no slot left for candidates.
        candidates = [
            answers if prompt.answer is None else ()
            for prompt, answers in zip(prompts, candidates, strict=True)
        ]
        laid_out: list[tuple[Piece, ...]] = []
        spans, answered = [], []
        takes_blank = self._mask_takes_blank()
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
        rows = self._tokens(texts, special=True, offsets=True)
        wholes = iter(self._tokens(["".join(parts) for parts in answered], special=True, offsets=True))
        ends = iter(len(before) + len(answer) for before, answer, _ in answered)
        encoded = []
        for prompt, row, span, pieces, text, answers in zip(
            prompts, rows, spans, laid_out, texts, candidates, strict=True
        ):
            inside = [
                index
                for index, (start, end) in enumerate(row.offsets)
                if start < span[1] and end > span[0] and end > start
            ]
            if prompt.answer is None:
                inside = [index for index in inside if row.ids[index] == self.tokenizer.mask_token_id]
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
            self._check_answers(prompt, answers, tuple(tails))
            item = last_token_of_item(pieces, row)
            encoded.append(
                self._fit(prompt, pieces, TokenizedPrompt(tuple(row.ids), slot, item, tuple(tails)), text, 0)
            )
        return encoded

    def _mask_takes_blank(self) -> bool:
        """Whether the tokenizer absorbs a blank before the mask, as it does before a word.

        Otherwise the blank would be a separate token that precedes no answer.
        """
        mask = self.tokenizer.mask_token
        with_blank, without = self._tokens([f"a {mask}", f"a{mask}"], special=False, offsets=False)
        return with_blank.ids == without.ids

    # encoder-decoder ------------------------------------------------------------------------------------------

    def _encoder_decoder(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool
    ) -> list[TokenizedPrompt]:
        """T5's pretraining task: the encoder input has a sentinel in the slot, the decoder generates its content."""
        sentinel = "<extra_id_0>"
        sentinel_id = self.tokenizer.convert_tokens_to_ids(sentinel)
        if sentinel_id is None or sentinel_id == self.tokenizer.unk_token_id:
            raise CcrankError(f"this tokenizer has no {sentinel}, so the slot cannot be marked")
        texts = [
            "".join(sentinel if piece.role == "slot" else piece.text for piece in prompt.pieces)
            for prompt in prompts
        ]
        rows = self._tokens(texts, special=True, offsets=items)
        encoded = []
        for prompt, row, text, answers in zip(prompts, rows, texts, candidates, strict=True):
            spoken = [prompt.answer] if prompt.answer is not None else list(answers)
            tails = tuple(
                tuple(one.ids[one.ids.index(sentinel_id) + 1 :])
                for one in self._tokens(
                    [f"{sentinel} {answer}" for answer in spoken], special=False, offsets=False
                )
            )
            decoder = (*self.decoder_start, sentinel_id)
            self._check_answers(prompt, spoken, tails)
            if prompt.answer is not None:
                decoder, tails = (*decoder, *tails[0]), ()
            pieces = tuple(Piece(sentinel) if piece.role == "slot" else piece for piece in prompt.pieces)
            item = last_token_of_item(pieces, row)
            one = TokenizedPrompt(tuple(row.ids), len(decoder) - 1, item, tails, decoder)
            encoded.append(self._fit(prompt, pieces, one, text, 0))
        return encoded

    def _translation(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool
    ) -> list[TokenizedPrompt]:
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
        rows = self._tokens(texts, special=True, offsets=items)
        encoded = []
        for prompt, row, text, answers in zip(prompts, rows, texts, candidates, strict=True):
            spoken = [prompt.answer] if prompt.answer is not None else list(answers)
            tails = (
                tuple(map(tuple, self.tokenizer(text_target=spoken, verbose=False)["input_ids"]))
                if spoken
                else ()
            )
            self._check_answers(prompt, spoken, tails)
            longest = max(map(len, tails), default=0)
            if self.window is not None and longest > self.window:
                raise CcrankError(
                    f"task {prompt.task!r}: an answer of {longest:,} tokens does not fit the model's window of "
                    f"{self.window:,}; shorten it"
                )
            decoder = self.decoder_start
            if prompt.answer is not None:
                decoder, tails = (*decoder, *tails[0][:-1]), ()  # the states are those at its last token
            item = self._last_token_of_item(prompt.before, row) if items else None
            one = TokenizedPrompt(tuple(row.ids), len(decoder) - 1, item, tails, decoder)
            encoded.append(self._fit(prompt, prompt.before, one, text, 0))
        return encoded

    def _last_token_of_item(self, pieces: Sequence[Piece], row: Row) -> int | None:
        """As `last_token_of_item`, which needs offsets. Marian's tokenizer has none: the text up to the item's end is
        tokenized alone, and where its last tokens differ, the first that does overlaps that end."""
        if self.tokenizer.is_fast:
            return last_token_of_item(pieces, row)
        last = max((index for index, piece in enumerate(pieces) if piece.role == "item"), default=None)
        if last is None:
            return None
        [alone] = self._tokens([text_of(pieces[: last + 1])], special=False, offsets=False)
        shared = common_prefix([row.ids, alone.ids])
        return shared - 1 if shared == len(alone.ids) else shared

    # shared ---------------------------------------------------------------------------------------------------

    def _tokens(self, texts: Sequence[str], special: bool, offsets: bool) -> list[Row]:
        if not texts:
            return []
        batch = self.tokenizer(
            list(texts),
            add_special_tokens=special,
            return_offsets_mapping=offsets and self.tokenizer.is_fast,
            return_attention_mask=False,
            return_token_type_ids=False,
            truncation=False,
            verbose=False,
        )
        mapping = batch.get("offset_mapping") or [()] * len(texts)
        return [Row(list(ids), where) for ids, where in zip(batch["input_ids"], mapping, strict=True)]

    def _check_answers(
        self, prompt: Prompt, answers: Sequence[str], tails: Sequence[tuple[int, ...]]
    ) -> None:
        seen: dict[tuple[int, ...], str] = {}
        for answer, tail in zip(answers, tails, strict=True):
            if not tail:
                raise CcrankError(f"task {prompt.task!r}: the candidate {answer!r} has no tokens")
            if self.tokenizer.unk_token_id is not None and self.tokenizer.unk_token_id in tail:
                raise CcrankError(
                    f"task {prompt.task!r}: the tokenizer maps the candidate {answer!r} to the unknown token"
                )
            if tail in seen:
                raise CcrankError(
                    f"task {prompt.task!r}: the candidates {seen[tail]!r} and {answer!r} have the same tokens"
                )
            seen[tail] = answer

    def _fit(
        self, prompt: Prompt, pieces: Sequence[Piece], encoded: TokenizedPrompt, text: str, shift: int
    ) -> TokenizedPrompt:
        """Raise an error for prompts longer than the model's window, or cut them from the middle."""
        # All but the last token of an answer are input too: after the slot, or as further masks.
        more = max(map(len, encoded.answers), default=1) - 1 if self.form != "encoder_decoder" else 0
        length = len(encoded.tokens) + more
        if self.window is None or length <= self.window:
            return encoded
        if not self.truncate:
            raise CcrankError(
                f"task {prompt.task!r}: a prompt of {length:,} tokens does not fit the model's window of "
                f"{self.window:,}; shorten the context or the items, or have them cut with --truncate"
            )
        [row] = self._tokens([text], special=self.form != "causal", offsets=True)
        dropped = cut_middle(pieces, row, length - self.window)
        if dropped is None:
            raise CcrankError(
                f"task {prompt.task!r}: a prompt of {length:,} tokens does not fit the model's window of "
                f"{self.window:,}, and there is too little context to cut"
            )
        kept = [index for index in range(len(encoded.tokens)) if index - shift not in dropped]
        place = {index: position for position, index in enumerate(kept)}
        return replace(
            encoded,
            tokens=tuple(encoded.tokens[index] for index in kept),
            slot=encoded.slot if encoded.decoder else place[encoded.slot],
            item=None if encoded.item is None else place.get(encoded.item),
        )


def _refuse_blanks(prompt: Prompt, answers: Sequence[str]) -> None:
    for answer in answers:
        if not answer.strip():
            raise CcrankError(f"task {prompt.task!r}: the answer {answer!r} is blank")
