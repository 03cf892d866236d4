"""What is kept of a scale: notes, the items that it was fitted on, and what scores others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ccrank.confidence import Confidence
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.rankers import SignalScorer
from ccrank.methods.probing.scorer import ProbeScorer
from ccrank.methods.registry import ItemwiseScorer
from ccrank.models.remote import OpenModel, is_remote
from ccrank.prompts.templates import Template
from ccrank.ranking import Ranking
from ccrank.task import Criterion, normal_form
from ccrank.version import __version__

DIGEST_BYTES = 16


@dataclass(frozen=True)
class Notes:
    """What a scale was fitted on, and how."""

    criterion: Criterion
    context: str | None
    id: str
    """The name of the ranking."""
    method: str
    options: Mapping[str, str]
    model: str
    identity: str
    """The identity of the weights; a scale scores with no others."""
    chat: bool
    """Whether prompts were wrapped in the model's chat template."""
    directed: bool
    templates: Mapping[str, Template]
    confidence: Confidence | None
    consistency: Mapping[str, float | None]
    details: Mapping[str, Any]
    """What the method says of the list, such as its poles and what labels changed, without the text of any item."""
    warnings: tuple[str, ...]
    ccrank: str = __version__


@dataclass(frozen=True)
class Known:
    """The items that a scale was fitted on, by digests of their texts."""

    digests: np.ndarray
    """(N, 16) bytes"""
    scores: np.ndarray
    """(N,)"""
    doubts: np.ndarray | None = None
    """(3, N) deviation, best and worst rank, where they are known."""

    def __post_init__(self) -> None:
        count = len(self.scores)
        doubts = (3, count) if self.doubts is None else self.doubts.shape
        shapes = (self.digests.shape, self.scores.shape, doubts)
        if shapes != ((count, DIGEST_BYTES), (count,), (3, count)) or self.digests.dtype != np.uint8:
            raise ValueError("the known items and their scores do not fit each other")

    @classmethod
    def of(cls, ranking: Ranking) -> Known:
        """The items of a ranking."""
        digests = np.frombuffer(b"".join(map(digest, ranking.task.items)), np.uint8)
        known = cls(digests.reshape(-1, DIGEST_BYTES), np.asarray(ranking.scores, float))
        if (doubt := ranking.uncertainty) is None:
            return known
        doubts = np.stack([doubt.deviation, doubt.rank_low, doubt.rank_high]).astype(float)
        return replace(known, doubts=doubts)

    @classmethod
    def none(cls) -> Known:
        """No items."""
        return cls(np.zeros((0, DIGEST_BYTES), np.uint8), np.zeros(0))

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Digest → place."""
        return {row.tobytes(): place for place, row in enumerate(self.digests)}


@dataclass(frozen=True)
class Saved:
    """A scale as its file has it."""

    notes: Notes
    known: Known
    scorer: SignalScorer | ProbeScorer | ItemwiseScorer | None
    members: tuple[Saved, ...] = ()
    """The scales of a jury, one for each model."""
    weights: tuple[float, ...] = ()
    """The weights of the members."""

    def __post_init__(self) -> None:
        inside = any(
            one.members or not np.array_equal(one.known.digests, self.known.digests) for one in self.members
        )
        if inside or len(self.weights) != len(self.members) or min(self.weights, default=1) < 0:
            raise ValueError("the members of a jury do not fit each other")


def digest(item: str) -> bytes:
    """The digest of an item's normal form, by which it is recognised."""
    content = normal_form(item).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def identity_of(reader: OpenModel) -> str:
    """The identity of the weights, whatever the precision in which they are read."""
    identity = str(getattr(reader.loaded, "identity", reader.name))  # a stand-in for a reader has no weights
    return identity.partition("-")[0] if reader.loaded.weights else identity


def in_chat_template(reader: OpenModel) -> bool:
    """Whether prompts are wrapped in the model's chat template."""
    return bool(getattr(getattr(reader, "prompt_tokenizer", None), "chat", False))


def check_model(notes: Notes, reader: OpenModel) -> None:
    """Raise an error unless a model is the one that a scale was fitted on, read in the same form."""
    if not hasattr(reader, "loaded"):
        raise CcrankError(
            f"model is an open reader, such as `ccrank.load().reader`, and no {type(reader).__name__}"
        )
    if identity_of(reader) != notes.identity:
        raise CcrankError(
            f"the scale was fitted on the model {notes.model} (weights {notes.identity[:12]}), not on {reader.name} "
            f"({identity_of(reader)[:12]}); score with that model, or fit the scale again on this one"
        )
    if in_chat_template(reader) != notes.chat:
        given, wanted = ("with", "without") if in_chat_template(reader) else ("without", "with")
        raise CcrankError(
            f"the scale was fitted {wanted} the chat template; open the model {wanted} it, not {given}"
        )


def model_to_open(notes: Notes) -> str:
    """The name of the model, if it is opened here: a file must not decide which server gets the items and the key."""
    if any(is_remote(name.strip()) for name in notes.model.split(",")):
        raise CcrankError(
            f"the scale was fitted on {notes.model}, a model behind a server, which would get the items and the key in "
            "OPENAI_API_KEY: if you trust it, name it with --model (in Python, give Scale.load the open model)"
        )
    return notes.model


def cannot_score(method: str, item: str | None = None) -> str:
    """Why a method's scale cannot score items that it was not fitted on."""
    new = "items that it was not fitted on" if item is None else f"{item[:60]!r}, which it was not fitted on"
    return (
        f"{method} scores an item among the others of its list, so its scale cannot score {new}; use --method auto, "
        "another label-free method or a probe, or a larger --sample"
    )
