"""From tokenized prompts to distinct sequences and points to read, and a scorer for each prompt's candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ccrank.lm.answers import answer_tree
from ccrank.lm.engine import EngineOutput, Point
from ccrank.lm.prompt_tokenizer import TokenizedPrompt
from ccrank.prompts import Form


class Plan:
    """The distinct sequences and points that a chunk of prompts needs."""

    def __init__(self, form: Form, mask: int | None) -> None:
        self.form, self.mask = form, mask
        self.sequences: list[Any] = []
        self.points: list[Point] = []
        self.naive_tokens = 0
        self._places: dict[Any, int] = {}
        self._points: dict[Point, int] = {}

    def add(
        self,
        one: TokenizedPrompt,
        *,
        states: bool,
        items: bool,
        log_probabilities: bool,
        per_token: bool = False,
    ) -> tuple[Callable[[EngineOutput], np.ndarray], int, int]:
        """Add one prompt; returns its scorer and the indices of the points of its slot states and its item states."""
        slot = item = -1
        self.naive_tokens += len(one.tokens) + len(one.decoder)
        if states:
            slot = self._point(self._input(one), one.slot, states=True)
        if items:
            assert one.item is not None
            item = self._point(self._input(one), one.item, states=True, encoder=bool(one.decoder))
        score = self._masked_answers if self.form == "masked" else self._decoded_answers
        return score(one, log_probabilities, per_token), slot, item

    def _decoded_answers(
        self, one: TokenizedPrompt, log_probabilities: bool, per_token: bool
    ) -> Callable[[EngineOutput], np.ndarray]:
        """Score answers that a decoder generates token by token after the slot."""
        tree = answer_tree(one.answers)
        steps = {
            prefix: self._point(
                self._input(one, prefix),
                one.slot + len(prefix),
                token_ids=token_ids,
                normaliser=bool(prefix) or log_probabilities,
            )
            for prefix, token_ids in tree.steps.items()
        }
        self.naive_tokens += sum(len(answer) - 1 for answer in one.answers)
        if not one.answers:
            return lambda output: np.zeros(0, np.float32)
        if per_token:
            [answer] = one.answers
            places = [steps[answer[:length]] for length in range(len(answer))]
            return lambda output: _log_probabilities(output, places)
        if set(steps) == {()} and not log_probabilities:
            return lambda output: output.token_logits[steps[()]]
        return lambda output: tree.scores(
            {prefix: output.token_logits[index] for prefix, index in steps.items()},
            {prefix: float(output.normalisers[index]) for prefix, index in steps.items()},
            log_probabilities,
        )

    def _masked_answers(
        self, one: TokenizedPrompt, log_probabilities: bool, per_token: bool
    ) -> Callable[[EngineOutput], np.ndarray]:
        """Score answers of k tokens in k masks; if any answer has several tokens, all are scored by log-probability."""
        if not one.answers:
            return lambda output: np.zeros(0, np.float32)
        lengths = sorted(set(map(len, one.answers)))
        plain = lengths == [1] and not log_probabilities
        token_ids: dict[tuple[int, int], list[int]] = {}
        for answer in one.answers:
            for place, token_id in enumerate(answer):
                column = token_ids.setdefault((len(answer), place), [])
                if token_id not in column:
                    column.append(token_id)
        points = {}
        for length in lengths:
            assert self.mask is not None
            tokens = (*one.tokens[: one.slot], *[self.mask] * length, *one.tokens[one.slot + 1 :])
            self.naive_tokens += len(tokens) if length > 1 else 0
            for place in range(length):
                asked = tuple(token_ids[length, place])
                points[length, place] = self._point(
                    tokens, one.slot + place, token_ids=asked, normaliser=not plain
                )

        if per_token:
            [length] = lengths
            places = [points[length, place] for place in range(length)]
            return lambda output: _log_probabilities(output, places)

        def score(output: EngineOutput) -> np.ndarray:
            scores = []
            for answer in one.answers:
                total = 0.0
                for place, token_id in enumerate(answer):
                    index = points[len(answer), place]
                    total += (
                        output.token_logits[index][token_ids[len(answer), place].index(token_id)]
                        - output.normalisers[index]
                    )
                scores.append(total)
            return np.asarray(scores, np.float32)

        return score

    def _input(self, one: TokenizedPrompt, continuation: tuple[int, ...] = ()) -> Any:
        if self.form == "encoder_decoder":
            return one.tokens, (*one.decoder, *continuation)
        return (*one.tokens, *continuation)

    def _point(self, sequence: Any, position: int, **requested: Any) -> int:
        place = self._places.setdefault(sequence, len(self.sequences))
        if place == len(self.sequences):
            self.sequences.append(sequence)
        point = Point(place, position, **requested)
        index = self._points.setdefault(point, len(self.points))
        if index == len(self.points):
            self.points.append(point)
        return index


def _log_probabilities(output: EngineOutput, points: Sequence[int]) -> np.ndarray:
    """The log-probability of the one token that is asked for at each point."""
    return np.array([output.token_logits[index][0] - output.normalisers[index] for index in points])
