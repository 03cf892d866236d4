"""A few labels: what is known about some items of a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ccrank.errors import CcrankError
from ccrank.task import is_finite_number, normal_form
from ccrank.text import quoted

FORMS = (
    "labels map items to values, such as {'Russia': 17.1, 'Chad': 1.3}, list orders such as [('Russia', 'Chad')], "
    "highest first, or have the keys best, worst, ranks or orders"
)

Row = tuple[str, str, str]
"""(kind, item, value) as a table of mixed labels has it."""


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
        """Labels as given in Python.

        Parameters
        ----------
        value
            item → number, where the keys `best` and `worst` may hold items, `ranks` item → rank (1 = highest) and
            `orders` lists of items, highest first; or a list of such orders or mappings.
        """
        if isinstance(value, Labels):
            return value
        if isinstance(value, Mapping):
            return cls._of_mapping(value)
        if isinstance(value, Iterable) and not isinstance(value, str):
            found = cls()
            for one in value:
                if isinstance(one, str) or not isinstance(one, (Mapping, Sequence)):
                    raise CcrankError(f"{FORMS}; got {one!r:.60}")
                found += cls._of_mapping(one) if isinstance(one, Mapping) else cls.of_order(one)
            return found
        raise CcrankError(f"{FORMS}; got {value!r:.60}")

    @classmethod
    def _of_mapping(cls, given: Mapping[Any, Any]) -> Labels:
        found = cls()
        for key, value in given.items():
            if key in ("best", "worst") and isinstance(value, (str, list, tuple)):
                items = [value] if isinstance(value, str) else value
                names = tuple(_name(item) for item in items)
                found += cls(best=names) if key == "best" else cls(worst=names)
            elif key == "ranks" and isinstance(value, Mapping):
                found += cls(tuple((_name(item), -_number(item, rank)) for item, rank in value.items()))
            elif key == "orders" and isinstance(value, (list, tuple)):
                found += cls.parse(value)
            else:
                found += cls(((_name(key), _number(key, value)),))
        return found

    @classmethod
    def of_order(cls, chain: Sequence[str]) -> Labels:
        """An order of two or more items, highest first: each is above the next.

        Parameters
        ----------
        chain
            The items.
        """
        names = [_name(item) for item in chain]
        if len(names) < 2:
            raise CcrankError(f"an order needs at least 2 items, highest first, got {names}")
        pairs = tuple(pairwise(names))
        for high, low in pairs:
            if high == low:
                raise CcrankError(f"an order has {high!r} above itself; drop one of the two")
        return cls(pairs=pairs)

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Labels:
        """Labels from the rows of a table of mixed labels.

        Parameters
        ----------
        rows
            (kind, item, value): value, grade or rank with a number, pair with the lower item, best or worst.
        """
        found = cls()
        for kind, item, value in rows:
            if kind in ("value", "grade"):
                found += cls.parse({item: _parsed(item, value)})
            elif kind == "rank":
                found += cls.parse({"ranks": {item: _parsed(item, value)}})
            elif kind == "pair":
                found += cls.of_order((item, value))
            elif kind in ("best", "worst"):
                found += cls.parse({kind: item})
            else:
                raise CcrankError(f"a label's kind is value, rank, pair, best or worst, not {kind!r}")
        return found

    @property
    def rows(self) -> list[Row]:
        """The rows of a table of mixed labels, of which `of_rows` makes these labels again."""
        return [
            *(("value", item, repr(value)) for item, value in self.values),
            *(("pair", high, low) for high, low in self.pairs),
            *(("best", item, "") for item in self.best),
            *(("worst", item, "") for item in self.worst),
        ]

    def __add__(self, other: Labels) -> Labels:
        return Labels(
            self.values + other.values,
            self.pairs + other.pairs,
            self.best + other.best,
            self.worst + other.worst,
        )

    def __len__(self) -> int:
        return len(self.values) + len(self.pairs) + len(self.best) + len(self.worst)

    @property
    def items(self) -> tuple[str, ...]:
        """The labelled items, in normal form."""
        named = [item for item, _ in self.values] + [item for pair in self.pairs for item in pair]
        return tuple(dict.fromkeys([*named, *self.best, *self.worst]))

    def check(self, items: Sequence[str]) -> None:
        """Refuse labels of what is not among the items.

        Parameters
        ----------
        items
            The items of the list.
        """
        self.check_known({normal_form(item) for item in items})

    def check_known(self, known: Set[str]) -> None:
        """Refuse labels of what is not among the items.

        Parameters
        ----------
        known
            The items of the list, in normal form.
        """
        for item in self.items:
            if item not in known:
                raise CcrankError(
                    f"labels contain {item!r}, which is not one of the items; correct its spelling or remove it"
                )


def _name(item: object) -> str:
    if not isinstance(item, str) or not item.strip():
        raise CcrankError(f"labels must refer to items by their texts, got {item!r}")
    return normal_form(item)


def _parsed(item: str, number: str) -> float:
    try:
        return float(number.strip())
    except ValueError:
        raise CcrankError(f"the value of {normal_form(item)!r} is not a number: {number.strip()!r}") from None


def _number(item: object, value: Any) -> float:
    if not is_finite_number(value):
        raise CcrankError(f"labels: the value of {item!r} is not a finite number: {quoted(value)}")
    return float(value)
