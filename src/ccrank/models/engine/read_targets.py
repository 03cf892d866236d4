"""What is read and where: points of token sequences, and the outputs read there. Arrays over all points of a chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ccrank.models.engine.layout import Sorted
from ccrank.models.tokenize.ragged import Ragged, joined, ranges, starts_of


@dataclass(frozen=True, eq=False)
class Inputs:
    """S distinct inputs of a model."""

    tokens: Ragged  # the token ids; for an encoder-decoder model the decoder's
    sources: Ragged | None = None  # the distinct inputs of the encoder of an encoder-decoder model
    source_of: np.ndarray | None = None  # (S,) the encoder input of each decoder input

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ordered(self) -> Sorted:
        """The token ids in lexicographic order."""
        return Sorted(self.tokens)

    @property
    def lengths(self) -> np.ndarray:
        """(S,) the length of each input; of its longer side where it has two."""
        if self.sources is None or self.source_of is None:
            return self.tokens.lengths
        longer: np.ndarray = np.maximum(self.tokens.lengths, self.sources.lengths[self.source_of])
        return longer

    def take(self, indices: np.ndarray) -> Inputs:
        """The inputs with these indices, which ascend."""
        if len(indices) == len(self):
            return self
        if self.sources is None or self.source_of is None:
            return Inputs(self.tokens.take(indices))
        used, source_of = np.unique(self.source_of[indices], return_inverse=True)
        return Inputs(self.tokens.take(indices), self.sources.take(used), source_of)

    @staticmethod
    def joined(parts: Sequence[Inputs]) -> Inputs:
        """The inputs of several requests to one model, one request after another."""
        tokens = joined([part.tokens for part in parts])
        sources = [part.sources for part in parts if part.sources is not None]
        if not sources:
            return Inputs(tokens)
        first_source = starts_of(np.array([len(ragged) for ragged in sources]))[:-1]
        source_of = np.concatenate([part.source_of for part in parts if part.source_of is not None])
        source_of += np.repeat(first_source, [len(part) for part in parts])
        return Inputs(tokens, joined(sources), source_of)


COLUMNS = ("sequence", "position", "asked", "normaliser", "states", "encoder")  # the arrays of `Points`


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """N positions of inputs, and the outputs requested there."""

    sequence: np.ndarray  # (N,) the input
    position: np.ndarray  # (N,) the position in it
    asked: np.ndarray  # (N,) which of `token_sets` is requested; -1 for none
    token_sets: tuple[tuple[int, ...], ...]  # lists of token ids whose logits are requested
    normaliser: np.ndarray  # (N,) whether the log-normaliser over the vocabulary is requested too
    states: np.ndarray  # (N,) whether the hidden states of the requested layers are returned
    encoder: np.ndarray  # (N,) read the encoder of an encoder-decoder model, not its decoder

    @classmethod
    def at(cls, sequence: np.ndarray, position: np.ndarray) -> Points:
        """Points at which the states are requested."""
        count = len(sequence)
        no, yes = np.zeros(count, bool), np.ones(count, bool)
        return cls(np.asarray(sequence), np.asarray(position), np.full(count, -1), (), no, yes, no)

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, indices: np.ndarray, sequence: np.ndarray) -> Points:
        """The points with these indices; `sequence` is what their inputs are now."""
        chosen = {name: getattr(self, name)[indices] for name in COLUMNS[1:]}
        return replace(self, sequence=sequence, **chosen)

    @staticmethod
    def joined(parts: Sequence[Points], inputs: Sequence[int]) -> Points:
        """The points of several requests, whose numbers of inputs are `inputs`, one request after another."""
        counts = [len(part) for part in parts]
        sets = np.array([len(part.token_sets) for part in parts])
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        columns["sequence"] += np.repeat(starts_of(np.array(inputs))[:-1], counts)
        columns["asked"] += np.repeat(starts_of(sets)[:-1], counts) * (columns["asked"] >= 0)
        token_sets = tuple(token_ids for part in parts for token_ids in part.token_sets)
        return Points(**columns, token_sets=token_sets)

    @property
    def logit_starts(self) -> np.ndarray:
        """(N + 1,) where each point's logits start if those of all points are in one array."""
        sizes = np.array([len(token_ids) for token_ids in self.token_sets] + [0])
        return starts_of(sizes[self.asked])


@dataclass(slots=True, eq=False)
class EngineOutput:
    """What was read at N points."""

    logits: np.ndarray  # the logits of all points' token ids, one point after another, float32
    logit_starts: np.ndarray  # (N + 1,) where each point's logits start
    normalisers: np.ndarray  # (N,) float32, 0 where not requested
    state_row: np.ndarray  # (N,) each point's row in `states`; meaningless where no states are requested
    states: np.ndarray | None = None  # (points with states, layers, width) float32; None until one is read
    computed: int = 0  # token positions that the model computed, without padding
    # Results that are still being computed or copied; each call stores one batch.
    waiting: list[Callable[[], None]] = field(default_factory=list)
    # (N,) whether all that is requested of a point was computed; it is stored once nothing is `waiting`.
    done: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def empty(cls, points: Points) -> EngineOutput:
        """Room for the outputs of all points."""
        starts = points.logit_starts
        return cls(
            np.zeros(int(starts[-1]), np.float32),
            starts,
            np.zeros(len(points), np.float32),
            np.cumsum(points.states) - 1,
            done=np.zeros(len(points), bool),
        )

    def collect(self) -> EngineOutput:
        """Wait for all results."""
        for store in self.waiting:
            store()
        self.waiting.clear()
        return self

    def token_logits(self, points: np.ndarray) -> np.ndarray:
        """(n, k) the logits of points that request the same number k of token ids."""
        starts = self.logit_starts[points]
        count = int(self.logit_starts[points[0] + 1] - starts[0]) if len(points) else 0
        table: np.ndarray = self.logits[starts[:, None] + np.arange(count)]
        return table

    def step_logits(self, points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """(n, Σ sizes) the logits of points (s, n); points of row i request `sizes[i]` token ids."""
        within = ranges(np.zeros_like(sizes), sizes)
        table: np.ndarray = self.logits[np.repeat(self.logit_starts[points.T], sizes, axis=1) + within]
        return table

    def states_at(self, points: np.ndarray) -> np.ndarray:
        """(n, layers, width) the states of points that request them."""
        assert self.states is not None
        states: np.ndarray = self.states[self.state_row[points]]
        return states

    def store_states(self, points: np.ndarray, values: np.ndarray) -> None:
        """Set the states (n, layers, width) of these points."""
        if self.states is None:
            rows = int(self.state_row[-1]) + 1
            self.states = np.empty((rows, *values.shape[1:]), np.float32)
        self.states[self.state_row[points]] = values

    def store_part(
        self,
        points: np.ndarray,
        with_states: np.ndarray,
        read: EngineOutput,
        start: int = 0,
        layers: slice | list[int] = slice(None),
    ) -> None:
        """Copy the outputs of `read`, from its point `start` on, to these points.

        Shapes: points (n,), with_states (n,) whether each has states; `layers` are the columns of the states of `read`.
        """
        end = start + len(points)
        self.store_logits(points, read.logits[read.logit_starts[start] : read.logit_starts[end]])
        self.normalisers[points] = read.normalisers[start:end]
        if with_states.any():
            states = read.states_at(np.arange(start, end)[with_states])
            self.store_states(points[with_states], states[:, layers])
        self.done[points] = True

    def store_logits(self, points: np.ndarray, values: np.ndarray) -> None:
        """Set the logits of these points, one point after another."""
        starts = self.logit_starts[points]
        self.logits[ranges(starts, self.logit_starts[points + 1] - starts)] = values


def columns_of(token_sets: Sequence[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """The distinct token ids of several lists, and each list's columns among them."""
    ids = sorted({token_id for token_set in token_sets for token_id in token_set})
    column = {token_id: number for number, token_id in enumerate(ids)}
    return ids, [[column[token_id] for token_id in token_set] for token_set in token_sets]
