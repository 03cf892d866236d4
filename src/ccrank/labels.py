"""A few labels: which of some items are known to be higher than which others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ccrank.errors import CcrankError
from ccrank.task import normal_form


@dataclass(frozen=True, slots=True)
class Labels:
    """The known order of some items.

    >>> Labels.of_chains([["Russia", "Chad"], ["Chad", "Monaco"]]).pairs
    (('Russia', 'Chad'), ('Chad', 'Monaco'), ('Russia', 'Monaco'))
    """

    pairs: tuple[tuple[str, str], ...]
    """(higher, lower) in normal form, with all that follows from them."""

    @classmethod
    def parse(cls, value: object) -> Labels:
        """Labels as given in Python: item → value, or orders such as [("Russia", "Chad"), …], highest first."""
        if isinstance(value, Labels):
            return value
        if isinstance(value, Mapping):
            return cls.of_values(value)
        if isinstance(value, Sequence) and not isinstance(value, str):
            chains = [one for one in value if isinstance(one, Sequence) and not isinstance(one, str)]
            if len(chains) == len(value):
                return cls.of_chains(chains)
        raise CcrankError(
            f"labels map items to values, such as {{'Russia': 17.1, 'Chad': 1.3}}, or list pairs (higher, lower); "
            f"got {value!r:.60}"
        )

    @classmethod
    def of_values(cls, values: Mapping[str, object]) -> Labels:
        """Labels from values: more = higher, without ties."""
        numbers: dict[str, float] = {}
        for item, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise CcrankError(f"labels: the value of {item!r} is not a finite number: {value!r}")
            _check_text(item)
            if normal_form(item) in numbers:
                raise CcrankError(f"{item!r} is labelled twice")
            numbers[normal_form(item)] = float(value)
        ordered = sorted(numbers, key=lambda item: -numbers[item])
        for first, second in pairwise(ordered):
            if numbers[first] == numbers[second]:
                raise CcrankError(
                    f"labels have a tie: {first!r} and {second!r} are both {numbers[first]:g}; drop one of the two"
                )
        return cls.of_chains([ordered])

    @classmethod
    def of_chains(cls, chains: Iterable[Sequence[str]]) -> Labels:
        """Orders of two or more items each, highest first."""
        pairs: dict[tuple[str, str], None] = {}
        items: dict[str, None] = {}
        for chain in chains:
            for item in chain:
                _check_text(item)
            names = [normal_form(item) for item in chain]
            items |= dict.fromkeys(names)
            pairs |= dict.fromkeys(pairwise(names))
        if len(items) < 2 or not pairs:
            raise CcrankError(
                f"labels need at least 2 labelled items in one order, got {len(items)}: {list(items)}"
            )
        return cls(_closed(list(pairs)))

    @property
    def items(self) -> tuple[str, ...]:
        """The labelled items, in normal form."""
        return tuple(dict.fromkeys(item for pair in self.pairs for item in pair))

    def check(self, items: Sequence[str]) -> None:
        """Raise an error for labels of unknown items."""
        known = {normal_form(item) for item in items}
        for item in self.items:
            if item not in known:
                raise CcrankError(
                    f"labels contain {item!r}, which is not one of the items; correct its spelling or remove it"
                )

    def places(self, items: Sequence[str]) -> list[tuple[int, int]]:
        """The pairs as places among the items."""
        self.check(items)
        place = {normal_form(item): index for index, item in enumerate(items)}
        return [(place[high], place[low]) for high, low in self.pairs]


def _check_text(item: object) -> None:
    if not isinstance(item, str) or not item.strip():
        raise CcrankError(f"labels must refer to items by their texts, got {item!r}")


def _closed(pairs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The pairs and all that follow by transitivity; a cycle is an error."""
    below: dict[str, list[str]] = {}
    for high, low in pairs:
        below.setdefault(high, []).append(low)
    closed: dict[tuple[str, str], None] = dict.fromkeys(pairs)
    for start in below:
        # The path by which each item was first reached, to report cycles.
        way: dict[str, list[str]] = {start: [start]}
        queue = [start]
        while queue:
            item = queue.pop(0)
            for lower in below.get(item, ()):
                if lower == start:
                    raise CcrankError(
                        f"labels form a cycle: {' > '.join([*way[item], start])}; drop one of these"
                    )
                if lower not in way:
                    way[lower] = [*way[item], lower]
                    queue.append(lower)
                    closed.setdefault((start, lower))
    return tuple(closed)
