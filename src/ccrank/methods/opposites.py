"""The opposite of an adjective that the lexicon does not know, as the model has it.

The model continues "The opposite of zippy is …" with one of the lexicon's adjectives. Its answer is asked for in turn:
only if "The opposite of slow is …" leads back is it taken. `studies/label_free/opposites.py` measures
how often that is right.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ccrank.criteria import Propose
from ccrank.criteria.lexicon import known_adjectives
from ccrank.models import Reader
from ccrank.prompts import Piece, Prompt

SHOTS = (("tall", "short"), ("dirty", "clean"), ("generous", "stingy"), ("useful", "useless"))
"""Pairs that show the model what is asked."""
MAX_RANK_BACK = 3
"""The adjective must be among this many first answers to the opposite question."""
MIN_LOG_PROBABILITY = -2.5
"""An answer that the model finds less likely is not taken."""


def opposite_proposer(reader: Reader) -> Propose:
    """A function from an adjective to its opposite; nothing is read before it is called."""
    return lru_cache(maxsize=256)(lambda adjective: propose_opposite(adjective, reader))


def propose_opposite(adjective: str, reader: Reader) -> str | None:
    """The opposite of an adjective if the model is sure of it, else None."""
    if reader.form != "causal" or reader.loaded.missing_head:
        return None
    words = [word for word in one_token_adjectives(reader) if word != adjective]
    if not words:
        return None
    forward = _log_probabilities(adjective, words, reader)
    best = int(forward.argmax())
    if forward[best] < MIN_LOG_PROBABILITY:
        return None
    others = [word for word in words if word != words[best]]
    back = _log_probabilities(words[best], [*others, adjective], reader)
    return words[best] if (back > back[-1]).sum() < MAX_RANK_BACK else None


def one_token_adjectives(reader: Reader) -> list[str]:
    """The lexicon's adjectives that are one token to the model, so that all of them take one pass together."""
    words = sorted(known_adjectives())
    [encoded] = reader.prompt_tokenizer.encode([_prompt("it")], [words])
    return [word for word, tokens in zip(words, encoded.answers, strict=True) if len(tokens) == 1]


def _log_probabilities(adjective: str, words: list[str], reader: Reader) -> np.ndarray:
    readings = reader.read([_prompt(adjective)], words, log_probabilities=True)
    assert readings.logits is not None
    return np.asarray(readings.logits[0, : len(words)], dtype=float)


def _prompt(adjective: str) -> Prompt:
    shown = " ".join(f"The opposite of {word} is {opposite}." for word, opposite in SHOTS)
    pieces = (
        Piece(f"{shown} The opposite of "),
        Piece(adjective, "criterion"),
        Piece(" is "),
        Piece("", "slot"),
    )
    return Prompt(pieces, task="opposites")
