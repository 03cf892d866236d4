"""An engine for single sequences and points: for those who divide and join work, such as a server's scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ccrank.lm.backbone import Backbone
from ccrank.lm.engine import EngineLike, Progress
from ccrank.lm.points import EngineOutput, Inputs, Points
from ccrank.lm.ragged import Ragged


@dataclass(frozen=True, slots=True)
class Point:
    """One position of one sequence, and the outputs requested there."""

    sequence: int
    position: int
    token_ids: tuple[int, ...] = ()
    """Token ids whose logits are requested."""
    normaliser: bool = False
    """Whether the log-normaliser over the vocabulary is requested too."""
    states: bool = False
    """Whether the hidden states of the requested layers are returned."""
    encoder: bool = False
    """Read the encoder of an encoder-decoder model, not its decoder."""


@dataclass(slots=True)
class PointOutputs:
    """What was read at P points, one by one."""

    token_logits: list[np.ndarray]
    """Per point the logits of its token ids, float32."""
    normalisers: np.ndarray
    """(P,) float32, 0 where not requested."""
    states: list[np.ndarray | None]
    """Per point (layers, width) float32, or None."""
    computed: int = 0
    """Token positions that the model computed, without padding."""


@dataclass(frozen=True)
class ListedEngine:
    """Runs an engine on lists of sequences and points. An encoder-decoder model's sequences are pairs."""

    engine: EngineLike

    @property
    def backbone(self) -> Backbone:
        """The model's layers."""
        return self.engine.backbone

    @property
    def tree(self) -> bool:
        """Whether sequences are packed as prefix trees."""
        return self.engine.tree

    @property
    def budget(self) -> int:
        """Token positions per forward pass."""
        return self.engine.budget

    def run(
        self,
        sequences: Sequence[Any],
        points: Sequence[Point],
        layers: Sequence[int],
        progress: Progress | None = None,
    ) -> PointOutputs:
        """Read every point; see `Engine.run`."""
        arrays = _points(points)
        read = self.engine.run(_inputs(sequences), arrays, layers, progress).collect()
        starts = read.logit_starts.tolist()
        return PointOutputs(
            [read.logits[start:end] for start, end in pairwise(starts)],
            read.normalisers,
            [
                read.states[read.state_row[index]] if point.states and read.states is not None else None
                for index, point in enumerate(points)
            ],
            read.computed,
        )


def as_lists(inputs: Inputs, points: Points) -> tuple[list[Any], list[Point]]:
    """The sequences and points of arrays.

    Parameters
    ----------
    inputs
        The distinct inputs.
    points
        What is read and where.
    """
    sequences: list[Any] = [tuple(row.tolist()) for row in inputs.tokens]
    if inputs.sources is not None and inputs.source_of is not None:
        sources = [tuple(row.tolist()) for row in inputs.sources]
        sequences = [
            (sources[source], own) for source, own in zip(inputs.source_of.tolist(), sequences, strict=True)
        ]
    columns = (
        points.sequence,
        points.position,
        points.asked,
        points.normaliser,
        points.states,
        points.encoder,
    )
    return sequences, [
        Point(sequence, position, points.token_sets[asked] if asked >= 0 else (), *flags)
        for sequence, position, asked, *flags in zip(*(column.tolist() for column in columns), strict=True)
    ]


def as_arrays(outputs: PointOutputs, points: Points) -> EngineOutput:
    """The outputs of points as arrays.

    Parameters
    ----------
    outputs
        What was read at each point.
    points
        Where it was read.
    """
    read = EngineOutput.empty(points)
    if outputs.token_logits:
        read.logits[:] = np.concatenate(outputs.token_logits)
    read.normalisers[:] = outputs.normalisers
    states = [one for one in outputs.states if one is not None]
    if states:
        read.store_states(np.flatnonzero(points.states), np.stack(states))
    read.computed = outputs.computed
    return read


def _inputs(sequences: Sequence[Any]) -> Inputs:
    if not sequences or not sequences[0] or not isinstance(sequences[0][0], tuple):
        return Inputs(Ragged.of(sequences))
    sources = list(dict.fromkeys(source for source, _ in sequences))
    number = {source: place for place, source in enumerate(sources)}
    source_of = np.array([number[source] for source, _ in sequences], np.int64)
    return Inputs(Ragged.of([own for _, own in sequences]), None, Ragged.of(sources), source_of)


def _points(points: Sequence[Point]) -> Points:
    sets: dict[tuple[int, ...], int] = {}
    asked = [sets.setdefault(one.token_ids, len(sets)) if one.token_ids else -1 for one in points]
    return Points(
        np.array([one.sequence for one in points], np.int64),
        np.array([one.position for one in points], np.int64),
        np.array(asked, np.int64),
        tuple(sets),
        np.array([one.normaliser for one in points], bool),
        np.array([one.states for one in points], bool),
        np.array([one.encoder for one in points], bool),
    )
