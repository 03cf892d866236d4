"""A few labels: what a user knows about some items of a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from ccrank.errors import CcrankError
from ccrank.task import is_finite_number, normal_form
from ccrank.util.text import quoted

FORMS = (
    "labels map items to values, such as {'Russia': 17.1, 'Chad': 1.3}, list orders such as [('Russia', 'Chad')], "
    "highest first, or have the keys best, worst, ranks or orders"
)

LabelRow = tuple[str, str, str]
"""(kind, item, value): a row of a table of mixed labels."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Values, pairs and picks, mixed. Labels may contradict each other: each is one noisy observation.

    >>> Labels.parse({"Russia": 17.1, "Chad": 1.3, "best": ["Canada"]}).items
    ('Russia', 'Chad', 'Canada')
    """

    values: tuple[tuple[str, float], ...] = ()
    """(item, value), more = higher; items are in normal form here and below."""
    pairs: tuple[tuple[str, str], ...] = ()
    """(higher, lower)"""
    best: tuple[str, ...] = ()
    """Items from the top of the whole list."""
    worst: tuple[str, ...] = ()
    """Items from its bottom."""

    @classmethod
    def parse(cls, value: object) -> Labels:
        """Labels as given in Python."""
        if isinstance(value, Labels):
            return value
        if isinstance(value, Mapping):
            return cls._of_mapping(value)
        if isinstance(value, Iterable) and not isinstance(value, str):
            return cls.joined(map(cls._of_entry, value))
        raise CcrankError(f"{FORMS}; got {quoted(value)}")

    @classmethod
    def joined(cls, parts: Iterable[Labels]) -> Labels:
        """All labels of some parts, in linear time."""
        kinds = zip(*((part.values, part.pairs, part.best, part.worst) for part in parts), strict=True)
        return cls(*(tuple(chain.from_iterable(labels)) for labels in kinds))

    @classmethod
    def _of_entry(cls, entry: object) -> Labels:
        if isinstance(entry, str) or not isinstance(entry, (Mapping, Sequence)):
            raise CcrankError(f"{FORMS}; got {quoted(entry)}")
        return cls._of_mapping(entry) if isinstance(entry, Mapping) else cls.of_order(entry)

    @classmethod
    def _of_mapping(cls, given: Mapping[Any, Any]) -> Labels:
        return cls.joined(cls._of_key(key, value) for key, value in given.items())

    @classmethod
    def _of_key(cls, key: Any, value: Any) -> Labels:
        if key in ("best", "worst") and isinstance(value, (str, list, tuple)):
            items = [value] if isinstance(value, str) else value
            names = tuple(_name(item) for item in items)
            return cls(best=names) if key == "best" else cls(worst=names)
        if key == "ranks" and isinstance(value, Mapping):
            return cls(tuple((_name(item), -_number(item, rank)) for item, rank in value.items()))
        if key == "orders" and isinstance(value, (list, tuple)):
            return cls.parse(value)
        return cls(((_name(key), _number(key, value)),))

    @classmethod
    def of_order(cls, chain: Sequence[str]) -> Labels:
        """An order of two or more items, highest first: each is above the next."""
        names = [_name(item) for item in chain]
        if len(names) < 2:
            raise CcrankError(f"an order needs at least 2 items, highest first, got {quoted(names)}")
        pairs = tuple(pairwise(names))
        for high, low in pairs:
            if high == low:
                raise CcrankError(f"an order has {quoted(high)} above itself; drop one of the two")
        return cls(pairs=pairs)

    @classmethod
    def of_rows(cls, rows: Iterable[LabelRow]) -> Labels:
        """Labels from the rows of a table of mixed labels."""
        every = list(rows)
        for row in every:
            if not isinstance(row, (list, tuple)) or len(row) != 3:
                raise CcrankError(f"a row of labels is (kind, item, value), got {quoted(row)}")
        return cls.joined(cls._of_row(*row) for row in every)

    @classmethod
    def _of_row(cls, kind: str, item: str, value: str) -> Labels:
        if kind in ("value", "grade"):
            return cls.parse({item: _parsed(item, value)})
        if kind == "rank":
            return cls.parse({"ranks": {item: _parsed(item, value)}})
        if kind == "pair":
            return cls.of_order((item, value))
        if kind in ("best", "worst"):
            return cls.parse({kind: item})
        raise CcrankError(f"a label's kind is value, rank, pair, best or worst, not {quoted(kind)}")

    @property
    def rows(self) -> list[LabelRow]:
        """The rows of a table of mixed labels, the inverse of `of_rows`."""
        return [
            *(("value", item, repr(value)) for item, value in self.values),
            *(("pair", high, low) for high, low in self.pairs),
            *(("best", item, "") for item in self.best),
            *(("worst", item, "") for item in self.worst),
        ]

    def __add__(self, other: Labels) -> Labels:
        return Labels.joined((self, other))

    @property
    def observations(self) -> int:
        """The number of rows of a fit: repeated pairs and picks count once, every best pick is above every worst."""
        best, worst = len(set(self.best)), len(set(self.worst))
        return len(self.values) + len(set(self.pairs)) + best + worst + best * worst

    def __len__(self) -> int:
        return len(self.values) + len(self.pairs) + len(self.best) + len(self.worst)

    @property
    def items(self) -> tuple[str, ...]:
        """The labelled items, in normal form."""
        named = [item for item, _ in self.values] + [item for pair in self.pairs for item in pair]
        return tuple(dict.fromkeys([*named, *self.best, *self.worst]))

    def check(self, items: Sequence[str]) -> None:
        """Raise an error for a label of a text that is not an item."""
        self.check_known({normal_form(item) for item in items})

    def check_known(self, known: Set[str]) -> None:
        """As `check`, for a set of items in normal form."""
        for item in self.items:
            if item not in known:
                raise CcrankError(
                    f"labels contain {quoted(item)}, which is not one of the items; correct its spelling or remove it"
                )


def _name(item: object) -> str:
    if not isinstance(item, str) or not item.strip():
        raise CcrankError(f"labels must refer to items by their texts, got {quoted(item)}")
    return normal_form(item)


def _parsed(item: str, number: str) -> float:
    try:
        return float(number.strip())
    except ValueError:
        raise CcrankError(
            f"the value of {quoted(normal_form(item))} is not a number: {quoted(number.strip())}"
        ) from None


def _number(item: object, value: Any) -> float:
    if not is_finite_number(value):
        raise CcrankError(f"labels: the value of {quoted(item)} is not a finite number: {quoted(value)}")
    return float(value)
