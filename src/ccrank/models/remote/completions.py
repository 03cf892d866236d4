"""What servers answer, in one form: models, tokens, and tokens with log-probabilities.

Servers are not trusted: every number and shape that ccrank uses is checked here. The rest is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.models.remote.client import BadAnswerError
from ccrank.util.text import quoted

MIN_LOG_PROBABILITY = -104.0
"""Servers that compute in 32-bit floats give the lowest number, or -9999, for probabilities below e^-103."""
ROUNDING = 0.1
"""Log-probabilities are at most 0, but for rounding in 16 bits."""
MAX_NAME = 500
"""Characters of the name of a model."""
_ID = re.compile(r"token_id:([0-9]{1,9})")
"""How vLLM spells tokens on request."""

Token = int | str
"""The id of a token where the server gives it, else its text."""


@dataclass(frozen=True, slots=True)
class Position:
    """A token of a prompt or of an answer."""

    token: Token
    text: str
    log_probability: float | None
    """None of the first token, which nothing precedes."""
    top: Mapping[Token, float]
    """The most likely tokens in its place."""


def models(reply: Any) -> list[dict[str, Any]]:
    """The models of a server, each with its name ("id"), "aliases", and further names and numbers, also of "meta"."""
    listed = reply.get("data") if isinstance(reply, dict) else None
    known = []
    for model in listed if isinstance(listed, list) else ():
        if isinstance(model, dict) and _is_name(model.get("id")):
            aliases, meta = model.get("aliases"), model.get("meta")
            facts = {
                **_plain(model),
                "aliases": [*filter(_is_name, aliases)] if isinstance(aliases, list) else [],
                "meta": _plain(meta) if isinstance(meta, dict) else {},
            }
            known.append(facts)
    return known


def token_pieces(reply: Any) -> list[tuple[int, str | list[Any] | None]]:
    """The tokens of a text, each with its text (or bytes that are not valid text), where the server gives it."""
    tokens = reply.get("tokens") if isinstance(reply, dict) else None
    if not isinstance(tokens, list):
        raise _bad("tokens", tokens)
    read: list[tuple[int, str | list[Any] | None]] = []
    for entry in tokens:
        piece = entry.get("piece") if isinstance(entry, dict) else None
        if not isinstance(piece, str | list | None):
            raise _bad("the text of a token", piece)
        read.append((_id(entry.get("id") if isinstance(entry, dict) else entry), piece))
    return read


def choices(reply: Any, count: int) -> list[dict[str, Any]]:
    """The answers to `count` prompts, in their order."""
    listed = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(listed, list):
        listed = []
    if len(listed) != count or not all(isinstance(choice, dict) for choice in listed):
        number = len(listed) or "no"
        raise BadAnswerError(
            f"the server gave {number} answers to {count} prompts; it takes no lists of prompts"
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
    if not isinstance(logprobs, dict):
        return []
    if isinstance(content := logprobs.get("content"), list):
        return [
            Position(
                _token(entry, by_text),
                entry["token"],
                _number(entry.get("logprob")),
                _top(
                    (_token(other, by_text), other.get("logprob"))
                    for other in entry.get("top_logprobs") or ()
                ),
            )
            for entry in map(_listed_token, content)
        ]
    texts, numbers = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(texts, list) or not isinstance(numbers, list) or len(texts) != len(numbers):
        return []
    tops = logprobs.get("top_logprobs")
    if not isinstance(tops, list) or len(tops) != len(texts):
        tops = [None] * len(texts)
    read = []
    for text, number, top in zip(texts, numbers, tops, strict=True):
        if not isinstance(text, str) or not isinstance(top, dict | None):
            raise _bad("a token with others in its place", (text, top))
        listed = _top((_spelled(other), value) for other, value in (top or {}).items())
        read.append(Position(_spelled(text), text, _number(number), listed))
    return read


def prompt_ids(choice: Mapping[str, Any]) -> list[int] | None:
    """The ids of a prompt's tokens; None where the server does not give them."""
    ids = choice.get("prompt_token_ids")
    return [*map(_id, ids)] if isinstance(ids, list) else None


def _listed_token(entry: Any) -> Mapping[str, Any]:
    """A token of the chat API's form, with the tokens in its place."""
    entries = [entry]
    if isinstance(entry, dict) and isinstance(entry.get("top_logprobs"), list):
        entries += entry["top_logprobs"]
    elif not isinstance(entry, dict) or entry.get("top_logprobs") is not None:
        raise _bad("a token with others in its place", entry)
    for token in entries:
        if not isinstance(token, dict) or not isinstance(token.get("token"), str):
            raise _bad("a token", token)
    return entry


def _token(entry: Mapping[str, Any], by_text: bool) -> Token:
    return _spelled(entry["token"]) if by_text or entry.get("id") is None else _id(entry["id"])


def _spelled(text: str) -> Token:
    spelled = _ID.fullmatch(text)
    return int(spelled[1]) if spelled else text


def _top(listed: Iterable[tuple[Token, Any]]) -> dict[Token, float]:
    read = ((token, _number(value)) for token, value in listed)
    return {token: number for token, number in read if number is not None}


def _number(value: Any) -> float | None:
    """A log-probability; None if there is none."""
    if value is None:
        return None
    if type(value) not in (int, float) or not -math.inf < value <= ROUNDING:
        raise _bad("a log-probability", value)
    return float(min(0.0, max(MIN_LOG_PROBABILITY, value)))


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
