"""What servers answer to /completions, in one form: tokens with log-probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError

LEAST = -104.0
"""Servers that compute in 32-bit floats give the lowest number, or -9999, for probabilities below e^-103."""
_ID = re.compile(r"token_id:(\d+)")
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


def choices(reply: Any, count: int) -> list[dict[str, Any]]:
    """The answers to `count` prompts, in their order.

    Parameters
    ----------
    reply
        The JSON of the server.
    count
        The number of prompts.
    """
    found = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(found, list) or len(found) != count or not all(isinstance(one, dict) for one in found):
        number = len(found) if isinstance(found, list) else "no"
        raise CcrankError(
            f"the server gave {number} answers to {count} prompts; it takes no lists of prompts"
        )
    return sorted(found, key=lambda one: int(one.get("index") or 0))


def positions(choice: Mapping[str, Any], by_text: bool = False) -> list[Position]:
    """The tokens of an answer; none where the server gives no log-probabilities.

    Parameters
    ----------
    choice
        One of `choices`, in the form of the completions API (vLLM, SGLang) or of the chat API (llama.cpp).
    by_text
        Tokens are their texts, even where the server gives ids.
    """
    found = choice.get("logprobs")
    if not isinstance(found, dict):
        return []
    if isinstance(content := found.get("content"), list):
        return [
            Position(
                _token(one, by_text),
                str(one.get("token", "")),
                _number(one.get("logprob")),
                {
                    _token(other, by_text): _number(other.get("logprob")) or 0.0
                    for other in one.get("top_logprobs") or ()
                },
            )
            for one in content
        ]
    texts, numbers = found.get("tokens"), found.get("token_logprobs")
    if not isinstance(texts, list) or not isinstance(numbers, list) or len(texts) != len(numbers):
        return []
    tops: Sequence[Any] = found.get("top_logprobs") or ()
    if len(tops) != len(texts):
        tops = [None] * len(texts)
    return [
        Position(
            _spelled(str(text)),
            str(text),
            _number(number),
            {_spelled(str(other)): _number(value) or 0.0 for other, value in (top or {}).items()},
        )
        for text, number, top in zip(texts, numbers, tops, strict=True)
    ]


def _token(one: Mapping[str, Any], by_text: bool) -> Token:
    found = one.get("id")
    return found if isinstance(found, int) and not by_text else _spelled(str(one.get("token", "")))


def _spelled(text: str) -> Token:
    found = _ID.fullmatch(text)
    return int(found[1]) if found else text


def _number(value: Any) -> float | None:
    return None if value is None else min(0.0, max(LEAST, float(value)))
