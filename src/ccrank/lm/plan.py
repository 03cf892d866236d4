"""From encoded prompts to what a model must be asked: sequences and points, each once, and how answers are scored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ccrank.lm.answers import answer_tree
from ccrank.lm.encode import Encoded
from ccrank.lm.engine import Found, Point
from ccrank.prompts import Form


class Plan:
    """The sequences and points that a chunk of prompts needs, each once."""

    def __init__(self, form: Form, mask: int | None) -> None:
        self.form, self.mask = form, mask
        self.sequences: list[Any] = []
        self.points: list[Point] = []
        self.naive_tokens = 0
        self._places: dict[Any, int] = {}
        self._points: dict[Point, int] = {}

    def add(
        self, one: Encoded, *, states: bool, items: bool, log_probabilities: bool
    ) -> tuple[Callable[[Found], np.ndarray], int, int]:
        """Plan one prompt; returns its scorer and the points of its slot's and its item's states."""
        slot = item = -1
        self.naive_tokens += len(one.tokens) + len(one.decoder)
        if states:
            slot = self._point(self._input(one), one.slot, states=True)
        if items:
            assert one.item is not None
            item = self._point(self._input(one), one.item, states=True, encoder=bool(one.decoder))
        score = self._masked_answers if self.form == "masked" else self._spoken_answers
        return score(one, log_probabilities), slot, item

    def _spoken_answers(self, one: Encoded, log_probabilities: bool) -> Callable[[Found], np.ndarray]:
        """Answers that a decoder says token by token behind the slot."""
        tree = answer_tree(one.answers)
        steps = {
            prefix: self._point(
                self._input(one, prefix),
                one.slot + len(prefix),
                words=words,
                normaliser=bool(prefix) or log_probabilities,
            )
            for prefix, words in tree.steps.items()
        }
        self.naive_tokens += sum(len(answer) - 1 for answer in one.answers)
        if not one.answers:
            return lambda found: np.zeros(0, np.float32)
        if set(steps) == {()} and not log_probabilities:
            return lambda found: found.words[steps[()]]
        return lambda found: tree.scores(
            {prefix: found.words[index] for prefix, index in steps.items()},
            {prefix: float(found.normalisers[index]) for prefix, index in steps.items()},
            log_probabilities,
        )

    def _masked_answers(self, one: Encoded, log_probabilities: bool) -> Callable[[Found], np.ndarray]:
        """Answers of k tokens fill k masks; as soon as one has several, all are scored by log-probability."""
        if not one.answers:
            return lambda found: np.zeros(0, np.float32)
        lengths = sorted(set(map(len, one.answers)))
        plain = lengths == [1] and not log_probabilities
        words: dict[tuple[int, int], list[int]] = {}
        for answer in one.answers:
            for place, word in enumerate(answer):
                column = words.setdefault((len(answer), place), [])
                if word not in column:
                    column.append(word)
        points = {}
        for length in lengths:
            assert self.mask is not None
            tokens = (*one.tokens[: one.slot], *[self.mask] * length, *one.tokens[one.slot + 1 :])
            self.naive_tokens += len(tokens) if length > 1 else 0
            for place in range(length):
                asked = tuple(words[length, place])
                points[length, place] = self._point(
                    tokens, one.slot + place, words=asked, normaliser=not plain
                )

        def score(found: Found) -> np.ndarray:
            scores = []
            for answer in one.answers:
                total = 0.0
                for place, word in enumerate(answer):
                    index = points[len(answer), place]
                    total += (
                        found.words[index][words[len(answer), place].index(word)] - found.normalisers[index]
                    )
                scores.append(total)
            return np.asarray(scores, np.float32)

        return score

    def _input(self, one: Encoded, said: tuple[int, ...] = ()) -> Any:
        if self.form == "encoder_decoder":
            return one.tokens, (*one.decoder, *said)
        return (*one.tokens, *said)

    def _point(self, sequence: Any, position: int, **wishes: Any) -> int:
        place = self._places.setdefault(sequence, len(self.sequences))
        if place == len(self.sequences):
            self.sequences.append(sequence)
        point = Point(place, position, **wishes)
        index = self._points.setdefault(point, len(self.points))
        if index == len(self.points):
            self.points.append(point)
        return index
