"""A rendered prompt: pieces of text with known roles and one answer slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Role = Literal["text", "criterion", "context", "item", "slot"]
Form = Literal["causal", "masked", "encoder_decoder"]


# Never changed after they are made, but not frozen: that would make them take three times as long to make, and there
# may be millions.
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
