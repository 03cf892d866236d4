"""How far the labels of several people agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

from ccrank.labels import Labels

MAX_PAIRS = 100_000
"""Of one annotator's grades; an agreement needs no more."""


@dataclass(frozen=True)
class Agreement:
    """Of two annotators."""

    annotators: tuple[str, str]
    shared: int
    """Pairs of items about which both said something."""
    share: float
    """Of these, the pairs about which they said the same."""

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {"annotators": [*self.annotators], "pairs": self.shared, "agreement": round(self.share, 4)}


def agreements(labels: Labels) -> list[Agreement]:
    """The agreement of each two annotators who said something about the same pair of items."""
    said = [(name or "unnamed", dict(_orders(own))) for name, own in labels.parts]
    found = []
    for (one, own), (other, others) in combinations(said, 2):
        shared = own.keys() & others.keys()
        if shared:
            same = sum(own[pair] == others[pair] for pair in shared)
            found.append(Agreement((one, other), len(shared), same / len(shared)))
    return found


def _orders(labels: Labels) -> Iterator[tuple[tuple[str, str], int]]:
    """Pairs of items in the order of their texts: 1 if the first is higher, −1 if lower, 0 if they are about equal."""
    graded = combinations(sorted(dict(labels.values).items()), 2)
    for (first, value), (second, other) in islice(graded, MAX_PAIRS):
        yield (first, second), (value > other) - (value < other)
    for one, two in labels.equal:
        yield (min(one, two), max(one, two)), 0
    for high, low in labels.orders:
        yield (min(high, low), max(high, low)), 1 if high < low else -1
