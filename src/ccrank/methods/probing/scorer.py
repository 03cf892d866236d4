"""Scoring items that a probe was not fitted on, with the normalisation of the list that it was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.probing.fits import points_of_pairs
from ccrank.methods.probing.probe import Probe
from ccrank.methods.probing.states import read_pair_states, read_single_states
from ccrank.models import ReaderLike
from ccrank.models.reading import Progress, Request
from ccrank.prompts import Form, Templates
from ccrank.ranking import ItemScores
from ccrank.task import Task


@dataclass(frozen=True)
class ProbeScorer:
    """Probes of one or more layers, and how their scores are joined."""

    template: str
    position: str
    layers: tuple[int, ...]
    probes: tuple[Probe, ...]
    weights: np.ndarray
    """(L,)"""
    offset: float

    def __post_init__(self) -> None:
        if not len(self.layers) == len(self.probes) == len(self.weights):
            raise ValueError("a probe and a weight are needed for each layer")

    @classmethod
    def fit(
        cls, probes: Sequence[Probe], states: Sequence[np.ndarray], scores: np.ndarray | None = None
    ) -> ProbeScorer:
        """With the normalisation of a list's states, and the consensus of its scores.

        Shapes: states: (N, d) for each layer, or those of pairs; scores: (L, N).
        """
        about = probes[0].about
        if not probes[0].paired:
            probes = [probe.with_fixed(own) for probe, own in zip(probes, states, strict=True)]
        weights, offset = consensus_weights(np.zeros((1, 2)) if scores is None else scores)
        return cls(
            str(about.get("template", "single")),
            str(about.get("position", "slot")),
            tuple(int(probe.about["layer"]) for probe in probes),
            tuple(probes),
            weights,
            offset,
        )

    @classmethod
    def of_pool(cls, probe: Probe, states: Sequence[np.ndarray], place: int) -> ProbeScorer:
        """A probe of several lists, (N, P, d) each: with the normalisation of all their items."""
        return cls.fit([probe], [np.concatenate([one[:, place] for one in states])])

    @property
    def whole_lists(self) -> bool:
        """Whether it compares the items of a list with each other."""
        return self.probes[0].paired

    def score(
        self, task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
    ) -> ItemScores:
        """Scores of any items; of pairs, those within the list."""
        if self.whole_lists:
            [states], [cost] = read_pair_states(
                [task], reader, templates, self.layers, self.template, progress
            )
        else:
            [states], [cost] = read_single_states(
                [task], reader, templates, self.layers, self.template, self.position, progress
            )
        if not np.isfinite(states).all():
            raise CcrankError("the model's states are not all finite numbers; try --dtype float32")
        rows = [probe(states[:, column]) for column, probe in enumerate(self.probes)]
        if self.whole_lists:
            rows = [points_of_pairs(row, len(task.items)) for row in rows]
        if len(rows) == 1:
            return ItemScores(rows[0], cost=cost)
        return ItemScores(self.weights @ np.stack(rows) + self.offset, cost=cost)

    def requests(self, task: Task, form: Form, templates: Templates) -> list[Request]:
        """The prompts that are read, to count their tokens."""
        return [
            ([templates.single(task, index, form, self.template) for index in range(len(task.items))], None)
        ]


def consensus(scores: np.ndarray) -> np.ndarray:
    """One score per item from several layers' scores: (L, N) -> (N,); see `consensus_weights`."""
    weights, offset = consensus_weights(scores)
    return np.asarray(scores[0] if len(scores) == 1 else weights @ scores + offset)


def consensus_weights(scores: np.ndarray) -> tuple[np.ndarray, float]:
    """w and b such that w · scores + b is the first principal component of several layers' scores, whose signs are
    unknown: (L, N) -> (L,), scalar. A single layer's scores are unchanged."""
    if len(scores) == 1:
        return np.ones(1), 0.0
    mean = scores.mean(axis=1, keepdims=True)
    spread = np.linalg.norm(scores - mean, axis=1, keepdims=True)
    scale = np.where(spread > 0, spread, 1.0)
    rows = (scores - mean) / scale
    left, values, components = np.linalg.svd(rows, full_matrices=False)
    # The sign of the layers' majority, so that adding a layer that agrees changes nothing.
    sign = np.sign((rows @ components[0]).sum() or 1.0)
    weights = sign * left[:, 0] / (values[0] or 1.0) / scale[:, 0]
    return weights, -float(weights @ mean[:, 0])
