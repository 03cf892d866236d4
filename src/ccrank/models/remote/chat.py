"""A chat model behind a server, asked to choose between two answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import Any

from ccrank.models.remote.address import Address
from ccrank.models.remote.client import Client, RefusedAddressError, RefusedError
from ccrank.models.remote.completions import choices, field, positions
from ccrank.models.remote.server import guess_token_counts, served_model

FORMS: tuple[Mapping[str, Any], ...] = (
    {"max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 20},
    {"max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 5},
    {"max_tokens": 8, "temperature": 0},
    {"max_completion_tokens": 2048},
)
"""Some servers give no log-probabilities, or few; models that think before they answer take other fields."""
THOUGHT_END = "</think>"


@dataclass(frozen=True)
class Choice:
    """What a model chose between two answers."""

    odds: float | None
    """The log-odds of the first answer against the second, ±inf where only its text is known; None: neither."""
    tokens: int
    """Tokens that were read and written: as the server counts them, or a guess."""


class ChatModel:
    """A model that answers questions."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.model, _ = served_model(client)
        self._form = 0

    @classmethod
    def open(cls, address: str) -> ChatModel:
        """The model at openai:URL#NAME; a key comes from the environment alone."""
        return cls(Client(Address.parse(address)))

    @property
    def name(self) -> str:
        """The address with the model's name, without secrets."""
        return replace(self.client.address, model=self.model).name

    def choose(self, question: str, first: str, second: str) -> Choice:
        """Ask a question that has two answers, such as the letters A and B."""
        body = {"model": self.model, "messages": [{"role": "user", "content": question}]}
        while True:
            try:
                reply = self.client.post("/chat/completions", {**body, **FORMS[self._form]})
                break
            except RefusedError as error:
                if isinstance(error, RefusedAddressError) or self._form == len(FORMS) - 1:
                    raise
                self._form += 1
        [answer] = choices(reply, 1)
        text = _text(answer)
        odds = _by_likelihood(answer, first, second)
        if odds is None:
            odds = _by_text(text, first, second)
        return Choice(odds, _used(reply) or sum(guess_token_counts([question, text])))


def _text(answer: Mapping[str, Any]) -> str:
    content = field(field(answer, "message", dict), "content", str) or ""
    return content.rpartition(THOUGHT_END)[2]


def _by_likelihood(answer: Mapping[str, Any], first: str, second: str) -> float | None:
    """The log-odds at the first token that is one of the answers; one that is not listed has the least listed value."""
    for position in positions(answer, by_text=True):
        if position.text.strip() not in (first, second) or not position.top:
            continue
        least = min(position.top.values())
        listed = {first: 0.0, second: 0.0}
        for token, value in position.top.items():
            if (word := str(token).strip()) in listed:
                listed[word] += exp(value)
        first_log, second_log = (log(value) if value > 0 else least for value in listed.values())
        return first_log - second_log
    return None


def _by_text(text: str, first: str, second: str) -> float | None:
    answer = re.search(rf"(?<!\w)({re.escape(first)}|{re.escape(second)})(?!\w)", text)
    return None if answer is None else inf if answer[1] == first else -inf


def _used(reply: Any) -> int | None:
    """The tokens that the server counted."""
    total = field(field(reply, "usage", dict), "total_tokens", int)
    return total if total is not None and 0 < total < 1 << 31 else None
