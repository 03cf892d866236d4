"""Log-probabilities of answers from a server that repeats prompts with them, or that lists the most likely next tokens.

- `EchoScoring`: the server repeats a prompt with an answer, and says how likely each token was. vLLM and SGLang do so
  with `echo`. An answer costs a pass over its prompt.
- `LikeliestScoring`: some servers only list the most likely next tokens: no log-probabilities of the prompt or of a
  given token, and no tokenizer. An answer is then spelled out token by token, each the longest listed one that
  continues it. An answer that is not on the lists has no score, which is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from ccrank.errors import CcrankError
from ccrank.models.remote.client import Client, RefusedError
from ccrank.models.remote.completions import Position, Token, choices, positions, prompt_ids
from ccrank.models.tokenize.splice import common_prefix

Tail = tuple[Token, ...]
Report = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1."""
Element = TypeVar("Element")


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A prompt and the answers that are scored after it."""

    text: str
    """The prompt without the blanks before its slot, which belong to the answers' first tokens."""
    answers: tuple[str, ...]
    """Each with the blanks before it."""
    task: str = "task"
    """For error messages."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The prompt alone, and with each answer."""
        return (self.text, *(self.text + answer for answer in self.answers))


@dataclass(frozen=True, slots=True)
class AnswerScores:
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

    def score(self, asked: Sequence[AnswerRequest], report: Report) -> list[AnswerScores]:
        """The log-probabilities of all answers."""


def tails_of(
    asked: AnswerRequest, prompt: Sequence[Token], whole: Sequence[Sequence[Token]]
) -> tuple[Tail, ...]:
    """The tokens of each answer: those after the longest common beginning of the prompt alone and with each answer.

    A token that straddles the end of the prompt thus belongs to the answers.
    """
    stem = common_prefix([prompt, *whole])
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


def batches(pieces: Sequence[Element], size: int) -> Iterator[Sequence[Element]]:
    """The pieces in groups of at most `size`."""
    for start in range(0, len(pieces), size):
        yield pieces[start : start + size]


PROBE = "The quick brown fox jumps over the lazy dog"
FORMS: tuple[Mapping[str, Any], ...] = (
    {"max_tokens": 0, "return_token_ids": True},
    {"max_tokens": 1, "return_token_ids": True},
    {"max_tokens": 0},
    {"max_tokens": 1},
)
"""Some servers must generate a token, some refuse fields that they do not know."""


@dataclass(frozen=True)
class EchoScoring:
    """Sends every prompt with every answer."""

    client: Client
    model: str
    form: Mapping[str, Any]
    """Fields of a request, one of `FORMS`."""
    generated: int = 0
    """How many tokens the server adds to the prompt."""
    batch: int = 1
    """Prompts in a request."""
    name: str = field(default="log-probabilities of prompts (echo)", init=False)

    @classmethod
    def found(cls, client: Client, model: str, batch: int) -> EchoScoring | None:
        """The way in which the server repeats prompts with log-probabilities; None if it does not."""
        for form in FORMS:
            try:
                [read] = cls(client, model, form, batch=batch).read([PROBE])
            except RefusedError as error:
                if error.concerns_address:
                    raise
                continue
            except CcrankError:
                return None  # some servers fail at a prompt that they should repeat
            for generated in (0, 1):
                repeated = read[: len(read) - generated]
                # Blanks may be lost or spelled, and a special token may come first.
                text = re.sub("[ Ġ▁]", "", "".join(position.text for position in repeated))
                known = [position.log_probability is not None for position in repeated[1:]]
                if text.endswith(PROBE.replace(" ", "")) and len(known) > 1 and all(known):
                    return cls(client, model, form, generated, batch)
        return None

    def score(self, asked: Sequence[AnswerRequest], report: Report) -> list[AnswerScores]:
        """See `Scoring.score`."""
        texts = list(dict.fromkeys(text for request in asked for text in request.texts))
        groups = list(batches(texts, self.batch))
        read: dict[str, list[Position]] = {}
        for done, (index, positions_read) in enumerate(self.client.each(self.read, groups), start=1):
            read.update(zip(groups[index], positions_read, strict=True))
            report(done / len(groups))
        return [self._scored(request, read) for request in asked]

    def read(self, texts: Sequence[str]) -> list[list[Position]]:
        """The tokens of texts."""
        body = {
            "model": self.model,
            "prompt": list(texts) if self.batch > 1 else texts[0],
            "echo": True,
            "logprobs": 1,
            "temperature": 0,
            **self.form,
        }
        tokens_of_texts = []
        for choice in choices(self.client.post("/completions", body), len(texts)):
            read = positions(choice)
            read = read[: len(read) - self.generated]
            ids = prompt_ids(choice)
            if ids is not None and len(ids) == len(read):
                read = [replace(position, token=token) for token, position in zip(ids, read, strict=True)]
            else:
                read = [_distinguished(position) for position in read]
            tokens_of_texts.append(read)
        return tokens_of_texts

    def _scored(self, asked: AnswerRequest, read: Mapping[str, list[Position]]) -> AnswerScores:
        prompt, *whole = ([position.token for position in read[text]] for text in asked.texts)
        tails = tails_of(asked, prompt, whole)
        table: dict[tuple[Token, ...], float] = {}
        for tail, text in zip(tails, asked.texts[1:], strict=True):
            answer = read[text][len(read[text]) - len(tail) :]
            for length, position in enumerate(answer, start=1):
                if position.log_probability is None:
                    raise CcrankError(
                        f"task {asked.task!r}: the server gave no log-probability for {position.text!r} in "
                        f"{asked.text[-40:]!r}"
                    )
                table[tail[:length]] = position.log_probability
        return AnswerScores(tails, table, len(prompt) + sum(map(len, whole)))


def _distinguished(position: Position) -> Position:
    """The position with its log-probability in the name of its token, if the text does not tell which token it is.

    Parts of a character have no text of their own. The same token after the same tokens is as likely.
    """
    if position.text and "\ufffd" not in position.text:
        return position
    number = "" if position.log_probability is None else f"{position.log_probability:.2f}"
    return replace(position, token=f"{position.text}@{number}")


TOPS = (500, 20, 5)
"""How many tokens to ask for; servers have limits."""


@dataclass(frozen=True)
class LikeliestScoring:
    """Sends every prompt with every beginning of an answer, as text."""

    client: Client
    model: str
    top: int
    """How many tokens the server lists."""
    batch: int = 1
    """Prompts in a request."""
    name: str = field(default="log-probabilities of the most likely next tokens only", init=False)

    @classmethod
    def found(cls, client: Client, model: str, batch: int) -> LikeliestScoring | None:
        """The way in which the server lists likely tokens; None if it does not."""
        for top in TOPS:
            try:
                [read] = cls(client, model, top, batch).read([PROBE])
            except RefusedError as error:
                if error.concerns_address:
                    raise
                continue
            return None if read is None or len(read.top) < 2 else cls(client, model, top, batch)
        return None

    def score(self, asked: Sequence[AnswerRequest], report: Report) -> list[AnswerScores]:
        """See `Scoring.score`."""
        listed: dict[str, dict[str, float]] = {}
        spelled: list[list[list[str]]] = [[[] for _ in request.answers] for request in asked]
        while left := self._next_texts(asked, spelled):
            groups = list(batches([text for text in left if text not in listed], self.batch))
            for index, positions_read in self.client.each(self.read, groups):
                for text, position in zip(groups[index], positions_read, strict=True):
                    top = {} if position is None else position.top
                    listed[text] = {token: value for token, value in top.items() if isinstance(token, str)}
            for request, answers in zip(asked, spelled, strict=True):
                for answer, tokens in zip(request.answers, answers, strict=True):
                    done = "".join(tokens)
                    if done != answer:
                        tokens.append(self._continued(request, answer, done, listed[request.text + done]))
            report(_share(asked, spelled))
        return [
            self._scored(request, answers, listed) for request, answers in zip(asked, spelled, strict=True)
        ]

    def read(self, texts: Sequence[str]) -> list[Position | None]:
        """The next token after each text."""
        body = {
            "model": self.model,
            "prompt": list(texts) if self.batch > 1 else texts[0],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": self.top,
        }
        reply = self.client.post("/completions", body)
        return [next(iter(positions(choice, by_text=True)), None) for choice in choices(reply, len(texts))]

    @staticmethod
    def _next_texts(asked: Sequence[AnswerRequest], spelled: Sequence[Sequence[Sequence[str]]]) -> list[str]:
        """The distinct texts after which an answer goes on."""
        texts = {
            request.text + "".join(tokens): None
            for request, answers in zip(asked, spelled, strict=True)
            for answer, tokens in zip(request.answers, answers, strict=True)
            if "".join(tokens) != answer
        }
        return list(texts)

    def _continued(self, asked: AnswerRequest, answer: str, done: str, listed: dict[str, float]) -> str:
        rest = answer[len(done) :]
        fitting = [token for token in listed if token and rest.startswith(token)]
        if not fitting:
            raise CcrankError(
                f"task {asked.task!r}: the server lists the {self.top} most likely next tokens only, and none of them "
                f"continues the candidate {answer.strip()!r} at {rest!r}; use a server that gives log-probabilities of "
                "any token, such as vLLM or llama.cpp's, or load the model itself"
            )
        return max(fitting, key=len)

    @staticmethod
    def _scored(
        asked: AnswerRequest, spelled: Sequence[Sequence[str]], listed: dict[str, dict[str, float]]
    ) -> AnswerScores:
        tails = tuple(tuple(tokens) for tokens in spelled)
        table: dict[Tail, float] = {}
        for tail in tails:
            for place in range(len(tail)):
                before = asked.text + "".join(tail[:place])
                table[tail[: place + 1]] = listed[before][tail[place]]
        return AnswerScores(tails, table, sum(map(len, tails)))


def _share(asked: Sequence[AnswerRequest], spelled: Sequence[Sequence[Sequence[str]]]) -> float:
    done = sum(len(token) for answers in spelled for tokens in answers for token in tokens)
    return done / max(1, sum(len(answer) for request in asked for answer in request.answers))
