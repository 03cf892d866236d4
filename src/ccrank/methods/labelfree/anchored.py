"""From states to label-free anchors: a probe across tasks of one criterion, or smoothing within a single list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.methods.labelfree.combine import Projections
from ccrank.methods.probing.fits import task_folds
from ccrank.methods.probing.probe import Probe
from ccrank.metrics.order import tau_b
from ccrank.util.cancellation import check
from ccrank.util.zscores import FLOAT32_ROUNDING, Units, z_scores

OWN_ANCHOR = 0.5
"""How much a task's own anchor counts beside the probe that was fitted on the other tasks."""

SMOOTHING = 0.5
"""The weight of the prediction from the other items beside an item's own anchor, in a single list."""
RIDGE = 3.0
"""The penalty of that prediction, relative to the width of the states."""
LEAST_SMOOTHED = 8
"""Shorter lists are not smoothed: too few items to fit on."""

Place = tuple[str, int]
"""Where states are read: at the slot or the item's last token, and of which layer."""


@dataclass(frozen=True)
class Anchored:
    """Scores of every task by probes that have not seen it, and the probes that score new tasks."""

    scores: list[np.ndarray]
    """Per task (N,): the mean of the better half of the layers at the better position, plus half the anchor."""
    by_place: list[np.ndarray]
    """Per task (P, N): each place's held-out scores."""
    agreement: np.ndarray
    """(P,) mean τ of a place's held-out scores with the held-out tasks' anchors: what places are chosen by."""
    weights: np.ndarray
    """(P, d) of probes fitted on all tasks."""
    places: tuple[Place, ...]

    @property
    def best(self) -> int:
        """The place that agrees best with held-out anchors. No label is used."""
        return int(self.agreement.argmax())

    def probe(self, **about: Any) -> Probe:
        """The best place's probe, fitted on all tasks."""
        position, layer = self.places[self.best]
        notes = {"method": "anchored", "layer": layer, "position": position}
        agreement = float(self.agreement[self.best])
        return Probe(self.weights[self.best], 0.0, about={**notes, "agreement": agreement, **about})


def anchored_scores(
    states: Sequence[np.ndarray],
    anchors: Sequence[np.ndarray],
    places: Sequence[Place],
    ridge: float = 1.0,
    folds: int = 4,
) -> Anchored:
    """Ridge regression from states, (N, P, d) a task, to anchors, (N,) a task, place by place, in folds over tasks.

    w = argmin Σ (wᵀx − a)² + ridge · M · |w|² over the M items of the training tasks. States and anchors are Z-scored
    within their task, so a probe learns what makes one item of a task higher than another. The scores are averaged over
    the better half of the layers at the better position, by how well they predict held-out anchors.
    """
    count, depth = len(states), states[0].shape[1]
    fold_of_task = task_folds(count, folds)
    targets = [z_scores(anchor) for anchor in anchors]
    by_place = [np.empty((depth, len(target))) for target in targets]
    weights = np.empty((depth, states[0].shape[2]))
    for place in range(depth):
        check()
        rows = [_states_z(task_states[:, place].astype(float)) for task_states in states]
        weights[place] = _fit_pool(rows, targets, ridge)
        for number in range(fold_of_task.max() + 1):
            seen = [index for index in range(count) if fold_of_task[index] != number]
            fold_weights = _fit_pool(
                [rows[index] for index in seen], [targets[index] for index in seen], ridge
            )
            for index in np.flatnonzero(fold_of_task == number):
                by_place[index][place] = z_scores(rows[index] @ fold_weights)
    pairs = [*zip(by_place, targets, strict=True)]
    agreement = np.array(
        [np.mean([tau_b(table[place], target) for table, target in pairs]) for place in range(depth)]
    )
    chosen = _better_half(agreement, places)
    scores = [z_scores(table[chosen].mean(axis=0)) + OWN_ANCHOR * target for table, target in pairs]
    return Anchored(scores, by_place, agreement, weights, tuple(places))


def _fit_pool(rows: Sequence[np.ndarray], targets: Sequence[np.ndarray], ridge: float) -> np.ndarray:
    table = np.concatenate(rows)
    return _ridge(table, np.concatenate(targets), ridge * len(table))


def _better_half(agreement: np.ndarray, places: Sequence[Place]) -> np.ndarray:
    """The places of the half of the layers that agrees best, at the position of the layer that agrees best of all."""
    best = places[int(agreement.argmax())][0]
    at_best = np.array([index for index, (position, _) in enumerate(places) if position == best])
    return at_best[np.argsort(-agreement[at_best], kind="stable")][: -(-len(at_best) // 2)]


def smoothed(states: np.ndarray, anchor: np.ndarray) -> np.ndarray:
    """The anchor of one list, smoothed over items with similar states: a + ½ σ(a) · mean over layers of z(â), with
    â_i = wᵀx_i, w = argmin Σ_{j≠i} (wᵀx_j − a_j)² + RIDGE · d · |w|² and states x Z-scored within the list.
    (N, L, d), (N,) -> (N,)"""
    if len(anchor) < LEAST_SMOOTHED:
        return anchor
    target = z_scores(anchor)
    predicted = [
        z_scores(_left_out(_states_z(states[:, layer].astype(float)), target, RIDGE * states.shape[2]))
        for layer in range(states.shape[1])
    ]
    return np.asarray(anchor + SMOOTHING * anchor.std() * np.mean(predicted, axis=0))


def smoothing_of(states: np.ndarray, anchor: np.ndarray) -> Projections:
    """What similar items add to the score of an item that is not in the list, as a function of its states at the item:
    weights fitted to all items, in the units of predictions of each from the others. (N, L, d), (N,)"""
    target, penalty = z_scores(anchor), RIDGE * states.shape[2]
    weights, means, deviations = [], [], []
    for layer in range(states.shape[1]):
        features = Units.of(states[:, layer].astype(float).T, rounding=FLOAT32_ROUNDING)
        mean, deviation = features.mean[:, 0], features.deviation[:, 0]
        rows = _states_z(states[:, layer].astype(float))
        left_out = Units.of(_left_out(rows, target, penalty))
        weights.append(_ridge(rows, target, penalty) / (deviation + (deviation == 0)) * (deviation > 0))
        means.append(left_out.mean + weights[-1] @ mean)
        deviations.append(left_out.deviation)
    constants = Units(np.stack(means)[None], np.stack(deviations)[None])
    return Projections(np.stack(weights)[None], (SMOOTHING * float(anchor.std()),), constants)


def _left_out(rows: np.ndarray, target: np.ndarray, penalty: float) -> np.ndarray:
    """Ridge predictions of each row by a fit on all others: y_i − (y_i − ŷ_i)/(1 − h_i), h the diagonal of the hat."""
    check()
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


def _states_z(states: np.ndarray) -> np.ndarray:
    """Z-scores of states within a task, as a saved probe computes them. (N, d) -> (N, d)"""
    return np.asarray(z_scores(states, axis=0, rounding=FLOAT32_ROUNDING))


def _ridge(rows: np.ndarray, target: np.ndarray, penalty: float) -> np.ndarray:
    """w = argmin Σ (wᵀx − a)² + penalty · |w|², by the smaller of the dual and primal systems. (N, d), (N,) -> (d,)"""
    count, width = rows.shape
    if count <= width:
        return np.asarray(rows.T @ np.linalg.solve(rows @ rows.T + penalty * np.eye(count), target))
    return np.asarray(np.linalg.solve(rows.T @ rows + penalty * np.eye(width), rows.T @ target))
