"""What a server offers: its models, and the way in which it gives log-probabilities."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from ccrank.errors import CcrankError, UnavailableError
from ccrank.lm.cache import ReadingCache
from ccrank.remote.client import Client, RefusedError
from ccrank.remote.completions import choices, positions
from ccrank.remote.echo import EchoScoring
from ccrank.remote.forced import ForcedScoring
from ccrank.remote.likeliest import LikeliestScoring
from ccrank.remote.scoring import Scoring
from ccrank.remote.tokens import Counting, GuessedTokens, ServerTokens

BATCH = 16
"""Prompts in a request, where the server takes several."""
VOLATILE = ("created", "modified_at", "permission")
"""What servers say of a model that changes from start to start."""
TEXTS = ("The capital of France is", "She opened the door and", "1, 2, 3, 4,", "def main():\n    ")
"""The next tokens after these show whether the weights are the same."""
SAME_WEIGHTS = 0.02
"""Log-probabilities of one model seldom differ more from request to request, by rounding. Beyond it, nothing that was
stored is used."""
OTHER_WEIGHTS = 0.1
"""Rounding in 16 bits does not reach it. Beyond it, it is another model."""


class ChangedError(UnavailableError):
    """The server has another model than before."""


@dataclass(frozen=True)
class Server:
    """A model behind a server and how it is read."""

    client: Client
    model: str
    """The name that the server takes."""
    facts: Mapping[str, Any]
    """What the server says of the model."""
    batch: int
    tokens: Counting
    scoring: Scoring
    evidence: np.ndarray
    """Log-probabilities of next tokens after a few texts."""

    @classmethod
    def of(cls, client: Client) -> Server:
        """Ask a server what it offers.

        Parameters
        ----------
        client
            The server.
        """
        model, facts = served_model(client)
        batch, evidence = _first_readings(client, model)
        tokens = ServerTokens.found(client, model)
        scoring: Scoring | None = EchoScoring.found(client, model, batch)
        if scoring is None and tokens is not None:
            scoring = ForcedScoring.found(client, model, tokens, batch)
        if scoring is None:
            scoring = LikeliestScoring.found(client, model, batch)
        if scoring is None:
            raise CcrankError(
                f"{client.address.base}/completions gives no log-probabilities, neither of prompts (echo) nor of next "
                "tokens, and ccrank reads nothing else of a server; use vLLM, SGLang or llama.cpp's server, or load "
                "the model itself: --model with a hub id, a folder or a .gguf file"
            )
        return cls(client, model, facts, batch, tokens or GuessedTokens(), scoring, evidence)

    @property
    def window(self) -> int | None:
        """The maximal input length in tokens, if the server says it."""
        meta = self.facts.get("meta")
        found = self.facts.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
        return found if isinstance(found, int) and found > 0 else None

    @property
    def weights(self) -> dict[str, Any]:
        """The model's name and what the server says of its weights, however it was started."""
        meta = self.facts.get("meta")
        known = meta if isinstance(meta, dict) else {}
        return {
            "served_name": self.model,
            "path": self.facts.get("root"),
            "parameters": known.get("n_params"),
            "bytes": known.get("size"),
        }

    def change_since(self, weights: Mapping[str, Any], evidence: Sequence[float] | np.ndarray) -> str:
        """How the model differs from an earlier one, in words; empty if it is the same.

        Parameters
        ----------
        weights
            The earlier `weights`.
        evidence
            The earlier `evidence`.
        """
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
        # In a thread, so that the work of this one can be stopped meanwhile.
        [(_, (model, facts, evidence))] = self.client.each(_now, [self.client])
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

        Parameters
        ----------
        cache
            Where they are stored.
        """
        stable = {name: value for name, value in self.facts.items() if name not in VOLATILE}
        about = [self.client.address.base, self.model, stable, self.scoring.name]
        named = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=24)
        evidence = self.evidence
        if cache is not None:
            earlier = cache.get([named.digest()]).get(named.digest())
            same = earlier is not None and earlier.shape == evidence.shape
            if earlier is not None and same and np.abs(earlier - evidence).max() < SAME_WEIGHTS:
                evidence = earlier
            else:
                cache.put({named.digest(): evidence})
        named.update(evidence.tobytes())
        return named.hexdigest()


def _now(client: Client) -> tuple[str, Mapping[str, Any], np.ndarray]:
    """The name of a server's model, what it says of it, and log-probabilities."""
    model, facts = served_model(client)
    return model, facts, _first_readings(client, model)[1]


def served_model(client: Client) -> tuple[str, Mapping[str, Any]]:
    """The name of the model as the server takes it, and what it says of it.

    Parameters
    ----------
    client
        The server; its address may name the model.
    """
    wanted = client.address.model
    try:
        reply = client.get("/models")
    except RefusedError as error:
        if error.status != 404 or wanted is None:
            raise
        return wanted, {}  # some gateways have no such list
    listed = reply.get("data") if isinstance(reply, dict) else None
    facts = [one for one in listed or () if isinstance(one, dict) and isinstance(one.get("id"), str)]
    names = ", ".join(one["id"] for one in facts) or "none"
    if wanted is None:
        if len(facts) != 1:
            raise UnavailableError(
                f"{client.address.base} has {len(facts)} models: {names}; add one of them to the address, as #NAME"
            )
        return facts[0]["id"], facts[0]
    for one in facts:
        if wanted in (one["id"], PurePosixPath(one["id"]).name, *(one.get("aliases") or ())):
            return one["id"], one
    raise UnavailableError(f"{client.address.base} has no model {wanted!r}; it has {names}")


def _first_readings(client: Client, model: str) -> tuple[int, np.ndarray]:
    """How many prompts a request may have, and log-probabilities of the most likely next tokens, highest first."""
    asked = {"model": model, "max_tokens": 1, "temperature": 0, "logprobs": 5}
    try:
        found = choices(client.post("/completions", {**asked, "prompt": list(TEXTS)}), len(TEXTS))
        batch = BATCH
    except CcrankError as error:
        if isinstance(error, RefusedError) and error.concerns_address:
            raise
        found = [choices(client.post("/completions", {**asked, "prompt": text}), 1)[0] for text in TEXTS]
        batch = 1
    read = [next(iter(positions(choice)), None) for choice in found]
    tops = [sorted((one.top.values() if one else ()), reverse=True)[:5] for one in read]
    return batch, np.array([value for top in tops for value in top], np.float32)
