"""A rendered prompt: pieces of text with known roles and one answer slot.

User text stays text: names of control tokens in it are broken up, anywhere in a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

Role = Literal["text", "criterion", "context", "item", "slot"]
Form = Literal["causal", "masked", "encoder_decoder"]
BreakUp = Callable[[str], str]
"""A text → the same text without names of control tokens; a text without any is returned as it is."""


# Never changed after construction, but not frozen: construction would take three times as long, and there may be
# millions.
@dataclass(slots=True, unsafe_hash=True)
class Piece:
    """A substring of a prompt with its role: user text ("criterion", "context", "item"), template text, or the slot."""

    text: str
    role: Role = "text"


@dataclass(slots=True, unsafe_hash=True)
class Prompt:
    """Text with one answer slot.

    The slot is a piece of its own, so its position is known by construction: no string is searched for, and an
    item that contains the word "Yes" or a mask token cannot move it.
    """

    pieces: tuple[Piece, ...]
    answer: str | None = None
    """Fills the slot, so that the states are read at the answer; None leaves the slot open."""
    task: str = "task"
    """The id of the prompt's task, for error messages."""

    @property
    def before(self) -> tuple[Piece, ...]:
        """The pieces before the slot."""
        return self.pieces[: self._slot]

    @property
    def after(self) -> tuple[Piece, ...]:
        """The pieces after the slot."""
        return self.pieces[self._slot + 1 :]

    @property
    def _slot(self) -> int:
        return next(index for index, piece in enumerate(self.pieces) if piece.role == "slot")

    @property
    def text(self) -> str:
        """The prompt as plain text, with an open slot shown as an underscore."""
        return "".join((self.answer or "_") if piece.role == "slot" else piece.text for piece in self.pieces)

    def filled(self, answer: str) -> Prompt:
        """A copy of the prompt with `answer` in the slot."""
        return replace(self, answer=answer)


def broken_up(name: str) -> str:
    """The name of a control token with a blank after its first character, so that it is tokenized as text.

    >>> broken_up("<|im_start|>")
    '< |im_start|>'
    """
    return f"{name[0]} {name[1:]}"


def plain_prompts(prompts: Sequence[Prompt], break_up: BreakUp) -> list[Prompt]:
    """The prompts with every name of a control token broken up, except in the template's own text."""
    plain = cache(break_up)
    return [_plain_prompt(prompt, plain) for prompt in prompts]


def _plain_prompt(prompt: Prompt, plain: BreakUp) -> Prompt:
    if any(piece.role != "text" and plain(piece.text) != piece.text for piece in prompt.pieces):
        pieces = (
            piece if piece.role == "text" else replace(piece, text=plain(piece.text))
            for piece in prompt.pieces
        )
        prompt = replace(prompt, pieces=tuple(pieces))
    if prompt.answer is not None and (answer := plain(prompt.answer)) != prompt.answer:
        prompt = replace(prompt, answer=answer)
    return prompt


def plain_answers(candidates: Sequence[Sequence[str]], break_up: BreakUp) -> list[Sequence[str]]:
    """The candidate answers of each prompt, with every name of a control token broken up; prompts may share a list."""
    lists = {id(answers): answers for answers in candidates}
    plain = {key: tuple(map(break_up, answers)) for key, answers in lists.items()}
    return [plain[id(answers)] for answers in candidates]
