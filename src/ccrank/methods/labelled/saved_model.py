"""What labels say about any item: the posterior of a fit as a function of the item's states and label-free score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.labelled.fit import Fitted
from ccrank.methods.labelled.prior import Kernel, States, first_late, layer_sizes
from ccrank.ranking import ItemScores
from ccrank.util.zscores import FLOAT32_ROUNDING, Units

MAX_ITEMS = 500
"""Items on whose states the label-free score is regressed."""
RESIDUAL = 0.5
"""The variance of what the states do not explain of it, beside a kernel of unit variance."""
MAX_TABLE_BYTES = 32 << 20
"""Of the states of labelled items, from which deviations are computed; of more items, new ones have no deviation."""


@dataclass(frozen=True)
class Spread:
    """What the deviations of new items are computed from, for each of H settings of the fit."""

    tables: np.ndarray
    """(n, 2, L, d) scaled states of the labelled items, at the slot and at the item."""
    groups: np.ndarray
    """(H, 4) s · mix: the weight of each group of states in the covariance."""
    inner: np.ndarray
    """(H, n, n) what the observations take off it."""
    duals: np.ndarray
    """(H, n)"""
    settings: np.ndarray
    """(H, 3) posterior probability, weight of the label-free score, variance particular to an item."""


@dataclass(frozen=True)
class LabelModel:
    """A new item's posterior mean: β · (its label-free score) + a linear function of its states; and its deviation."""

    weights: np.ndarray
    """(2, L, d) at the slot and at the item."""
    states: Units
    """The constants of the states, (2, L, d)."""
    prior: Units
    """The constants of the label-free score."""
    prior_weight: float
    """β; 0 where the label-free score is regressed on the states."""
    spread: Spread | None = None

    def __post_init__(self) -> None:
        if self.weights.ndim != 3 or self.weights.shape != self.states.mean.shape:
            raise ValueError("weights and constants of states of different shapes")
        spread = self.spread
        if spread is not None:
            count, settings = len(spread.tables), len(spread.settings)
            shapes = (spread.tables.shape[1:], spread.groups.shape, spread.inner.shape, spread.duals.shape)
            wanted = (self.weights.shape, (settings, 4), (settings, count, count), (settings, count))
            if shapes != wanted or spread.settings.shape != (settings, 3):
                raise ValueError("the constants of deviations do not fit each other")

    @classmethod
    def fit(cls, fitted: Fitted, kernel: Kernel, label_free: np.ndarray | None) -> LabelModel:
        """From a fit to labels; without the label-free scores (N,) of one list, these are regressed on the states."""
        seen, count = fitted.observations, kernel.count
        depth, width = kernel.lists[0][0].shape[1:]
        prior_weight = fitted.expected("prior_weight")
        per_setting = [seen.contrast.T @ posterior.dual for posterior in fitted.posteriors]
        shares = [setting.kernel_share * setting.groups for setting in fitted.settings]
        duals = sum(
            weight * np.outer(share, dual)
            for weight, share, dual in zip(fitted.weights, shares, per_setting, strict=True)
        )
        sample = np.unique(np.linspace(0, count - 1, min(count, MAX_ITEMS)).round().astype(int))
        anchor = np.zeros(len(sample))
        if label_free is None:
            gram = RESIDUAL * np.eye(len(sample))
            for _, table in kernel.layers():
                gram += 0.25 * table[sample].astype(float) @ table[sample].T.astype(float)
            anchor = 0.25 * prior_weight * np.linalg.solve(gram, fitted.prior[sample])
        keep = label_free is not None and len(seen.items) * 2 * depth * width * 4 <= MAX_TABLE_BYTES
        weights, tables = [], []
        for group, table in kernel.layers():
            weights.append(table[seen.items].T @ duals[group] + table[sample].T @ anchor)
            if keep:
                tables.append(table[seen.items])
        spread = None
        if keep:
            settings = [(setting.prior_weight, setting.particular) for setting in fitted.settings]
            spread = Spread(
                np.stack(tables, axis=1).reshape(-1, 2, depth, width),
                np.stack(shares),
                np.stack([seen.contrast.T @ each.inverse() @ seen.contrast for each in fitted.posteriors]),
                np.stack(per_setting),
                np.column_stack([fitted.weights, settings]),
            )
        units = [
            Units.of(np.concatenate(states).astype(float), 0, FLOAT32_ROUNDING)
            for states in zip(*kernel.lists, strict=True)
        ]
        return cls(
            np.stack(weights).reshape(2, depth, width) / layer_sizes(depth, width)[:, None],
            Units(*(np.concatenate([getattr(one, name) for one in units]) for name in ("mean", "deviation"))),
            Units.of(np.zeros(1) if label_free is None else label_free),
            0.0 if label_free is None else prior_weight,
            spread,
        )

    def __call__(self, states: States, label_free: np.ndarray) -> ItemScores:
        """(N, L, d) states at the slot and at the item, (N,) label-free scores."""
        if states[0].shape[1:] != self.weights.shape[1:]:
            raise CcrankError(
                f"the labels were fitted on states {self.weights.shape[1:]}, got {states[0].shape[1:]}; read them with "
                "the model and layers of the fit"
            )
        table = self.states(np.stack(states, axis=1).astype(float))  # (N, 2, L, d)
        prior = self.prior(label_free)
        mean = self.prior_weight * prior + np.einsum("npld,pld->n", table, self.weights)
        return ItemScores(mean, None if self.spread is None else _deviation(self.spread, table, prior, mean))


def _deviation(spread: Spread, table: np.ndarray, prior: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """(N,) as `Fitted.deviation`, for items that have no label; (N, 2, L, d) Z-scored states."""
    depth, width = table.shape[2:]
    scaled, late = table / layer_sizes(depth, width)[:, None], first_late(depth)
    groups = [np.s_[:, position, part] for position in range(2) for part in (np.s_[:late], np.s_[late:])]
    products = [np.einsum("nld,mld->nm", scaled[part], spread.tables[part], optimize=True) for part in groups]
    kernels = np.stack(products)  # (4, N, n)
    sizes = np.stack([np.square(scaled[part]).sum((1, 2)) for part in groups])  # (4, N)
    variance = np.zeros(len(table))
    for mix, inner, dual, (share, weight, particular) in zip(
        spread.groups, spread.inner, spread.duals, spread.settings, strict=True
    ):
        cross = np.tensordot(mix, kernels, 1)
        before = mix @ sizes + particular
        after = np.maximum(before - np.einsum("nm,nm->n", cross @ inner, cross), 1e-9)
        variance += share * (after + (weight * prior + cross @ dual - mean) ** 2)
    return np.asarray(np.sqrt(variance))
