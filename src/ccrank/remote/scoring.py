"""What is asked of a server and what comes back, whichever way it gives log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ccrank.errors import CcrankError
from ccrank.remote.completions import Token

Tail = tuple[Token, ...]
Report = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1."""
Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt and the answers that are scored after it."""

    text: str
    """The prompt without the blanks before its slot, which belong to the answers' first tokens."""
    answers: tuple[str, ...]
    """Each with the blanks before it."""
    task: str = "task"
    """For error messages."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probabilities of answers, token by token."""

    tails: tuple[Tail, ...]
    """The tokens of each answer, and of what it merges with."""
    log_probabilities: Mapping[Tail, float]
    """A tail up to one of its tokens → the log-probability of that token."""
    tokens: int
    """The tokens that the server was sent."""


class Scoring(Protocol):
    """A way to get log-probabilities."""

    @property
    def name(self) -> str:
        """In a few words, for users."""

    def score(self, asked: Sequence[Asked], report: Report) -> list[Scored]:
        """The log-probabilities of all answers.

        Parameters
        ----------
        asked
            Prompts with answers.
        report
            Called now and then.
        """


def tails_of(asked: Asked, prompt: Sequence[Token], whole: Sequence[Sequence[Token]]) -> tuple[Tail, ...]:
    """The tokens of each answer: those after the longest common beginning of the prompt alone and with each answer.

    A token that straddles the end of the prompt thus belongs to the answers.

    Parameters
    ----------
    asked
        The prompt, for error messages.
    prompt
        The tokens of the prompt alone.
    whole
        The tokens of the prompt with each answer.
    """
    stem = 0
    for together in zip(prompt, *whole, strict=False):
        if any(token != together[0] for token in together):
            break
        stem += 1
    if not stem:
        raise CcrankError(f"task {asked.task!r}: the prompt {asked.text!r:.80} has no token to read from")
    tails = tuple(tuple(tokens[stem:]) for tokens in whole)
    seen: dict[Tail, str] = {}
    for answer, tail in zip(asked.answers, tails, strict=True):
        if not tail:
            raise CcrankError(f"task {asked.task!r}: the candidate {answer.strip()!r} has no tokens")
        if tail in seen:
            raise CcrankError(
                f"task {asked.task!r}: the candidates {seen[tail].strip()!r} and {answer.strip()!r} have the same "
                "tokens"
            )
        seen[tail] = answer
    return tails


def batches(pieces: Sequence[Piece], size: int) -> Iterator[Sequence[Piece]]:
    """The pieces in groups of at most `size`.

    Parameters
    ----------
    pieces
        Anything.
    size
        The length of a group.
    """
    for start in range(0, len(pieces), size):
        yield pieces[start : start + size]
