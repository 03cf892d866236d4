"""Held-out evaluation: k folds over tasks, and leave-one-out over the items of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ccrank.errors import CcrankError
from ccrank.probing.batch import as_states, pack_each
from ccrank.probing.fits import SEEDS, Fits, _checked, fit_pool
from ccrank.probing.objectives import Settings, objective_of
from ccrank.probing.trainer import train


def task_folds(tasks: int, folds: int = 4, seed: int = 0) -> np.ndarray:
    """The fold of each task, 0 … folds − 1, shuffled, with sizes that differ by at most one. (T,)."""
    if not 2 <= folds <= tasks:
        raise CcrankError(
            f"cross-validation needs at least 2 folds and a task per fold; got {folds} folds, {tasks} tasks"
        )
    return np.random.default_rng(seed).permutation(np.arange(tasks) % folds)


def train_sets(fold_of_task: np.ndarray) -> np.ndarray:
    """Row f marks the tasks outside fold f: (T,) -> (F, T)."""
    fold_of_task = np.asarray(fold_of_task)
    return np.asarray(np.arange(fold_of_task.max() + 1)[:, None] != fold_of_task)


def cross_validate(
    states: Sequence[Any],
    method: str,
    *,
    folds: int = 4,
    fold_seed: int = 0,
    gold: Sequence[Any] | None = None,
    best_of_seeds: bool = False,
    **options: Any,
) -> tuple[Fits, list[np.ndarray]]:
    """Probes of the k training sets, and each task's scores (seeds, N) from the probe that was not trained on the task.

    options are those of `fit_pool`. With `best_of_seeds` only the seed with the lowest training loss is kept.
    """
    fold_of_task = task_folds(len(states), folds, fold_seed)
    fits = fit_pool(states, method, train_sets=train_sets(fold_of_task), gold=gold, **options)
    if best_of_seeds:
        fits = fits.best()
    return fits, fits.scores(states, fold_of_task)


def leave_one_item_out(
    states: Sequence[Any],
    method: str,
    gold: Sequence[Any] | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    settings: Settings | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[np.ndarray]:
    """Scores of all items from each leave-one-out probe: T arrays (seeds, N, N), where [s, i] is trained without item
    i.

    For pair methods (seeds, N, N(N − 1)): predictions of the probe trained without the prompts that contain item i.
    Z-scores are computed over all N items: they use no labels.
    """
    seeds, settings = _checked(seeds), settings or Settings()
    results: list[np.ndarray] = [np.empty(0)] * len(states)
    where, paired = torch.device(device), objective_of(method).prompt == "pair"
    for members, batch in pack_each(states, method, gold, leave_one_out=True, device=where, dtype=dtype):
        found = train(batch, method, seeds, settings)
        for index, task in enumerate(members):
            rows = as_states(states[task], method, where, dtype, f"task {task}")
            scores = (found.weights[index] @ rows.mT + found.bias[index].unsqueeze(-1)).sigmoid()  # (N, S, M)
            if paired:
                scores = 0.5 * (scores[..., ::2] + 1 - scores[..., 1::2])
            results[task] = scores.transpose(0, 1).cpu().double().numpy()
    return results


def held_out_scores(scores: np.ndarray) -> np.ndarray:
    """The position of each held-out item among the others: the share of them below it. (..., N, N) -> (..., N)."""
    own = np.diagonal(scores, axis1=-2, axis2=-1)[..., None]
    below = (own > scores).sum(-1) + 0.5 * ((own == scores).sum(-1) - 1)  # −1: the item itself
    return np.asarray(below / (scores.shape[-1] - 1))
