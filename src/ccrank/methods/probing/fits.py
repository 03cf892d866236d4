"""Fitting probes to the states of tasks: one per task, one for a pool of tasks, or with tasks or items held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import as_states, ordered_pairs, pack_each, pack_pool
from ccrank.methods.probing.objectives import ProbeSpec
from ccrank.methods.probing.probe import Probe
from ccrank.methods.probing.trainer import train


@dataclass(frozen=True, slots=True)
class Fits:
    """Trained probes: one per task, or one per training set, for each seed."""

    spec: ProbeSpec
    weights: Tensor
    """(fits, seeds, d)"""
    bias: Tensor
    """(fits, seeds)"""
    shape: Tensor
    """(fits, seeds, 2): α and β of ordreg's bias terms; 1 for other methods."""
    loss: Tensor
    """(fits, seeds): final training loss, which for unsupervised methods uses no labels."""

    def scores(
        self, states: Sequence[Any], owner: Sequence[int] | np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Scores of each task's items from the task's own fit, or from fit `owner[t]`: T arrays (seeds, N); for pair
        methods the predictions of the ordered pairs, (seeds, N(N − 1))."""
        owners = range(len(states)) if owner is None else owner
        rows = [as_states(task, self.spec, f"task {index}") for index, task in enumerate(states)]
        return [
            _predictions(self.weights[fit], self.bias[fit], of_task, self.spec)
            for fit, of_task in zip(owners, rows, strict=True)
        ]

    def probe(self, fit: int = 0, seed: int = 0, **about: Any) -> Probe:
        """The probe of one fit and one seed (by position); it Z-scores within each task."""
        notes: dict[str, Any] = {"method": self.spec.name, "seed": self.spec.seeds[seed]}
        notes["loss"] = float(self.loss[fit, seed])
        if self.spec.objective.ordinal:
            notes["alpha"], notes["beta"] = self.shape[fit, seed].tolist()
        return Probe(
            weights=self.weights[fit, seed].cpu().numpy(),
            bias=float(self.bias[fit, seed]),
            paired=self.spec.objective.paired,
            about={**notes, **about},
        )


def _predictions(weights: Tensor, bias: Tensor, rows: Tensor, spec: ProbeSpec) -> np.ndarray:
    """f(x) of items, or ½(f(x⁺) + 1 − f(x⁻)) of pairs: weights (..., S, d), rows (M, d) -> (..., S, M or M/2)."""
    scores = (weights @ rows.mT + bias.unsqueeze(-1)).sigmoid()
    if spec.objective.paired:
        scores = 0.5 * (scores[..., ::2] + 1 - scores[..., 1::2])
    return np.asarray(scores.cpu().double().numpy())


def fit_each(
    states: Sequence[Any], method: str, *, gold: Sequence[Any] | None = None, **training: Any
) -> Fits:
    """Fit one probe per task and seed: the paper's main setting. Per task states (N, d) and gold (N,), higher = more;
    `training` are the other fields of `ProbeSpec`, here and below.

    >>> import numpy
    >>> states = [numpy.random.default_rng(0).normal(size=(n, 16)) for n in (5, 7)]
    >>> [scores.shape for scores in fit_each(states, "triplet").scores(states)]
    [(5, 5), (5, 7)]
    """
    spec = ProbeSpec(method, **training)
    batches = [(members, train(batch, spec)) for members, batch in pack_each(states, spec, gold)]
    order = torch.as_tensor(np.argsort([index for members, _ in batches for index in members]))
    columns = (torch.cat(column).squeeze(1) for column in zip(*(part for _, part in batches), strict=True))
    return Fits(spec, *(column[order.to(column.device)] for column in columns))


def fit_pool(
    states: Sequence[Any],
    method: str,
    *,
    train_sets: np.ndarray | None = None,
    kept: Sequence[np.ndarray] | None = None,
    gold: Sequence[Any] | None = None,
    **training: Any,
) -> Fits:
    """Fit one probe per training set of tasks (F, T) and seed; the loss is the mean over the set's tasks.

    kept: per task (F, N), the items that a training set may contain, by default all; gold: per task (N,). Score
    held-out tasks with `Fits.scores(states, owner)`.
    """
    spec = ProbeSpec(method, **training)
    sets = np.ones((1, len(states)), dtype=bool) if train_sets is None else np.asarray(train_sets, dtype=bool)
    return Fits(spec, *(column[0] for column in train(pack_pool(states, spec, gold, sets, kept), spec)))


def points_of_pairs(predictions: np.ndarray, count: int) -> np.ndarray:
    """Item scores from predictions that the first item of each ordered pair is higher: a point for each pair won, plus
    the item's sum of predictions, scaled below 1, which breaks ties. (..., N(N − 1)) -> (..., N)"""
    pairs = ordered_pairs(count)
    if predictions.shape[-1] != len(pairs):
        raise CcrankError(
            f"{count} items have {len(pairs)} ordered pairs, got {predictions.shape[-1]} predictions"
        )
    first = np.eye(count)[pairs[:, 0]]  # (P, N)
    second = np.eye(count)[pairs[:, 1]]
    wins = (predictions > 0.5) @ first + (predictions < 0.5) @ second
    total = predictions @ first + (1 - predictions) @ second
    return np.asarray(wins + total / (2 * count))


def task_folds(tasks: int, folds: int = 4, seed: int = 0) -> np.ndarray:
    """The fold of each task, 0 … folds − 1, shuffled, with sizes that differ by at most one; of fewer tasks each is a
    fold. (T,)"""
    if min(folds, tasks) < 2:
        raise CcrankError(
            f"cross-validation needs at least 2 folds and tasks; got {folds} folds, {tasks} tasks"
        )
    return np.random.default_rng(seed).permutation(np.arange(tasks) % min(folds, tasks))


def train_sets(fold_of_task: np.ndarray) -> np.ndarray:
    """Row f marks the tasks outside fold f: (T,) -> (F, T)."""
    fold_of_task = np.asarray(fold_of_task)
    return np.asarray(np.arange(fold_of_task.max() + 1)[:, None] != fold_of_task)


def cross_validate(
    states: Sequence[Any],
    method: str,
    folds: np.ndarray | None = None,
    *,
    gold: Sequence[Any] | None = None,
    kept: Sequence[np.ndarray] | None = None,
    **options: Any,
) -> tuple[Fits, list[np.ndarray]]:
    """Probes of the k training sets, and each task's scores (seeds, N) from the probe that was not trained on the task.
    folds (T,) is the fold of each task, by default as `task_folds` draws them; for kept and options see `fit_pool`."""
    fold_of_task = task_folds(len(states)) if folds is None else folds
    fits = fit_pool(states, method, train_sets=train_sets(fold_of_task), gold=gold, kept=kept, **options)
    return fits, fits.scores(states, fold_of_task)


def leave_one_item_out(
    states: Sequence[Any], method: str, gold: Sequence[Any] | None = None, **training: Any
) -> list[np.ndarray]:
    """Scores of all items from each leave-one-out probe: T arrays (seeds, N, N), where [s, i] is trained without item
    i; for pair methods (seeds, N, N(N − 1)). Z-scores are computed over all N items: they use no labels."""
    spec = ProbeSpec(method, **training)
    results: list[np.ndarray] = [np.empty(0)] * len(states)
    for members, batch in pack_each(states, spec, gold, leave_one_out=True):
        weights, bias, *_ = train(batch, spec)
        for index, task in enumerate(members):
            rows = as_states(states[task], spec, f"task {task}")
            results[task] = _predictions(weights[index], bias[index], rows, spec).swapaxes(0, 1)
    return results


def held_out_scores(scores: np.ndarray) -> np.ndarray:
    """The position of each held-out item among the others: the share of them below it. (..., N, N) -> (..., N)."""
    held_out = np.diagonal(scores, axis1=-2, axis2=-1)[..., None]
    below = (held_out > scores).sum(-1) + 0.5 * ((held_out == scores).sum(-1) - 1)  # −1: the item itself
    return np.asarray(below / (scores.shape[-1] - 1))
