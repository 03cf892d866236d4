"""Completions of a model behind a server; every number and shape of an answer that ccrank uses is checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ccrank.errors import CcrankError
from ccrank.models.remote.client import BadAnswerError, Client
from ccrank.models.tokenize.by_form import check_answers
from ccrank.models.tokenize.ragged import common_prefix
from ccrank.util.text import quoted

MIN_LOG_PROBABILITY = -104.0
"""Servers that compute in 32-bit floats give the lowest number, or -9999, for probabilities below e^-103."""
ROUNDING = 0.1  # log-probabilities are at most 0, but for rounding in 16 bits
MAX_NAME = 500  # characters of the name of a model
_ID = re.compile(r"token_id:([0-9]{1,9})")  # how vLLM spells tokens on request

Token = int | str  # the id of a token where the server gives it, else its text
Tail = tuple[Token, ...]
Report = Callable[[float], None]  # called with the share of the work that is done, from 0 to 1
Sent = TypeVar("Sent", str, tuple[int, ...])  # a prompt as it is sent: its text or its tokens
Wish = TypeVar("Wish", bound=tuple[Any, ...])
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Position:
    """A token of a prompt or of an answer."""

    token: Token
    text: str
    log_probability: float | None  # None for the first token, which nothing precedes
    top: Mapping[Token, float]  # the most likely tokens at this position


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A prompt and the answers that are scored after it."""

    text: str  # the prompt without the blanks before its slot, which belong to the answers' first tokens
    answers: tuple[str, ...]  # each with the blanks before it
    task: str = "task"  # for error messages

    @property
    def texts(self) -> tuple[str, ...]:
        """The prompt alone, and with each answer."""
        return (self.text, *(self.text + answer for answer in self.answers))

    def tails(self, prompt: Sequence[Token], whole: Sequence[Sequence[Token]]) -> tuple[Tail, ...]:
        """The tokens of each answer: those after the longest common beginning of the prompt alone and with each answer.

        A token that straddles the end of the prompt thus belongs to the answers.
        """
        stem = common_prefix([prompt, *whole])
        if not stem:
            raise CcrankError(f"task {self.task!r}: the prompt {self.text!r:.80} has no token to read from")
        tails = tuple(tuple(tokens[stem:]) for tokens in whole)
        check_answers(self.task, list(map(str.strip, self.answers)), tails)
        return tails


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """Log-probabilities of answers, token by token."""

    tails: Sequence[Tail]  # the tokens of each answer, and of what it merges with
    log_probabilities: Sequence[Sequence[float]]  # of each token of each tail
    tokens: int  # the tokens that the server was sent


@dataclass(frozen=True)
class Completions:
    """The completions of one model behind a server."""

    client: Client
    model: str
    batch: int = 1  # prompts in a request

    def ask(self, prompts: Sequence[Sent], **wish: Any) -> list[dict[str, Any]]:
        """The answers to one request with these prompts, in their order."""
        prompt = list(prompts) if self.batch > 1 else prompts[0]
        body = {"model": self.model, "prompt": prompt, "temperature": 0, **wish}
        return choices(self.client.post("/completions", body), len(prompts))

    def each(
        self, read: Callable[..., Sequence[Result]], prompts_of: Mapping[Wish, Iterable[Sent]], report: Report
    ) -> Iterator[tuple[Wish, Sent, Result]]:
        """The result of `read(prompts, *wish)` for each prompt of each wish, as they come."""
        jobs: list[tuple[Wish, list[Sent]]] = []
        for wish, prompts in prompts_of.items():
            all_prompts = list(prompts)
            starts = range(0, len(all_prompts), self.batch)
            jobs += [(wish, all_prompts[start : start + self.batch]) for start in starts]
        results = self.client.each(lambda job: read(job[1], *job[0]), jobs)
        for done, (index, results_of_job) in enumerate(results, start=1):
            wish, sent = jobs[index]
            for prompt, result in zip(sent, results_of_job, strict=True):
                yield wish, prompt, result
            report(done / len(jobs))


def models(reply: Any) -> list[dict[str, Any]]:
    """The models of a server, each with its name ("id"), "aliases", and further names and numbers, also of "meta"."""
    return [
        {
            **_plain(model),
            "aliases": list(filter(_is_name, field(model, "aliases", list) or [])),
            "meta": _plain(field(model, "meta", dict) or {}),
        }
        for model in field(reply, "data", list) or []
        if _is_name(field(model, "id", str))
    ]


def token_pieces(reply: Any) -> list[tuple[int, str | list[Any] | None]]:
    """The tokens of a text, each with its text (or bytes that are not valid text), where the server gives it."""
    tokens = field(reply, "tokens", list)
    if tokens is None:
        raise _bad("tokens", reply)
    read: list[tuple[int, str | list[Any] | None]] = []
    for entry in tokens:
        token, piece = (entry.get("id"), entry.get("piece")) if isinstance(entry, dict) else (entry, None)
        if not isinstance(piece, str | list | None):
            raise _bad("the text of a token", piece)
        read.append((_id(token), piece))
    return read


def choices(reply: Any, count: int) -> list[dict[str, Any]]:
    """The answers to `count` prompts, in their order."""
    listed = field(reply, "choices", list) or []
    if len(listed) != count or not all(isinstance(choice, dict) for choice in listed):
        raise BadAnswerError(
            f"the server gave {len(listed) or 'no'} answers to {count} prompts; it takes no lists of prompts"
        )
    if count == 1:
        return listed
    by_index = {choice.get("index"): choice for choice in listed if type(choice.get("index")) is int}
    if sorted(by_index) != list(range(count)):
        raise BadAnswerError(f"the server does not say which of its {count} answers is to which prompt")
    return [by_index[index] for index in range(count)]


def positions(choice: Mapping[str, Any], by_text: bool = False) -> list[Position]:
    """The tokens of an answer; none where the server gives no log-probabilities."""
    logprobs = choice.get("logprobs")
    content = field(logprobs, "content", list)
    if content is None:  # the older form
        texts, numbers, tops = (
            field(logprobs, name, list) or [] for name in ("tokens", "token_logprobs", "top_logprobs")
        )
        if len(texts) != len(numbers):
            return []
        if len(tops) != len(texts):
            tops = [None] * len(texts)
        content = []
        for text, number, top in zip(texts, numbers, tops, strict=True):
            if not isinstance(top, dict | None):
                raise _bad("alternatives to a token", top)
            others = [{"token": other, "logprob": value} for other, value in (top or {}).items()]
            content.append({"token": text, "logprob": number, "top_logprobs": others})
    return [_position(entry, by_text) for entry in content]


def prompt_ids(choice: Mapping[str, Any]) -> list[int] | None:
    """The ids of a prompt's tokens; None where the server does not give them."""
    ids = field(choice, "prompt_token_ids", list)
    return None if ids is None else list(map(_id, ids))


def _position(entry: Any, by_text: bool) -> Position:
    """A token of the chat API's form, with the tokens in its place."""
    listed = entry.get("top_logprobs") if isinstance(entry, dict) else None
    if not isinstance(listed, list | None):
        raise _bad("alternatives to a token", listed)
    (token, number), *others = (_token(other, by_text) for other in (entry, *(listed or ())))
    return Position(
        token, entry["token"], number, {other: value for other, value in others if value is not None}
    )


def _token(entry: Any, by_text: bool) -> tuple[Token, float | None]:
    """A token and its log-probability, if it has one."""
    text = field(entry, "token", str)
    if text is None:
        raise _bad("a token", entry)
    number = entry.get("logprob")
    if number is not None:
        if type(number) not in (int, float) or not -math.inf < number <= ROUNDING:
            raise _bad("a log-probability", number)
        number = float(min(0.0, max(MIN_LOG_PROBABILITY, number)))
    if not by_text and entry.get("id") is not None:
        return _id(entry["id"]), number
    spelled = _ID.fullmatch(text)
    return int(spelled[1]) if spelled else text, number


def field(table: Any, name: str, kind: type[Result]) -> Result | None:
    """A field of a JSON object; None if it is not there, or of another kind."""
    value = table.get(name) if isinstance(table, dict) else None
    return value if isinstance(value, kind) else None


def _id(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise _bad("the id of a token", value)
    return int(value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Those facts that are names, or whole numbers of 64 bits."""
    return {
        name: value
        for name, value in facts.items()
        if _is_name(name) and (_is_name(value) or (type(value) is int and abs(value) < 1 << 63))
    }


def _bad(what: str, value: object) -> BadAnswerError:
    return BadAnswerError(
        f"the server gave {quoted(value)} as {what}; see its log, and whether its model works"
    )
