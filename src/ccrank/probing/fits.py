"""Fitting probes to tasks' states: one for each task, or one for a pool of tasks."""

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
    """Trained probes: one a task, or one a training set, for each seed."""

    method: str
    seeds: tuple[int, ...]
    weights: Tensor
    """(fits, seeds, d)"""
    bias: Tensor
    """(fits, seeds)"""
    shape: Tensor
    """(fits, seeds, 2): α and β of ordreg's bias terms; 1 for other methods."""
    loss: Tensor
    """(fits, seeds): final training loss, for an unsupervised method free of labels."""

    def scores(
        self, states: Sequence[Any], owner: Sequence[int] | np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Scores of each task's items by the task's fit, or by fit `owner[t]`: T arrays (seeds, N).

        For pair methods these are the predictions ½(f(x⁺) + 1 − f(x⁻)) of the ordered pairs: (seeds, N(N − 1)).
        """
        if owner is None:
            owner = range(len(states))
        if len(owner) != len(states) or max(owner, default=-1) >= len(self.weights):
            raise CcrankError(
                f"{len(states)} tasks need one of the {len(self.weights)} fits each; got owner={list(owner)[:9]}"
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
        """Of each fit the seed with the lowest loss: best of k without a label. One seed remains."""
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
        """The artefact of one fit and one seed (by position), which Z-scores within each task that it is given."""
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
    """A probe of its own for each task and seed: the paper's main setting.

    states: an array (N, d) a task; for pair methods (N(N − 1), 2, d), rows in the order of `ordered_pairs(N)`, "Yes"
    before "No". gold: values (N,) a task, higher = more; supervised methods alone look at them. Several layers of a
    task are several entries.

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
    """A probe for each training set of tasks and seed; the loss is the mean over the set's tasks.

    train_sets (F, T) marks the tasks of each set; without it one set has them all. States are Z-scored within each
    task. Score held-out tasks with `Fits.scores(states, owner)`.
    """
    seeds, settings = _checked(seeds), settings or Settings()
    sets = np.ones((1, len(states)), dtype=bool) if train_sets is None else np.asarray(train_sets, dtype=bool)
    batch = pack_pool(states, method, gold, sets, device=torch.device(device), dtype=dtype)
    found = train(batch, method, seeds, settings)
    return Fits(method, seeds, found.weights[0], found.bias[0], found.shape[0], found.loss[0])


def points_of_pairs(predictions: np.ndarray, count: int) -> np.ndarray:
    """Items' scores from predictions that the first of each ordered pair is above. (..., N(N − 1)) -> (..., N).

    A pair gives its winner a point; ties in points go by the sum of predictions for the item, scaled below 1.
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
        raise CcrankError(f"seeds are one or more whole numbers from 0 up, got {list(seeds)}")
    return tuple(int(seed) for seed in seeds)
