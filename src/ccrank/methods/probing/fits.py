"""Fitting probes to the states of tasks: one per task, or one for a pool of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.probing.batch import as_states, ordered_pairs, pack_each, pack_pool
from ccrank.probing.objectives import Settings, objective_of
from ccrank.probing.probe import Probe
from ccrank.probing.trainer import Parameters, train

SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Fits:
    """Trained probes: one per task, or one per training set, for each seed."""

    method: str
    seeds: tuple[int, ...]
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
        """Scores of each task's items from the task's own fit, or from fit `owner[t]`: T arrays (seeds, N).

        For pair methods these are the predictions ½(f(x⁺) + 1 − f(x⁻)) of the ordered pairs: (seeds, N(N − 1)).
        """
        if owner is None:
            owner = range(len(states))
        if len(owner) != len(states) or max(owner, default=-1) >= len(self.weights):
            raise CcrankError(
                f"owner must be one of {len(self.weights)} fits for each of {len(states)} tasks; got {list(owner)[:9]}"
            )
        results = []
        for index, (fit, task) in enumerate(zip(owner, states, strict=True)):
            rows = as_states(task, self.method, self.weights.device, self.weights.dtype, f"task {index}")
            scores = (self.weights[fit] @ rows.mT + self.bias[fit].unsqueeze(-1)).sigmoid()  # (S, M)
            if objective_of(self.method).prompt == "pair":
                scores = 0.5 * (scores[:, ::2] + 1 - scores[:, 1::2])
            results.append(scores.cpu().double().numpy())
        return results

    def best(self) -> Fits:
        """The seed with the lowest training loss of each fit, which needs no labels; one seed remains."""
        chosen = self.loss.argmin(-1)
        index = torch.arange(len(chosen), device=chosen.device)

        def pick(field: Tensor) -> Tensor:
            return field[index, chosen].unsqueeze(1)

        return replace(
            self,
            seeds=(-1,),
            weights=pick(self.weights),
            bias=pick(self.bias),
            shape=pick(self.shape),
            loss=pick(self.loss),
        )

    def probe(self, fit: int = 0, seed: int = 0, **about: Any) -> Probe:
        """The probe of one fit and one seed (by position); it Z-scores within each task."""
        notes: dict[str, Any] = {
            "method": self.method,
            "seed": self.seeds[seed],
            "loss": float(self.loss[fit, seed]),
        }
        if objective_of(self.method).ordinal:
            notes["alpha"], notes["beta"] = (float(value) for value in self.shape[fit, seed])
        return Probe(
            weights=self.weights[fit, seed].cpu().numpy(),
            bias=float(self.bias[fit, seed]),
            paired=objective_of(self.method).prompt == "pair",
            about={**notes, **about},
        )


def fit_each(
    states: Sequence[Any],
    method: str,
    *,
    gold: Sequence[Any] | None = None,
    seeds: Sequence[int] = SEEDS,
    settings: Settings | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Fits:
    """Fit one probe per task and seed: the paper's main setting.

    Parameters
    ----------
    states
        One array (N, d) per task; for pair methods (N(N − 1), 2, d), with rows in the order of `ordered_pairs(N)` and
        "Yes" before "No". Several layers of a task are separate entries.
    method
        The name of the probe, such as "triplet"; see `OBJECTIVES`.
    gold
        One array of values (N,) per task, higher = more; used by supervised methods only.
    seeds
        Seeds of the initial weights.
    settings
        Training settings; the defaults are the paper's.
    device, dtype
        Where and in which precision the probes are trained.

    Returns
    -------
    Fits
        T fits, one per task, for each seed.

    Examples
    --------
    >>> import numpy
    >>> states = [numpy.random.default_rng(0).normal(size=(n, 16)) for n in (5, 7)]
    >>> [scores.shape for scores in fit_each(states, "triplet").scores(states)]
    [(5, 5), (5, 7)]
    """
    seeds, settings = _checked(seeds), settings or Settings()
    packed = pack_each(states, method, gold, device=torch.device(device), dtype=dtype)
    members: list[int] = []
    parts: list[Parameters] = []
    for indices, batch in packed:
        members += indices
        parts.append(train(batch, method, seeds, settings))
    order = torch.as_tensor(np.argsort(members), device=parts[0].weights.device)

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(part, name).squeeze(1) for part in parts])[order]

    return Fits(method, seeds, *(joined(name) for name in ("weights", "bias", "shape", "loss")))


def fit_pool(
    states: Sequence[Any],
    method: str,
    *,
    train_sets: np.ndarray | None = None,
    gold: Sequence[Any] | None = None,
    seeds: Sequence[int] = SEEDS,
    settings: Settings | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Fits:
    """Fit one probe per training set of tasks and seed; the loss is the mean over the set's tasks.

    States are Z-scored within each task. Score held-out tasks with `Fits.scores(states, owner)`.

    Parameters
    ----------
    states
        One array per task, as for `fit_each`.
    method
        The name of the probe, such as "triplet"; see `OBJECTIVES`.
    train_sets
        (F, T) booleans that mark the tasks of each training set; None is one set with all tasks.
    gold
        One array of values (N,) per task, higher = more; used by supervised methods only.
    seeds
        Seeds of the initial weights.
    settings
        Training settings; the defaults are the paper's.
    device, dtype
        Where and in which precision the probes are trained.

    Returns
    -------
    Fits
        F fits, one per training set, for each seed.
    """
    seeds, settings = _checked(seeds), settings or Settings()
    sets = np.ones((1, len(states)), dtype=bool) if train_sets is None else np.asarray(train_sets, dtype=bool)
    batch = pack_pool(states, method, gold, sets, device=torch.device(device), dtype=dtype)
    found = train(batch, method, seeds, settings)
    return Fits(method, seeds, found.weights[0], found.bias[0], found.shape[0], found.loss[0])


def points_of_pairs(predictions: np.ndarray, count: int) -> np.ndarray:
    """Item scores from predictions that the first item of each ordered pair is higher. (..., N(N − 1)) -> (..., N).

    The winner of a pair gets a point; ties are broken by the item's sum of predictions, scaled below 1.
    """
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


def _checked(seeds: Sequence[int]) -> tuple[int, ...]:
    if len(seeds) == 0 or any(seed < 0 for seed in seeds):
        raise CcrankError(f"seeds must be one or more integers of at least 0, got {list(seeds)}")
    return tuple(int(seed) for seed in seeds)
