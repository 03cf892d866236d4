"""A reader without a model: it answers with given logits, keyed by the prompt's text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

import numpy as np

from ccrank.errors import CcrankError
from ccrank.models import Cost
from ccrank.models.reading import Progress, Readings
from ccrank.prompts import Form, Prompt
from ccrank.task import Criterion, Task

Logit = Callable[[str, str], float]
"""(text of a prompt with "_" in its slot, candidate) → logit."""


class FakeReader:
    """A `ReaderLike` that has logits and no states; it keeps count of the readings and of all that was asked."""

    name = "fake"
    form: Form = "causal"
    gives_states = False
    behind_server = False
    depth = 0
    width = 0
    loaded = SimpleNamespace(missing_head=(), weights={})

    def __init__(self, logit: Logit, window: int | None = None) -> None:
        self.logit = logit
        self.window = window
        """The most words that a prompt may have."""
        self.prompt_tokenizer = self
        self.readings = 0
        self.asked: list[str] = []

    def encode(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool = False
    ) -> None:
        for prompt in prompts:
            if self.window is not None and len(prompt.text.split()) > self.window:
                raise CcrankError(f"a prompt of more than {self.window} words")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def read(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]] | None = None,
        layers: Iterable[int] | str = (),
        *,
        items: bool = False,
        log_probabilities: bool = False,
        per_token: bool = False,
        progress: Progress | None = None,
    ) -> Readings:
        assert candidates is not None, "without a model there are no states to read"
        assert not tuple(layers)
        assert not items
        assert not log_probabilities
        assert not per_token
        answers = [
            candidates if not candidates or isinstance(candidates[0], str) else candidates[index]
            for index in range(len(prompts))
        ]
        self.encode(prompts, answers)
        self.readings += 1
        self.asked += [prompt.text for prompt in prompts]
        logits = np.full((len(prompts), max(map(len, answers), default=0)), np.nan, np.float32)
        for row, prompt, words in zip(logits, prompts, answers, strict=True):
            row[: len(words)] = [self.logit(prompt.text, word) for word in words]
        tokens = sum(len(prompt.text.split()) for prompt in prompts)
        return Readings(logits, None, None, (), Cost(len(prompts), tokens, tokens, tokens))


def make_task(count: int, name: str = "size") -> Task:
    """A task of made-up items."""
    return Task(Criterion(name), tuple(f"thing {index:03d}" for index in range(count)))


def number_of(*key: object) -> int:
    """A pseudo-random number that depends on the key only."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


def random_logits(seed: int) -> Logit:
    """Normal logits; in float32 like a model's, so that a reference implementation gets the same numbers."""
    return lambda text, word: float(
        np.float32(np.random.default_rng(number_of(seed, text, word)).normal(0, 3))
    )


def logits_among(values: Sequence[float], seed: int) -> Logit:
    """Logits picked from a few values: many ties, and extremes where the values are extreme."""
    return lambda text, word: values[number_of(seed, text, word) % len(values)]
