"""Labels as arrays: what each label says about the latent scores of one or two items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.special import ndtri

BROAD_PICK = 0.1
"""A best or worst pick says that an item is in the top or bottom tenth, or in a smaller share if more items of a long
list could be picked: people who pick the best do not compare all others with it."""


@dataclass(frozen=True)
class Observations:
    """M observations of latent scores f of N items.

    Row r is about g_r = f[first] − f[second], where −1 stands for 0. A value says g_r + its list's level + noise =
    target, two items that are about equal say g_r + noise = 0, any other row says g_r + noise > target.
    """

    first: np.ndarray
    """(M,) item, or −1."""
    second: np.ndarray
    """(M,) item, or −1."""
    target: np.ndarray
    """(M,)"""
    is_value: np.ndarray
    """(M,) whether the row is a value or about equal items, so that its noise is normal."""
    lists: np.ndarray
    """(M,) the number of the list that a row belongs to; values of one list share an unknown level."""
    noises: np.ndarray
    """(M,) the variance of each row's noise, in units of a value's: a comparison has that of two items, more if its
    annotator is trusted less."""
    people: np.ndarray
    """(M,) the number of the annotator that a row is from; 0 is nobody in particular."""

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def items(self) -> np.ndarray:
        """(n,) the labelled items, ascending."""
        both = np.concatenate([self.first, self.second])
        return np.unique(both[both >= 0])

    @cached_property
    def contrast(self) -> np.ndarray:
        """(M, n) with g = contrast @ f[items]."""
        table = np.zeros((len(self), len(self.items)))
        for column, sign in ((self.first, 1.0), (self.second, -1.0)):
            rows = np.flatnonzero(column >= 0)
            np.add.at(table, (rows, np.searchsorted(self.items, column[rows])), sign)
        return table

    @property
    def is_pair(self) -> np.ndarray:
        """(M,) whether a row compares two items."""
        return np.asarray(~self.is_value & (self.first >= 0) & (self.second >= 0))

    @property
    def distrust(self) -> np.ndarray:
        """(M,) how much noisier each row is than usual, because of who it is from."""
        return np.asarray(self.noises / np.where((self.first >= 0) & (self.second >= 0), 2.0, 1.0))

    @property
    def is_graded(self) -> np.ndarray:
        """(M,) whether a row is the value of one item."""
        return np.asarray(self.is_value & (self.second < 0))

    @cached_property
    def level(self) -> np.ndarray:
        """(M, M) covariance of the lists' unknown levels, of unit variance: 1 between values of one list."""
        same = self.lists[:, None] == self.lists[None]
        return np.asarray((same & np.outer(self.is_graded, self.is_graded)).astype(float))

    def sample(self, count: int) -> Observations:
        """An even sample of `count` rows, or all if there are fewer."""
        if len(self) <= count:
            return self
        return self.rows(np.unique(np.linspace(0, len(self) - 1, count).round().astype(int)))

    def rows(self, keep: np.ndarray) -> Observations:
        """Some of the rows, with the targets that they have."""
        return Observations(*(getattr(self, column.name)[keep] for column in fields(self)))


def observe(
    values: Sequence[tuple[int, float]] = (),
    pairs: Sequence[tuple[int, int]] = (),
    best: Sequence[int] = (),
    worst: Sequence[int] = (),
    count: int = 0,
    equal: Sequence[tuple[int, int]] = (),
) -> Observations:
    """Labels of one list as observations."""
    targets = normal_scores(np.array([value for _, value in values], dtype=float))
    rows: list[tuple[int, int, float, bool, float]] = [
        (item, -1, float(target), True, 1.0) for (item, _), target in zip(values, targets, strict=True)
    ]
    rows += [(high, low, 0.0, False, 2.0) for high, low in pairs]
    rows += [(item, -1, _edge(len(best), count), False, 1.0) for item in best]
    rows += [(-1, item, _edge(len(worst), count), False, 1.0) for item in worst]
    rows += [(high, low, 0.0, False, 2.0) for high in best for low in worst if high != low]
    rows += [(first, second, 0.0, True, 2.0) for first, second in equal]
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 5
    first, second, target, is_value, noises = columns
    nothing = np.zeros(len(rows), int)
    pair = (first.astype(int), second.astype(int))
    return Observations(*pair, target.astype(float), is_value.astype(bool), nothing, noises, nothing)


def join(parts: Sequence[Observations], starts: Sequence[int]) -> Observations:
    """The observations of several lists as one, in which the lists' items follow each other."""

    def moved(column: np.ndarray, start: int) -> np.ndarray:
        return np.where(column >= 0, column + start, -1)

    whole = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(Observations)
    }
    whole |= {
        name: np.concatenate(
            [moved(getattr(part, name), start) for part, start in zip(parts, starts, strict=True)]
        )
        for name in ("first", "second")
    }
    return Observations(**whole | {"lists": np.repeat(np.arange(len(parts)), [len(part) for part in parts])})


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Values as standard normal quantiles of their mid-ranks, scaled to unit variance; 0 if all are equal.

    >>> normal_scores(np.array([1.0, 7.0, 7.0, 1000.0])).round(2).tolist()
    [-1.41, 0.0, 0.0, 1.41]
    """
    if len(values) == 0:
        return np.zeros(0)
    from scipy.stats import rankdata  # half a second, which ranking without labels does not need

    scores = ndtri((rankdata(values) - 0.5) / len(values))
    deviation = scores.std()
    return np.asarray(scores / deviation if deviation > 0 else scores)


def _edge(picked: int, count: int) -> float:
    """The standard normal quantile above which a picked item is."""
    return float(-ndtri(min(0.5, max(BROAD_PICK, picked / max(count, 1)))))
