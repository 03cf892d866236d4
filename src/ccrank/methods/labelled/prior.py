"""The kernel of items: inner products of their Z-scored states, by groups of layers and positions.

States are never copied as a whole: sums run over layers, so memory grows with the items and not with their pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ccrank.standardise import FLOAT32_ROUNDING

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
        """The same with fewer columns, those of `items`, ascending."""
        place = np.searchsorted(self.columns, items)
        return Products(self.kernels[:, :, place], items, self.variances, self.functions)


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
        half = max(1, depth // 2)
        for position in range(2):
            for layer in range(depth):
                late = layer >= half
                share = half if not late else depth - half
                tables = [standardised(own[position][:, layer]) for own in self.lists]
                table = tables[0] if len(tables) == 1 else np.concatenate(tables)
                table /= np.float32(np.sqrt(width * share))
                yield 2 * position + late, table

    def products(self, others: np.ndarray, directions: int, rng: np.random.Generator) -> Products:
        """What a fit needs of the states, in one pass over them.

        Parameters
        ----------
        others
            (n,) the items of the kernel's columns, ascending.
        directions
            T, the number of functions to draw.
        rng
            Where the draws come from.
        """
        kernels = np.zeros((len(GROUPS), self.count, len(others)), np.float32)
        variances = np.zeros((len(GROUPS), self.count), np.float32)
        draws = np.zeros((len(GROUPS), self.count, directions), np.float32)
        for group, table in self.layers():
            weights = rng.standard_normal((table.shape[1], directions), np.float32)
            both = table @ np.concatenate([table[others].T, weights], axis=1)
            kernels[group] += both[:, : len(others)]
            draws[group] += both[:, len(others) :]
            variances[group] += np.einsum("nd,nd->n", table, table)
        return Products(kernels, others, variances, draws)


def standardised(states: np.ndarray) -> np.ndarray:
    """Z-scores of each dimension within a list, in float32. (N, d) -> (N, d)"""
    table = np.array(states, np.float32)  # the only copy: there may be many items
    largest = np.maximum(table.max(axis=0), -table.min(axis=0))
    table -= table.mean(axis=0)
    deviation = np.sqrt(np.einsum("nd,nd->d", table, table) / len(table))
    varies = deviation > FLOAT32_ROUNDING * largest
    table *= np.divide(1, deviation, where=varies, out=np.zeros_like(deviation))
    return table
