"""A server's own tokenizer, behind its route /tokenize (llama.cpp, vLLM, SGLang)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from ccrank.errors import CcrankError
from ccrank.remote.client import Client

BYTES_PER_TOKEN = 3
"""A cautious guess where the server does not tokenize: English has four or more."""
ROUTES = ("/tokenize", "/v1/tokenize")


class Counting(Protocol):
    """Counts tokens."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text.

        Parameters
        ----------
        texts
            Any texts.
        """


class GuessedTokens:
    """The number of tokens by the length of a text."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """About the number of tokens of each text.

        Parameters
        ----------
        texts
            Any texts.
        """
        return [math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN) for text in texts]


class ServerTokens:
    """Texts to tokens by the server's tokenizer.

    Parameters
    ----------
    client
        The server.
    model
        The name of the model.
    route
        One of `ROUTES`.
    """

    def __init__(self, client: Client, model: str, route: str) -> None:
        self.client, self.model, self.route = client, model, route
        self.lengths: dict[int, int] = {}
        """Token → the length of its text, of those that were seen, if the server says it."""
        self.parts: set[int] = set()
        """Tokens that are parts of characters, of those that were seen."""

    @classmethod
    def found(cls, client: Client, model: str) -> ServerTokens | None:
        """The server's tokenizer; None if it has none.

        Parameters
        ----------
        client
            The server.
        model
            The name of the model.
        """
        for route in ROUTES:
            one = cls(client, model, route)
            try:
                short, long = one.encode("one two"), one.encode("one two three four")
            except CcrankError:
                continue
            if 0 < len(short) < len(long):
                return one
        return None

    def encode(self, text: str, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text.

        Parameters
        ----------
        text
            Any text. What looks like a special token is text too.
        special
            Put those tokens first that the model expects there.
        """
        body = {
            "model": self.model,
            "content": text,  # llama.cpp
            "prompt": text,  # vLLM and SGLang
            "add_special": special,
            "add_special_tokens": special,
            "parse_special": False,
            "with_pieces": True,
        }
        reply = self.client.post(self.route, body, outside=True)
        found = reply.get("tokens") if isinstance(reply, dict) else None
        tokens = [self._seen(token) for token in found] if isinstance(found, list) else [None]
        if None in tokens:
            raise CcrankError(f"{self.client.address.root}{self.route} gave no tokens for {text!r:.60}")
        return tuple(token for token in tokens if token is not None)

    def _seen(self, token: Any) -> int | None:
        """The id of a token, which llama.cpp gives with its text, or with its bytes if they are no text."""
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            self.lengths[token["id"]] = len(token.get("piece") or "")
            if isinstance(token.get("piece"), list):
                self.parts.add(token["id"])
            return int(token["id"])
        return token if isinstance(token, int) else None

    def encode_all(self, texts: Sequence[str], special: bool = True) -> list[tuple[int, ...]]:
        """The tokens of each text.

        Parameters
        ----------
        texts, special
            As in `encode`.
        """
        found: list[tuple[int, ...]] = [()] * len(texts)
        for place, tokens in self.client.each(lambda text: self.encode(text, special), texts):
            found[place] = tokens
        return found

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without special tokens.

        Parameters
        ----------
        texts
            Any texts.
        """
        distinct = list(dict.fromkeys(texts))
        lengths = dict(zip(distinct, map(len, self.encode_all(distinct, special=False)), strict=True))
        return [lengths[text] for text in texts]
