"""A few labels: what a user knows about some items of a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from typing import Any, Literal

from ccrank.errors import CcrankError
from ccrank.task import is_finite_number, normal_form
from ccrank.util.text import quoted

FORMS = (
    "labels map items to values, such as {'Russia': 17.1, 'Chad': 1.3}, list orders such as [('Russia', 'Chad')], "
    "highest first, or have the keys best, worst, ranks, orders, equal, unknown, moves or annotators"
)

LabelRow = tuple[str, str, str] | tuple[str, str, str, str]
"""(kind, item, value) or (kind, item, value, annotator): a row of a table of mixed labels."""
KINDS = "value, rank, pair, equal, unknown, above, below, best or worst"
ONE_VALUE = "one value alone says nothing about the order: give a second one, or a pair such as A > B"
Side = Literal["above", "below"]


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
    equal: tuple[tuple[str, str], ...] = ()
    """Items that are about equal."""
    unknown: tuple[tuple[str, str], ...] = ()
    """Questions that could not be answered: two items, or one and an empty text; they are not asked again."""
    moves: tuple[tuple[str, Side, str], ...] = ()
    """(item, side, other): items that were put directly above or below others in the order that was shown, in turn."""
    annotators: tuple[tuple[str, Labels], ...] = ()
    """The labels of people who are named; those above are of nobody in particular."""

    @classmethod
    def parse(cls, value: object) -> Labels:
        """Labels as given in Python."""
        if isinstance(value, Labels):
            return value
        if isinstance(value, Mapping):
            return cls.joined(cls._of_key(key, entry) for key, entry in value.items())
        if isinstance(value, Iterable) and not isinstance(value, str):
            return cls.joined(map(cls._of_entry, value))
        raise CcrankError(f"{FORMS}; got {quoted(value)}")

    @classmethod
    def joined(cls, parts: Iterable[Labels]) -> Labels:
        """All labels of some parts, in linear time."""
        every = list(parts)
        people: dict[str, list[Labels]] = {}
        for name, labels in chain.from_iterable(part.annotators for part in every):
            people.setdefault(name, []).append(labels)
        kinds: dict[str, Any] = {
            field.name: tuple(chain.from_iterable(getattr(part, field.name) for part in every))
            for field in fields(cls)
        }
        kinds["annotators"] = tuple((name, cls.joined(labels)) for name, labels in people.items())
        return cls(**kinds)

    @classmethod
    def _of_entry(cls, entry: object) -> Labels:
        if isinstance(entry, str) or not isinstance(entry, (Mapping, Sequence)):
            raise CcrankError(f"{FORMS}; got {quoted(entry)}")
        return cls.parse(entry) if isinstance(entry, Mapping) else cls.of_order(entry)

    @classmethod
    def _of_key(cls, key: Any, value: Any) -> Labels:
        if key in ("best", "worst") and isinstance(value, (str, list, tuple)):
            names = tuple(map(_name, [value] if isinstance(value, str) else value))
            return cls(best=names) if key == "best" else cls(worst=names)
        if key == "ranks" and isinstance(value, Mapping):
            return cls(tuple((_name(item), -_number(item, rank)) for item, rank in value.items()))
        if key == "orders" and isinstance(value, (list, tuple)):
            return cls.parse(value)
        if key in ("equal", "unknown", "moves") and isinstance(value, (list, tuple)):
            return cls.joined(cls._of_list(key, entry) for entry in value)
        if key == "annotators" and isinstance(value, Mapping):
            people = tuple((_name(name), cls.parse(labels)) for name, labels in value.items())
            if any(labels.annotators for _, labels in people):
                raise CcrankError(
                    "labels: the labels of an annotator have annotators themselves; name each once"
                )
            return cls(annotators=people)
        return cls(((_name(key), _number(key, value)),))

    @classmethod
    def _of_list(cls, key: str, entry: Any) -> Labels:
        """An entry of `equal`, `unknown` or `moves`."""
        form = "(item, 'above' or 'below', other)" if key == "moves" else "(item, other)"
        if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != form.count(",") + 1:
            raise CcrankError(f"labels: an entry of {key!r} is {form}, got {quoted(entry)}")
        first, *sides, last = entry
        if sides and sides[0] not in ("above", "below"):
            raise CcrankError(f"labels: an item is moved above or below another, not {quoted(sides[0])}")
        first, last = _name(first), "" if key == "unknown" and last == "" else _name(last)
        if first == last:
            raise CcrankError(f"labels: {key!r} has {quoted(first)} twice; drop one of the two")
        labels: dict[str, Any] = {key: ((first, *sides, last),)}
        return cls(**labels)

    @classmethod
    def of_order(cls, chain: Sequence[str]) -> Labels:
        """An order of two or more items, highest first: each is above the next."""
        names = [_name(item) for item in chain]
        if len(names) < 2:
            raise CcrankError(f"an order needs at least 2 items, highest first, got {quoted(names)}")
        for high, low in pairwise(names):
            if high == low:
                raise CcrankError(f"an order has {quoted(high)} above itself; drop one of the two")
        return cls(pairs=tuple(pairwise(names)))

    @classmethod
    def of_rows(cls, rows: Iterable[LabelRow]) -> Labels:
        """Labels from the rows of a table of mixed labels."""
        every = list(rows)
        for row in every:
            if not isinstance(row, (list, tuple)) or len(row) not in (3, 4):
                raise CcrankError(
                    f"a row of labels is (kind, item, value) or has an annotator too, got {quoted(row)}"
                )
        return cls.joined(cls._of_row(*row) for row in every)

    @classmethod
    def _of_row(cls, kind: str, item: str, value: str, annotator: str = "") -> Labels:
        if annotator.strip():
            return cls(annotators=((normal_form(annotator), cls._of_row(kind, item, value)),))
        if kind in ("value", "grade"):
            return cls.parse({item: _parsed(item, value)})
        if kind == "rank":
            return cls.parse({"ranks": {item: _parsed(item, value)}})
        if kind == "pair":
            return cls.of_order((item, value))
        if kind in ("equal", "unknown"):
            return cls._of_list(kind, (item, value))
        if kind in ("above", "below"):
            return cls._of_list("moves", (item, kind, value))
        if kind in ("best", "worst"):
            return cls.parse({kind: item})
        raise CcrankError(f"a label's kind is {KINDS}, not {quoted(kind)}")

    @property
    def rows(self) -> list[LabelRow]:
        """The rows of a table of mixed labels, the inverse of `of_rows`."""
        return [
            *(("value", item, repr(value)) for item, value in self.values),
            *(("pair", high, low) for high, low in self.pairs),
            *(("best", item, "") for item in self.best),
            *(("worst", item, "") for item in self.worst),
            *(("equal", *both) for both in self.equal),
            *(("unknown", *both) for both in self.unknown),
            *((side, item, other) for item, side, other in self.moves),
            *((*row[:3], name) for name, labels in self.annotators for row in labels.rows),
        ]

    def __add__(self, other: Labels) -> Labels:
        return Labels.joined((self, other))

    @property
    def orders(self) -> tuple[tuple[str, str], ...]:
        """(higher, lower) of all pairs, moves among them, once each; annotators' own pairs not."""
        moved = ((item, other) if side == "above" else (other, item) for item, side, other in self.moves)
        return tuple(dict.fromkeys((*self.pairs, *moved)))

    @property
    def parts(self) -> tuple[tuple[str, Labels], ...]:
        """(annotator, labels) of everyone; first the labels of nobody in particular, with an empty name."""
        return (("", replace(self, annotators=())), *self.annotators)

    @property
    def everyone(self) -> Labels:
        """All labels as if nobody was named."""
        return Labels.joined(part for _, part in self.parts)

    def without_moves(self) -> Labels:
        """All other labels."""
        return replace(
            self,
            moves=(),
            annotators=tuple((name, labels.without_moves()) for name, labels in self.annotators),
        )

    @property
    def observations(self) -> int:
        """The number of rows of a fit: repeated pairs and picks count once, every best pick is above every worst."""
        best, worst = len(set(self.best)), len(set(self.worst))
        own = len(self.values) + len(self.orders) + len(self.equal) + best + worst + best * worst
        return own + sum(labels.observations for _, labels in self.annotators)

    def __len__(self) -> int:
        """The number of labels; questions that could not be answered are none."""
        own = (self.values, self.pairs, self.best, self.worst, self.equal, self.moves)
        return sum(map(len, own)) + sum(len(labels) for _, labels in self.annotators)

    @property
    def teaches_nothing(self) -> bool:
        """Whether all that is said is the value of one item, which is compared with no other."""
        return len(self) == len(self.everyone.values) == 1

    @property
    def items(self) -> tuple[str, ...]:
        """The labelled items, in normal form."""
        named = [item for item, _ in self.values] + [item for pair in self.orders for item in pair]
        named += [item for pair in (*self.equal, *self.unknown) for item in pair if item]
        named += [item for _, labels in self.annotators for item in labels.items]
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
