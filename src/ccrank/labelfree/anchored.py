"""From states to label-free anchors: a probe across tasks of one criterion, or one list's own items as the pool.

Pure functions on arrays.
"""

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

NEIGHBOURS = 0.5
"""How much an item's neighbours count beside its own anchor, in a list that stands alone."""
LEAST_NEIGHBOURS = 8
"""Shorter lists have no neighbours to speak of."""


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


def with_neighbours(states: np.ndarray, anchor: np.ndarray, ridge: float = 3.0) -> np.ndarray:
    """The anchor of one list, pulled towards what its other items say: a + ½ σ(a) · mean over layers of z(â).

    â_i = wᵀx_i with w = argmin Σ_{j≠i} (wᵀx_j − a_j)² + ridge · d · |w|², the states x Z-scored within the list. Items
    that the model holds alike lend each other their anchors, so that noise in one of them is evened out.
    states (N, L, d), anchor (N,) -> (N,)
    """
    if len(anchor) < LEAST_NEIGHBOURS:
        return anchor
    target = standard(anchor)
    lent = [
        standard(_left_out(_normal(states[:, layer].astype(float)), target, ridge * states.shape[2]))
        for layer in range(states.shape[1])
    ]
    return np.asarray(anchor + NEIGHBOURS * anchor.std() * np.mean(lent, axis=0))


def _left_out(rows: np.ndarray, target: np.ndarray, penalty: float) -> np.ndarray:
    """Ridge predictions of each row by a fit on all others: y_i − (y_i − ŷ_i)/(1 − h_i), h the diagonal of the hat."""
    count, width = rows.shape
    if count <= width:
        gram = rows @ rows.T
        hat = np.linalg.solve(gram + penalty * np.eye(count), gram)
        fitted, share = hat.T @ target, np.diag(hat)
    else:
        inverse = np.linalg.inv(rows.T @ rows + penalty * np.eye(width))
        fitted = rows @ (inverse @ (rows.T @ target))
        share = np.sum(rows @ inverse * rows, axis=1)
    return np.asarray(target - (target - fitted) / (1 - share))


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
