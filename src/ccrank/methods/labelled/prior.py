"""The prior of items' scores: a kernel over their states, and the settings among which the evidence chooses. Sums run
over layers, so that states are never copied as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log

import numpy as np

from ccrank.util.cancellation import check
from ccrank.util.zscores import FLOAT32_ROUNDING

MAX_SETTINGS = 8
"""The number of settings that are kept in a fit, by posterior probability."""
DRAWS = 128
GROUPS = ("slot, middle", "slot, late", "item, middle", "item, late")
"""Where states are read, and in which half of the layers that are read."""

MIXES: dict[str, tuple[float, ...]] = {
    "all": (0.25, 0.25, 0.25, 0.25),
    "slot": (0.5, 0.5, 0.0, 0.0),
    "item": (0.0, 0.0, 0.5, 0.5),
    "middle": (0.5, 0.0, 0.5, 0.0),
    "late": (0.0, 0.5, 0.0, 0.5),
}
"""The weights of the groups that the evidence chooses among."""

States = tuple[np.ndarray, np.ndarray]
"""(N, L, d) at the slot and at the item's last token, of one list."""


@dataclass(frozen=True)
class Products:
    """The kernel of each group of states, as far as a fit needs it."""

    kernels: np.ndarray
    """(G, N, n) between all items and some."""
    columns: np.ndarray
    """(n,) the latter, ascending."""
    variances: np.ndarray
    """(G, N) its diagonal: the prior variances."""
    functions: np.ndarray
    """(G, N, T) draws Xw with w ~ N(0, I), whose covariance is the kernel."""

    def at(self, items: np.ndarray) -> Products:
        """The same with the columns of `items` only, ascending."""
        if len(items) == len(self.columns):
            return self
        columns = np.searchsorted(self.columns, items)
        return Products(self.kernels[:, :, columns], items, self.variances, self.functions)


@dataclass(frozen=True)
class Kernel:
    """Z-scored states of one or more lists, each list standardised by itself."""

    lists: Sequence[States]

    @property
    def count(self) -> int:
        """The number of items of all lists together."""
        return sum(len(slot) for slot, _ in self.lists)

    def layers(self) -> Iterator[tuple[int, np.ndarray]]:
        """(group, X) with X (N, d) such that Σ X Xᵀ over a group's layers has a mean diagonal of 1."""
        depth, width = self.lists[0][0].shape[1:]
        for position in range(2):
            for layer in range(depth):
                tables = [standardised(states[position][:, layer]) for states in self.lists]
                table = tables[0] if len(tables) == 1 else np.concatenate(tables)
                table /= np.float32(layer_sizes(depth, width)[layer])
                yield 2 * position + (layer >= first_late(depth)), table

    def products(
        self, others: np.ndarray, directions: int = DRAWS, seed: int | np.random.Generator = 0
    ) -> Products:
        """What a fit needs of the states, in one pass over them; others (n,)."""
        rng = np.random.default_rng(seed)
        kernels = np.zeros((len(GROUPS), self.count, len(others)), np.float32)
        variances = np.zeros((len(GROUPS), self.count), np.float32)
        draws = np.zeros((len(GROUPS), self.count, directions), np.float32)
        for group, table in self.layers():
            check()
            weights = rng.standard_normal((table.shape[1], directions), np.float32)
            both = table @ np.concatenate([table[others].T, weights], axis=1)
            kernels[group] += both[:, : len(others)]
            draws[group] += both[:, len(others) :]
            variances[group] += np.einsum("nd,nd->n", table, table)
        return Products(kernels, others, variances, draws)


def first_late(depth: int) -> int:
    """The first layer of the late half."""
    return max(1, depth // 2)


def layer_sizes(depth: int, width: int) -> np.ndarray:
    """(L,) the square root of the number of features of each layer's group, by which a kernel divides its states."""
    counts = [first_late(depth), depth - first_late(depth)]
    return np.asarray(np.sqrt(width * np.repeat(counts, counts).astype(float)))


def standardised(states: np.ndarray) -> np.ndarray:
    """Z-scores of each dimension within a list, in float32. (N, d) -> (N, d)"""
    table = np.array(states, np.float32)  # the only copy: there may be many items
    largest = np.maximum(table.max(axis=0), -table.min(axis=0))
    table -= table.mean(axis=0)
    deviation = np.sqrt(np.einsum("nd,nd->d", table, table) / len(table))
    varies = deviation > FLOAT32_ROUNDING * largest
    table *= np.divide(1, deviation, where=varies, out=np.zeros_like(deviation))
    return table


LABEL_NOISE = 0.1
"""The share of the residual variance that is noise of the labels; the rest is what is particular to an item. Only the
sum matters for items without labels."""

PRIOR_WEIGHTS: dict[float, float] = {0.0: 0.2, 0.25: 0.25, 0.5: 0.3, 0.7: 0.2, 0.85: 0.05}
"""β → probability. β is the correlation of the label-free score with the truth."""
WRITTEN_PRIOR_WEIGHTS: dict[float, float] = {0.0: 0.05, 0.25: 0.2, 0.5: 0.4, 0.7: 0.25, 0.85: 0.1}
"""The same where exemplars were written for the criterion: such a score is rarely wrong altogether, so a few labels
should not overrule it."""
KERNEL_SHARES: dict[float, float] = {0.02: 0.1, 0.1: 0.2, 0.2: 0.2, 0.35: 0.2, 0.5: 0.2, 0.7: 0.1}
"""s → probability. s is the share of the variance that the states explain beyond the label-free score."""
MIX_PRIOR = {"all": 0.5, "slot": 0.125, "item": 0.125, "middle": 0.125, "late": 0.125}
MIN_RESIDUAL = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """Hyper-parameters of the prior f ~ N(βa, s K + (1 − q) e I), y = f + N(0, q e); β² + s + e = 1, so that the
    variance of y is 1, like the variance of normal scores."""

    prior_weight: float
    """β"""
    kernel_share: float
    """s"""
    mix: str
    """Which weights of the groups of states: K = Σ_g mix_g K_g."""
    log_prior: float = 0.0

    @property
    def residual(self) -> float:
        """e"""
        return 1 - self.kernel_share - self.prior_weight**2

    @property
    def particular(self) -> float:
        """(1 − q) e: the variance of what is particular to an item."""
        return (1 - LABEL_NOISE) * self.residual

    @property
    def noise(self) -> float:
        """q e: the variance of the noise of a label."""
        return LABEL_NOISE * self.residual

    @property
    def groups(self) -> np.ndarray:
        """(G,) weights of the groups of states."""
        return np.array(MIXES[self.mix])


@cache
def grid(written: bool = False, undecided: bool = False) -> tuple[Setting, ...]:
    """All settings, with their prior probabilities. `undecided`: all weights of the label-free score are equally
    probable, so that the first answers about pairs settle β."""
    weights = WRITTEN_PRIOR_WEIGHTS if written else PRIOR_WEIGHTS
    if undecided:
        weights = dict.fromkeys(weights, 1 / len(weights))
    settings = (
        Setting(beta, share, mix, log(p_beta) + log(p_share) + log(MIX_PRIOR[mix]))
        for mix in MIXES
        for beta, p_beta in weights.items()
        for share, p_share in KERNEL_SHARES.items()
    )
    return tuple(setting for setting in settings if setting.residual >= MIN_RESIDUAL)
