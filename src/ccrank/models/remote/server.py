"""What a server offers: its models, its tokenizer, and the way in which it gives log-probabilities."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from ccrank.errors import CcrankError, UnavailableError
from ccrank.models.cache.store import ReadingCache
from ccrank.models.remote.client import LASTING_ERRORS, Client, RefusedError, SilentError
from ccrank.models.remote.completions import Completions, models, positions, token_pieces
from ccrank.models.remote.scoring import EchoScoring, ForcedScoring, LikeliestScoring, Scoring
from ccrank.util.text import shortened

BYTES_PER_TOKEN = 3  # a cautious guess where the server does not tokenize: English has four or more
ROUTES = ("/tokenize", "/v1/tokenize")


def guess_token_counts(texts: Sequence[str]) -> list[int]:
    """About the number of tokens of each text, by its length."""
    return [math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN) for text in texts]


@dataclass(eq=False)
class ServerTokens:
    """Texts to tokens by the server's tokenizer, behind one of `ROUTES` (llama.cpp, vLLM, SGLang)."""

    client: Client
    model: str
    route: str
    lengths: dict[int, int] = field(
        default_factory=dict
    )  # token that was seen → length of its text, if given
    parts: set[int] = field(default_factory=set)  # tokens that were seen and are parts of characters

    @classmethod
    def detect(cls, client: Client, model: str) -> ServerTokens | None:
        """The server's tokenizer; None if it has none."""
        for route in ROUTES:
            tokens = cls(client, model, route)
            try:
                short, long = tokens.encode("one two"), tokens.encode("one two three four")
            except SilentError:
                raise
            except CcrankError:
                continue
            if 0 < len(short) < len(long):
                return tokens
        return None

    def encode(self, text: str, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text."""
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
        pieces = token_pieces(reply)
        for token, piece in pieces:
            if piece is not None:  # llama.cpp
                self.lengths[token] = len(piece)
            if isinstance(piece, list):
                self.parts.add(token)
        return tuple(token for token, _ in pieces)

    def encode_all(self, texts: Sequence[str], special: bool = True) -> list[tuple[int, ...]]:
        """The tokens of each text."""
        distinct = list(dict.fromkeys(texts))
        results = self.client.each(lambda text: self.encode(text, special), distinct)
        tokens_of = {distinct[index]: tokens for index, tokens in results}
        return [tokens_of[text] for text in texts]


BATCH = 16  # prompts in a request, where the server takes several
VOLATILE = ("created", "modified_at", "permission")  # metadata that change when a server restarts
TEXTS = ("The capital of France is", "She opened the door and", "1, 2, 3, 4,", "def main():\n    ")
"""The next tokens after these show whether the weights are the same."""
SAME_WEIGHTS = 0.02
"""Log-probabilities of one model seldom differ more from request to request, by rounding. Beyond it, nothing that was
stored is used."""
OTHER_WEIGHTS = 0.1  # beyond this it is another model: rounding in 16 bits does not reach it


class ChangedError(UnavailableError):
    """The server has another model than before."""


@dataclass(frozen=True)
class ModelServer:
    """A model behind a server and how it is read."""

    client: Client
    model: str  # the served name
    facts: Mapping[str, Any]  # the server's metadata of the model
    batch: int
    tokens: ServerTokens | None  # None where the server does not tokenize
    scoring: Scoring
    evidence: np.ndarray  # log-probabilities of next tokens after a few texts

    @classmethod
    def of(cls, client: Client) -> ModelServer:
        """Ask a server what it offers."""
        model, facts = served_model(client)
        completions, evidence = _first_readings(client, model)
        tokens = ServerTokens.detect(client, model)
        scoring: Scoring | None = (
            EchoScoring.detect(completions)
            or (tokens and ForcedScoring.detect(completions, tokens))
            or LikeliestScoring.detect(completions)
        )
        if scoring is None:
            raise CcrankError(
                f"{client.address.base}/completions gives no log-probabilities, neither of prompts (echo) nor of next "
                "tokens, and ccrank reads nothing else of a server; use vLLM, SGLang or llama.cpp's server, or load "
                "the model itself: --model with a hub id, a folder or a .gguf file"
            )
        return cls(client, model, facts, completions.batch, tokens, scoring, evidence)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text without special tokens; a guess where the server does not tokenize."""
        if self.tokens is None:
            return guess_token_counts(texts)
        return list(map(len, self.tokens.encode_all(texts, special=False)))

    @property
    def window(self) -> int | None:
        """The maximal input length in tokens, if the server says it."""
        stated = self.facts.get("max_model_len") or self.facts.get("meta", {}).get("n_ctx")
        return stated if isinstance(stated, int) and stated > 0 else None

    @property
    def weights(self) -> dict[str, Any]:
        """The model's name and what the server says of its weights, however it was started."""
        known = self.facts.get("meta", {})
        return {
            "served_name": self.model,
            "path": self.facts.get("root"),
            "parameters": known.get("n_params"),
            "bytes": known.get("size"),
        }

    def change_since(self, weights: Mapping[str, Any], evidence: Sequence[float] | np.ndarray) -> str:
        """How the model differs from an earlier one, in words; empty if it is the same."""
        named = [
            f"{key} was {weights.get(key)!r}, is {value!r}"
            for key, value in self.weights.items()
            if weights.get(key) != value
        ]
        earlier = np.asarray(evidence, np.float32)
        if named or earlier.shape != self.evidence.shape:
            return "; ".join(named) or f"it lists other tokens after the same {len(TEXTS)} texts"
        apart = float(np.abs(earlier - self.evidence).max(initial=0.0))
        if apart < OTHER_WEIGHTS:
            return ""
        return f"log-probabilities after the same {len(TEXTS)} texts differ by up to {apart:.2f}"

    def check(self) -> None:
        """Ask the server whether it has the same model still; another one raises an error."""
        model, facts = served_model(self.client)
        _, evidence = _first_readings(self.client, model)
        if change := replace(self, model=model, facts=facts, evidence=evidence).change_since(
            self.weights, self.evidence
        ):
            raise ChangedError(
                f"the model at {self.client.address.base} has changed while it was read: {change}; start again, with "
                "one model behind this address from the beginning to the end"
            )

    def identity(self, cache: ReadingCache | None) -> str:
        """A digest of the address, the model's name, what the server says of it, and what it answers.

        A server may have other weights tomorrow under the same name. So log-probabilities of a few texts are stored,
        and if they are others than before, so is the identity.
        """
        stable = {name: value for name, value in self.facts.items() if name not in VOLATILE}
        about = [self.client.address.base, self.model, stable, self.scoring.name]
        named = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=24)
        evidence = self.evidence
        if cache is not None:
            earlier = cache.get([named.digest()]).get(named.digest())
            alike = earlier is not None and earlier.shape == evidence.shape
            if earlier is not None and alike and np.abs(earlier - evidence).max() < SAME_WEIGHTS:
                evidence = earlier
            else:
                cache.put({named.digest(): evidence})
        named.update(evidence.tobytes())
        return named.hexdigest()


def served_model(client: Client) -> tuple[str, Mapping[str, Any]]:
    """The served name of the model, and its metadata."""
    wanted = client.address.model
    try:
        facts = models(client.get("/models"))
    except RefusedError as error:
        if error.status != 404 or wanted is None:
            raise
        return wanted, {}  # some gateways have no such list
    names = client.hidden(shortened(", ".join(model["id"] for model in facts), 1000)) or "none"
    if wanted is None:
        if len(facts) != 1:
            raise UnavailableError(
                f"{client.address.base} has {len(facts)} models: {names}; add one of them to the address, as #NAME"
            )
        return facts[0]["id"], facts[0]
    for model in facts:
        if wanted in (model["id"], PurePosixPath(model["id"]).name, *model["aliases"]):
            return model["id"], model
    raise UnavailableError(f"{client.address.base} has no model {wanted!r}; it has {names}")


def _first_readings(client: Client, model: str) -> tuple[Completions, np.ndarray]:
    """The model with as many prompts in a request as it takes, and its top log-probabilities, highest first."""
    wish = {"max_tokens": 1, "logprobs": 5}
    completions = Completions(client, model, BATCH)
    try:
        answers = completions.ask(TEXTS, **wish)
    except LASTING_ERRORS:
        raise
    except CcrankError:
        completions = Completions(client, model)
        answers = [completions.ask([text], **wish)[0] for text in TEXTS]
    read = [next(iter(positions(answer)), None) for answer in answers]
    tops = [sorted((position.top.values() if position else ()), reverse=True)[:5] for position in read]
    return completions, np.array([value for top in tops for value in top], np.float32)
