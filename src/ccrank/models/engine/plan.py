"""From tokenized prompts to distinct inputs and points to read, and back from outputs to scores.

Prompts with the same candidate tokens form a group; everything is computed for a group at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ccrank.lm.answers import answer_tree
from ccrank.lm.points import EngineOutput, Inputs, Points
from ccrank.lm.ragged import Ragged, joined
from ccrank.lm.tokenized import Tails, TokenizedPrompts
from ccrank.lm.tree import Sorted
from ccrank.prompts import Form

Scorer = Callable[[EngineOutput], np.ndarray]
"""(prompts of a group, candidates) float32 from the outputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Prompts with the same candidate tokens."""

    prompts: np.ndarray
    """(n,) their indices."""
    tails: Tails
    """The tokens of each candidate."""
    scores: Scorer


class Plan:
    """The distinct inputs and points that a chunk of prompts needs.

    Parameters
    ----------
    encoded
        The tokenized prompts.
    form
        The form of the model.
    mask
        The mask token of a masked model.
    states
        Read the states at each prompt's slot.
    items
        Read the states at the last token of each prompt's last item.
    log_probabilities
        Score candidates by log-probability.
    per_token
        The log-probability of each token of a prompt's one candidate, instead of scores; needs log_probabilities.
    """

    def __init__(
        self,
        encoded: TokenizedPrompts,
        form: Form,
        mask: int | None,
        *,
        states: bool = False,
        items: bool = False,
        log_probabilities: bool = False,
        per_token: bool = False,
    ) -> None:
        self.encoded, self.form, self.mask, self.per_token = encoded, form, mask, per_token
        self._parts: list[tuple[Ragged, np.ndarray]] = []
        self._sequences = 0
        self._points: list[tuple[np.ndarray, ...]] = []
        self._count = 0
        self._token_sets: dict[tuple[int, ...], int] = {}
        self.naive_tokens = int(encoded.tokens.lengths.sum())
        if encoded.decoders is not None:
            self.naive_tokens += int(encoded.decoders.lengths.sum())
        everything = np.arange(len(encoded))
        self.slot_points = self.item_points = np.zeros(0, np.int64)
        if states or items:
            own = self._add(self._own_tokens(everything), everything)
        if states:
            self.slot_points = self._ask(own, encoded.slots, states=True)
        if items:
            at_encoder = encoded.decoders is not None
            self.item_points = self._ask(own, encoded.items, states=True, encoder=at_encoder)
        self.groups: list[Group] = []
        score = self._masked_answers if form == "masked" else self._decoded_answers
        for number, prompts in enumerate(encoded.prompts_by_tails):
            tails = encoded.tail_sets[number]
            self.groups.append(Group(prompts, tails, score(prompts, tails, log_probabilities)))

    @cached_property
    def inputs(self) -> Inputs:
        """The distinct inputs."""
        return self._inputs_and_places[0]

    @cached_property
    def points(self) -> Points:
        """All points, in the order in which they were requested."""
        place = self._inputs_and_places[1]
        if not self._points:
            return Points.at(np.zeros(0, np.int64), np.zeros(0, np.int64))
        columns = zip(*self._points, strict=True)
        sequence, position, asked, normaliser, states, encoder = map(np.concatenate, columns)
        return Points(place[sequence], position, asked, tuple(self._token_sets), normaliser, states, encoder)

    @property
    def distinct_tokens(self) -> int:
        """The tokens that must be computed at least: distinct prefixes (causal) or distinct inputs (others)."""
        inputs = self.inputs
        if self.form == "causal":
            return inputs.ordered.distinct_tokens if inputs.ordered is not None else 0
        # Of an encoder-decoder model's inputs the boundary between the sides counts too.
        sides = (
            inputs.lengths
            if inputs.sources is None or inputs.source_of is None
            else inputs.tokens.lengths + inputs.sources.lengths[inputs.source_of] + 1
        )
        return int(sides.sum())

    @cached_property
    def _inputs_and_places(self) -> tuple[Inputs, np.ndarray]:
        if not self._parts:
            return Inputs(Ragged.of([]), Sorted(Ragged.of([]))), np.zeros(0, np.int64)
        tokens = joined([part for part, _ in self._parts])
        if self.encoded.decoders is None:
            tokens, place, own = _distinct(tokens)
            return Inputs(tokens, Sorted(tokens, own) if self.form == "causal" else None), place
        sources, source_of, _ = _distinct(self.encoded.tokens)
        prompt = np.concatenate([prompts for _, prompts in self._parts])
        keys = [
            (source, row.tobytes()) for source, row in zip(source_of[prompt].tolist(), tokens, strict=True)
        ]
        first, place = _first_and_place(keys)
        return Inputs(tokens.take(first), None, sources, source_of[prompt][first]), place

    def _own_tokens(self, prompts: np.ndarray) -> Ragged:
        """The prompts' inputs without an answer; the decoder's for an encoder-decoder model."""
        tokens = self.encoded.tokens if self.encoded.decoders is None else self.encoded.decoders
        return tokens if len(prompts) == len(self.encoded) else tokens.take(prompts)

    def _add(self, tokens: Ragged, prompts: np.ndarray) -> np.ndarray:
        """Add inputs that belong to these prompts; returns their numbers, before equal ones are merged."""
        self._parts.append((tokens, prompts))
        start = self._sequences
        self._sequences += len(tokens)
        return np.arange(start, self._sequences)

    def _ask(
        self,
        sequences: np.ndarray,
        positions: np.ndarray,
        asked: np.ndarray | int = -1,
        normaliser: np.ndarray | bool = False,
        states: bool = False,
        encoder: bool = False,
    ) -> np.ndarray:
        """Request outputs at one position of each sequence; returns the indices of the points."""
        wishes = (np.broadcast_to(one, len(sequences)) for one in (asked, normaliser, states, encoder))
        self._points.append((sequences, positions, *wishes))
        start = self._count
        self._count += len(sequences)
        return np.arange(start, self._count)

    def _token_set(self, token_ids: tuple[int, ...]) -> int:
        """The number of a list of token ids whose logits are requested."""
        return self._token_sets.setdefault(token_ids, len(self._token_sets))

    def _decoded_answers(self, prompts: np.ndarray, tails: Tails, log_probabilities: bool) -> Scorer:
        """Score answers that a decoder generates token by token after the slot."""
        if not tails:
            return lambda output: np.zeros((len(prompts), 0), np.float32)
        tree, count = answer_tree(tails), len(prompts)
        prefixes = Ragged.of(tree.steps)
        asked: np.ndarray = np.array([self._token_set(token_ids) for token_ids in tree.steps.values()])
        points = self._ask(
            self._add(self._own_tokens(prompts).followed_by(prefixes), np.tile(prompts, len(prefixes))),
            (prefixes.lengths[:, None] + self.encoded.slots[prompts]).ravel(),
            np.repeat(asked, count),
            normaliser=np.repeat((prefixes.lengths > 0) | log_probabilities, count),
        ).reshape(len(prefixes), count)
        self.naive_tokens += count * sum(len(answer) - 1 for answer in tails)
        if self.per_token:  # of one answer the steps are its prefixes, the shortest first
            return _per_token(list(points))
        if len(points) == 1 and not log_probabilities:
            return lambda output: output.token_logits(points[0])
        return lambda output: tree.scores(
            output.step_logits(points, tree.sizes), output.normalisers[points.T], log_probabilities
        )

    def _masked_answers(self, prompts: np.ndarray, tails: Tails, log_probabilities: bool) -> Scorer:
        """Score answers of k tokens in k masks; if any answer has several tokens, all are scored by log-probability."""
        if not tails:
            return lambda output: np.zeros((len(prompts), 0), np.float32)
        lengths = sorted(set(map(len, tails)))
        plain = lengths == [1] and not log_probabilities
        token_ids: dict[tuple[int, int], list[int]] = {}
        for answer in tails:
            for place, token_id in enumerate(answer):
                column = token_ids.setdefault((len(answer), place), [])
                if token_id not in column:
                    column.append(token_id)
        points = {}
        for length in lengths:
            masked = self._with_masks(prompts, length)
            self.naive_tokens += len(masked.flat) if length > 1 else 0
            sequences = self._add(masked, prompts)
            for place in range(length):
                points[length, place] = self._ask(
                    sequences,
                    self.encoded.slots[prompts] + place,
                    self._token_set(tuple(token_ids[length, place])),
                    normaliser=not plain,
                )

        if self.per_token:
            [length] = lengths
            return _per_token([points[length, place] for place in range(length)])

        def score(output: EngineOutput) -> np.ndarray:
            scores = np.zeros((len(prompts), len(tails)))
            for index, answer in enumerate(tails):
                for place, token_id in enumerate(answer):
                    at = points[len(answer), place]
                    column = token_ids[len(answer), place].index(token_id)
                    scores[:, index] += output.token_logits(at)[:, column] - output.normalisers[at]
            return scores.astype(np.float32)

        return score

    def _with_masks(self, prompts: np.ndarray, count: int) -> Ragged:
        """The prompts with `count` masks in the slot."""
        assert self.mask is not None
        own = self._own_tokens(prompts)
        if count == 1:
            return own
        masks = [self.mask] * count
        return Ragged.of(
            [
                [*row[:slot].tolist(), *masks, *row[slot + 1 :].tolist()]
                for row, slot in zip(own, self.encoded.slots[prompts].tolist(), strict=True)
            ]
        )


def _per_token(points: Sequence[np.ndarray]) -> Scorer:
    """The log-probability of the one token that is asked for at each of k points of n prompts: (n, k)."""
    return lambda output: np.stack(
        [output.token_logits(one)[:, 0] - output.normalisers[one] for one in points], axis=-1
    )


def _distinct(tokens: Ragged) -> tuple[Ragged, np.ndarray, Sequence[bytes]]:
    """The distinct sequences, the place of each sequence among them, and the keys of the distinct ones."""
    keys = tokens.keys()
    if len(set(keys)) == len(keys):
        return tokens, np.arange(len(keys)), keys
    first, place = _first_and_place(keys)
    return tokens.take(first), place, [keys[index] for index in first.tolist()]


def _first_and_place(keys: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
    """The index of the first of equal keys, and for each key which of the distinct ones it is."""
    numbers: dict[object, int] = {}
    place = [numbers.setdefault(key, len(numbers)) for key in keys]
    places = np.array(place, np.int64)
    first = np.zeros(len(numbers), np.int64)
    first[places[::-1]] = np.arange(len(keys))[::-1]
    return first, places
