"""A probe from states to label-free anchors, fitted across tasks of one criterion: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.labelfree.combine import tied_tau
from ccrank.labelfree.routes import standard
from ccrank.probing import Probe
from ccrank.probing.crossval import task_folds
from ccrank.probing.probe import normalisation_of

OWN_ANCHOR = 0.5
"""How much a task's own anchor counts beside the probe that was fitted on the other tasks."""


@dataclass(frozen=True)
class Anchored:
    """Scores of every task by probes that have not seen it, and what it takes to score new ones."""

    scores: list[np.ndarray]
    """Per task (N,): the layers' mean plus half the anchor."""
    by_layer: list[np.ndarray]
    """Per task (L, N): each layer's held-out scores."""
    agreement: np.ndarray
    """(L,) mean τ of a layer's held-out scores with the held-out tasks' anchors: what layers are chosen by."""
    weights: np.ndarray
    """(L, d) of probes fitted on all tasks."""
    layers: tuple[int, ...]

    @property
    def best_layer(self) -> int:
        """The place, in `layers`, of the layer that agrees best with anchors it has not seen. No label is used."""
        return int(self.agreement.argmax())

    def probe(self, **about: Any) -> Probe:
        """The best layer's probe, fitted on all tasks."""
        place = self.best_layer
        notes = {"method": "anchored", "layer": self.layers[place], "agreement": float(self.agreement[place])}
        return Probe(self.weights[place], 0.0, about={**notes, **about})


def anchored_scores(
    states: Sequence[np.ndarray],
    anchors: Sequence[np.ndarray],
    layers: tuple[int, ...],
    ridge: float = 1.0,
    folds: int = 4,
) -> Anchored:
    """Ridge regression from Z-scored states to anchors, layer by layer, in folds over tasks.

    w = argmin Σ (wᵀx − a)² + ridge · M · |w|² over the M items of the training tasks. states: (N, L, d) a task,
    anchors: (N,) a task. Both are standardised within their task, so a probe learns what makes one item of a task
    higher than another, never which task is higher.
    """
    count, depth = len(states), states[0].shape[1]
    fold = task_folds(count, min(folds, count))
    targets = [standard(anchor) for anchor in anchors]
    by_layer = [np.empty((depth, len(target))) for target in targets]
    weights = np.empty((depth, states[0].shape[2]))
    for layer in range(depth):
        rows = [_normal(one[:, layer].astype(float)) for one in states]
        weights[layer] = _ridge(rows, targets, ridge)
        for number in range(fold.max() + 1):
            seen = [index for index in range(count) if fold[index] != number]
            found = _ridge([rows[index] for index in seen], [targets[index] for index in seen], ridge)
            for index in np.flatnonzero(fold == number):
                by_layer[index][layer] = standard(rows[index] @ found)
    agreement = np.array(
        [
            np.mean([tied_tau(own[layer], target) for own, target in zip(by_layer, targets, strict=True)])
            for layer in range(depth)
        ]
    )
    scores = [
        standard(own.mean(axis=0)) + OWN_ANCHOR * target
        for own, target in zip(by_layer, targets, strict=True)
    ]
    return Anchored(scores, by_layer, agreement, weights, layers)


def _normal(states: np.ndarray) -> np.ndarray:
    """Z-scores within a task, as a saved probe makes them: a feature that only rounding moves is left out. (N, d)"""
    mean, deviation = normalisation_of(states)
    return np.asarray((states - mean) / np.where(deviation > 0, deviation, 1.0) * (deviation > 0))


def _ridge(rows: Sequence[np.ndarray], targets: Sequence[np.ndarray], ridge: float) -> np.ndarray:
    table, aim = np.concatenate(rows), np.concatenate(targets)
    if len(table) < table.shape[1]:
        # Fewer items than dimensions: the dual system is the smaller one, and gives the same solution.
        gram = table @ table.T + ridge * len(table) * np.eye(len(table))
        return np.asarray(table.T @ np.linalg.solve(gram, aim))
    gram = table.T @ table + ridge * len(table) * np.eye(table.shape[1])
    return np.asarray(np.linalg.solve(gram, table.T @ aim))
