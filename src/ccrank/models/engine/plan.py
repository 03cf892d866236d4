"""From prompts to distinct inputs and points to read, chunk by chunk, and back from outputs to readings.

Prompts with the same candidate tokens form a group; everything is computed for a group at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ccrank.models.answers import answer_tree
from ccrank.models.engine.read_targets import EngineOutput, Inputs, Points
from ccrank.models.reading import Cost, Progress, Readings
from ccrank.models.tokenize.ragged import Ragged, distinct_numbers, joined
from ccrank.models.tokenize.tokenized import Tails, TokenizedPrompts
from ccrank.prompts import Form, Prompt

CHUNK = 4096
"""Prompts that are tokenized and packed together: bounds memory, and is far more than a prefix tree benefits from."""


def chunk_ranges(prompts: Sequence[Prompt]) -> Iterator[tuple[int, int]]:
    """Ranges of at most `CHUNK` prompts that end where tasks do, if possible."""
    # The first of several is shorter, so that the device starts early.
    start, size = 0, CHUNK // 4 if len(prompts) > CHUNK else CHUNK
    while start < len(prompts):
        end = min(start + size, len(prompts))
        if end < len(prompts):
            task = prompts[end].task
            last_of_other = next(
                (index for index in range(end - 1, start + size // 2, -1) if prompts[index].task != task),
                None,
            )
            end = end if last_of_other is None else last_of_other + 1
        yield start, end
        start, size = end, CHUNK


def in_tokens(progress: Progress | None, total: int) -> Callable[[float], None]:
    """Turns shares of a chunk that is read, from 0 to 1, into tokens for `progress`."""
    reported = [0]

    def report(share: float) -> None:
        if progress is not None and (tokens := int(share * total) - reported[0]) > 0:
            reported[0] += tokens
            progress(tokens)

    return report


Scorer = Callable[[EngineOutput], np.ndarray]  # (prompts of a group, candidates) float32 from the outputs


@dataclass(frozen=True, slots=True)
class Wish:
    """What is requested of every prompt."""

    layers: tuple[int, ...] = ()  # the layers whose states at the slot are returned
    scores: bool = True
    items: bool = False  # also return the states at the last token of the last item
    log_probabilities: bool = False  # score candidates by log-probability
    per_token: bool = False  # log-probability of each token of a single candidate, instead of scores


class ReadingPlan:
    """The distinct inputs and points that a chunk of prompts needs; `mask` is the mask token of a masked model."""

    def __init__(self, encoded: TokenizedPrompts, form: Form, mask: int | None, wish: Wish) -> None:
        self.encoded, self.form, self.mask, self.wish = encoded, form, mask, wish
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
        if wish.layers:
            sequences = self._add(self._input_tokens(everything), everything)
            self.slot_points = self._ask(sequences, encoded.slots, states=True)
        if wish.items:
            at_encoder = encoded.decoders is not None
            given = encoded.items >= 0
            self.item_points = self._ask(
                sequences[given], encoded.items[given], states=True, encoder=at_encoder
            )
        score = self._masked_answers if form == "masked" else self._decoded_answers
        self.groups: list[tuple[np.ndarray, Tails, Scorer]] = [
            (prompts, tails, score(prompts, tails))
            for prompts, tails in zip(encoded.prompts_by_tails, encoded.tail_sets, strict=True)
            if tails
        ]
        """Prompts with the same candidates, the tokens of these, and how they are scored."""

        self.inputs, distinct_of = self._distinct_inputs()
        self.points = self._all_points(distinct_of)

    def _all_points(self, distinct_of: np.ndarray) -> Points:
        """All points, in the order in which they were requested."""
        if not self._points:
            return Points.at(distinct_of, distinct_of)
        columns = zip(*self._points, strict=True)
        sequence, position, asked, normaliser, states, encoder = map(np.concatenate, columns)
        return Points(
            distinct_of[sequence], position, asked, tuple(self._token_sets), normaliser, states, encoder
        )

    @property
    def distinct_tokens(self) -> int:
        """The tokens that must be computed at least: distinct prefixes (causal) or distinct inputs (others)."""
        inputs = self.inputs
        if self.form == "causal":
            return inputs.ordered.distinct_tokens
        # Of an encoder-decoder model's inputs the boundary between the sides counts too.
        sides = (
            inputs.lengths
            if inputs.sources is None or inputs.source_of is None
            else inputs.tokens.lengths + inputs.sources.lengths[inputs.source_of] + 1
        )
        return int(sides.sum())

    def _distinct_inputs(self) -> tuple[Inputs, np.ndarray]:
        """The distinct inputs, and which of them each input is."""
        if not self._parts:
            return Inputs(Ragged.of([])), np.zeros(0, np.int64)
        tokens = joined([part for part, _ in self._parts])
        if self.encoded.decoders is None:
            first, distinct_of = _distinct(tokens.keys())
            return Inputs(tokens.take(first)), distinct_of
        sources = self.encoded.tokens
        first_source, source_of = _distinct(sources.keys())
        prompt = np.concatenate([prompts for _, prompts in self._parts])
        pairs = [
            (source, row.tobytes()) for source, row in zip(source_of[prompt].tolist(), tokens, strict=True)
        ]
        first, distinct_of = _distinct(pairs)
        return Inputs(tokens.take(first), sources.take(first_source), source_of[prompt][first]), distinct_of

    def _input_tokens(self, prompts: np.ndarray) -> Ragged:
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
        wishes = (np.broadcast_to(column, len(sequences)) for column in (asked, normaliser, states, encoder))
        self._points.append((sequences, positions, *wishes))
        start = self._count
        self._count += len(sequences)
        return np.arange(start, self._count)

    def _token_set(self, token_ids: tuple[int, ...]) -> int:
        """The number of a list of token ids whose logits are requested."""
        return self._token_sets.setdefault(token_ids, len(self._token_sets))

    def _decoded_answers(self, prompts: np.ndarray, tails: Tails) -> Scorer:
        """Score answers that a decoder generates token by token after the slot."""
        tree, count = answer_tree(tails), len(prompts)
        prefixes = Ragged.of(tree.steps)
        asked: np.ndarray = np.array([self._token_set(token_ids) for token_ids in tree.steps.values()])
        points = self._ask(
            self._add(self._input_tokens(prompts).followed_by(prefixes), np.tile(prompts, len(prefixes))),
            (prefixes.lengths[:, None] + self.encoded.slots[prompts]).ravel(),
            np.repeat(asked, count),
            normaliser=np.repeat((prefixes.lengths > 0) | self.wish.log_probabilities, count),
        ).reshape(len(prefixes), count)
        self.naive_tokens += count * sum(len(answer) - 1 for answer in tails)
        if self.wish.per_token:  # of one answer the steps are its prefixes, the shortest first
            return _per_token(list(points))
        return lambda output: tree.scores(
            output.step_logits(points, tree.sizes), output.normalisers[points.T], self.wish.log_probabilities
        )

    def _masked_answers(self, prompts: np.ndarray, tails: Tails) -> Scorer:
        """Score answers of k tokens in k masks; if any answer has several tokens, all are scored by log-probability."""
        lengths = sorted(set(map(len, tails)))
        plain = lengths == [1] and not self.wish.log_probabilities
        token_ids: dict[tuple[int, int], list[int]] = {}
        for answer in tails:
            for index, token_id in enumerate(answer):
                column = token_ids.setdefault((len(answer), index), [])
                if token_id not in column:
                    column.append(token_id)
        points = {}
        for length in lengths:
            masked = self._with_masks(prompts, length)
            self.naive_tokens += len(masked.flat) if length > 1 else 0
            sequences = self._add(masked, prompts)
            for index in range(length):
                points[length, index] = self._ask(
                    sequences,
                    self.encoded.slots[prompts] + index,
                    self._token_set(tuple(token_ids[length, index])),
                    normaliser=not plain,
                )

        if self.wish.per_token:
            [length] = lengths
            return _per_token([points[length, index] for index in range(length)])

        def score(output: EngineOutput) -> np.ndarray:
            scores = np.zeros((len(prompts), len(tails)))
            for candidate, answer in enumerate(tails):
                for index, token_id in enumerate(answer):
                    at = points[len(answer), index]
                    column = token_ids[len(answer), index].index(token_id)
                    scores[:, candidate] += output.token_logits(at)[:, column] - output.normalisers[at]
            return scores.astype(np.float32)

        return score

    def _with_masks(self, prompts: np.ndarray, count: int) -> Ragged:
        """The prompts with `count` masks in the slot."""
        assert self.mask is not None
        tokens = self._input_tokens(prompts)
        if count == 1:
            return tokens
        masks = [self.mask] * count
        return Ragged.of(
            [
                [*row[:slot].tolist(), *masks, *row[slot + 1 :].tolist()]
                for row, slot in zip(tokens, self.encoded.slots[prompts].tolist(), strict=True)
            ]
        )


def _per_token(points: Sequence[np.ndarray]) -> Scorer:
    """The log-probability of the one token that is asked for at each of k points of n prompts: (n, k)."""
    return lambda output: np.stack(
        [output.token_logits(at)[:, 0] - output.normalisers[at] for at in points], axis=-1
    )


def _distinct(keys: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
    """The index of the first of equal keys, and for each key which of the distinct ones it is."""
    numbers: dict[object, int] = {}
    distinct_of = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    first = np.zeros(len(numbers), np.int64)
    first[distinct_of[::-1]] = np.arange(len(keys))[::-1]
    return first, distinct_of


@dataclass(slots=True, eq=False)
class Chunk:
    """Prompts that are planned and read together."""

    plan: ReadingPlan
    missing: np.ndarray  # the points that are not in the cache
    keys: list[list[bytes]] = field(default_factory=list)
    known: dict[bytes, np.ndarray] = field(default_factory=dict)

    @property
    def needed(self) -> np.ndarray:
        """The inputs of the missing points."""
        return distinct_numbers(self.plan.points.sequence[self.missing])

    @property
    def to_read(self) -> Points:
        """The missing points, with the needed inputs numbered from 0."""
        points = self.plan.points
        return points.take(self.missing, np.searchsorted(self.needed, points.sequence[self.missing]))


def readings_of(plan: ReadingPlan, output: EngineOutput) -> Readings:
    """The readings of the prompts of a plan."""
    wish, count = plan.wish, len(plan.encoded)
    cost = Cost(count, plan.naive_tokens, plan.distinct_tokens, output.computed)
    states = item_states = None
    if wish.layers:
        states = output.states_at(plan.slot_points)
    if wish.items and states is not None:
        item_states = np.full_like(states, np.nan)
        item_states[plan.encoded.items >= 0] = output.states_at(plan.item_points)
    if not wish.scores:
        return Readings(None, states, item_states, wish.layers, cost)
    scored = [(prompts, tails, scorer(output)) for prompts, tails, scorer in plan.groups]
    logits = np.full((count, max((scores.shape[1] for *_, scores in scored), default=0)), np.nan, np.float32)
    lengths = np.zeros((count, max((len(tails) for _, tails, _ in scored), default=0)), int)
    for prompts, tails, scores in scored:
        logits[prompts, : scores.shape[1]] = scores
        lengths[prompts, : len(tails)] = list(map(len, tails))
    return Readings(logits, states, item_states, wish.layers, cost, lengths)


def no_readings(wish: Wish, width: int) -> Readings:
    """The readings of no prompts; `width` is the length of a state."""
    states = np.zeros((0, len(wish.layers), width), np.float32)
    scores = np.zeros((0, 0), np.float32)
    return Readings(
        scores if wish.scores else None,
        states if wish.layers else None,
        states if wish.items else None,
        wish.layers,
        Cost(),
        scores.astype(int) if wish.scores else None,
    )
