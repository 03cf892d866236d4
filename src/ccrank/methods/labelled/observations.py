"""Labels as arrays: what each label says about the latent scores of one or two items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import nan
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from ccrank.errors import CcrankError
from ccrank.labels import Labels
from ccrank.methods.labelled.prior import GROUPS, MAX_SETTINGS
from ccrank.models.capacity import available_memory
from ccrank.task import normal_form

BROAD_PICK = 0.1
"""A best or worst pick says that an item is in the top or bottom tenth, or in a smaller share if more items of a long
list could be picked: people who pick the best do not compare all others with it."""
MAX_OBSERVATIONS = 5000
"""Rows of a fit, whose time grows with their third power: minutes for this many."""
MATRICES = 20
"""Square matrices of the observations that a fit holds at its peak: measured 2.7 GB for 4,000 pairs."""


@dataclass(frozen=True)
class Observations:
    """M observations of latent scores f of N items: row r is about g_r = f[first] − f[second], where −1 stands for 0. A
    value says g_r + its list's level + noise = target, two items that are about equal say g_r + noise = 0, any other
    row says g_r + noise > target."""

    first: np.ndarray  # (M,) item, or −1
    second: np.ndarray  # (M,) item, or −1
    target: np.ndarray  # (M,)
    is_value: np.ndarray
    """(M,) whether the row is a value or about equal items, so that its noise is normal."""
    lists: np.ndarray
    """(M,) the number of the list that a row belongs to; values of one list share an unknown level."""
    noises: np.ndarray
    """(M,) the variance of each row's noise, in units of a value's noise: 2 for a comparison of two items, more if the
    annotator is trusted less."""
    people: np.ndarray  # (M,) the number of the annotator of a row; 0 for labels without a name
    values: np.ndarray  # (M,) values as they were given; NaN for other rows

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def items(self) -> np.ndarray:
        """(n,) the labelled items, ascending."""
        both = np.concatenate([self.first, self.second])
        return np.unique(both[both >= 0])

    @cached_property
    def contrast(self) -> Any:
        """(M, n) with g = contrast @ f[items]: sparse, since products with it would take most of the time."""
        from scipy.sparse import csr_array  # imported where it is used, since most rankings have no labels

        both = np.concatenate([self.first, self.second])
        [places] = np.nonzero(both >= 0)
        signs = np.where(places < len(self), 1.0, -1.0)
        columns = np.searchsorted(self.items, both[places])
        return csr_array((signs, (places % len(self), columns)), shape=(len(self), len(self.items)))

    @property
    def is_graded(self) -> np.ndarray:
        """(M,) whether a row is the value of one item."""
        return np.asarray(self.is_value & (self.second < 0))

    def sample(self, count: int) -> Observations:
        """An even sample of `count` rows, or all if there are fewer."""
        if len(self) <= count:
            return self
        rows = np.unique(np.linspace(0, len(self) - 1, count).round().astype(int))
        return Observations(*(getattr(self, column.name)[rows] for column in fields(self)))


def observations_of(labels: Sequence[Labels], items: Sequence[Sequence[str]]) -> Observations:
    """Labels of one or more lists, whose items follow each other; the order of the labels makes no difference."""
    check_size(sum(of_list.observations for of_list in labels), sum(map(len, items)))
    rows: list[tuple[int, int, float, bool, int, float, int, float]] = []
    start = 0
    for number, (of_list, texts) in enumerate(zip(labels, items, strict=True)):
        of_list.check(texts)
        index_of = {normal_form(item): index for index, item in enumerate(texts, start)}
        for person, (_, said) in enumerate(of_list.parts):
            best, worst = (sorted({index_of[item] for item in picks}) for picks in (said.best, said.worst))
            top, bottom = (_edge(len(picks) / len(texts)) for picks in (best, worst))
            pairs = sorted({(index_of[high], index_of[low]) for high, low in said.orders})
            pairs_of_picks = [(high, low) for high in best for low in worst if high != low]
            equal = sorted({(index_of[first], index_of[second]) for first, second in said.equal})
            values = sorted((index_of[item], value) for item, value in said.values)
            rows += [(item, -1, 0.0, True, number, 1.0, person, value) for item, value in values]
            rows += [(high, low, 0.0, False, number, 2.0, person, nan) for high, low in pairs]
            rows += [(item, -1, top, False, number, 1.0, person, nan) for item in best]
            rows += [(-1, item, bottom, False, number, 1.0, person, nan) for item in worst]
            rows += [(high, low, 0.0, False, number, 2.0, person, nan) for high, low in pairs_of_picks]
            rows += [(first, second, 0.0, True, number, 2.0, person, nan) for first, second in equal]
        start += len(texts)
    table = np.array(rows, "i8, i8, f8, ?, i8, f8, i8, f8")
    seen = Observations(*(table[column].copy() for column in table.dtype.fields or ()))
    for number in range(len(labels)):
        graded = seen.is_graded & (seen.lists == number)
        seen.target[graded] = normal_scores(seen.values[graded])
    return seen


def check_size(rows: int, items: int) -> None:
    """Raise if a fit would take too long or more memory than is free, before any is taken."""
    remedy = "give fewer labels: a few hundred say nearly as much"
    if rows > MAX_OBSERVATIONS:
        raise CcrankError(
            f"the labels make {rows:,} observations; a fit takes up to {MAX_OBSERVATIONS:,}: {remedy}"
        )
    labelled = min(2 * rows, items)
    # Square matrices of the observations, for each setting that is kept, and float32 kernels of all items.
    needed = MATRICES * 8 * rows**2 + 4 * items * labelled * (len(GROUPS) + MAX_SETTINGS)
    free = available_memory(torch.device("cpu"))
    if needed > free:
        raise CcrankError(
            f"a fit of {rows:,} labels on {items:,} items takes about {needed / 1e9:.1f} GB of memory, and "
            f"{free / 1e9:.1f} GB are free; {remedy}"
        )


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


def _edge(share: float) -> float:
    """The standard normal quantile above which an item is if this share of the list is picked."""
    return float(-ndtri(min(0.5, max(BROAD_PICK, share))))
