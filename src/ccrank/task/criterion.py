"""Criterion: what to rank by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccrank.errors import CcrankError
from ccrank.understood import Understood


@dataclass(frozen=True, slots=True)
class Criterion:
    """The criterion to rank by. Only `name` is required; templates use it in place of missing fields.

    Parameters
    ----------
    name
        The quantity, such as "size", or a phrase such as "how positive it is".
    comparative
        How the higher item compares with the lower one: "larger".
    poles
        Words for the low and the high pole: ("small", "large").
    category
        What the items are, in the singular: "country".
    reversed
        Whether more of `name` comes later, as in "least expensive": price, with the poles ("expensive", "cheap").
    understood
        What the phrase that the criterion was made from was taken to mean; see `ccrank.criterion_phrase`.

    Examples
    --------
    >>> Criterion("size", comparative="larger", poles=("small", "large"), category="country").comparative_phrase
    'larger'
    >>> Criterion("size").comparative_phrase
    'more in terms of size'
    """

    name: str
    comparative: str | None = None
    """How the higher item compares with the lower one: "larger"."""
    poles: tuple[str, str] | None = None
    """Words for the low and the high pole: ("small", "large")."""
    category: str | None = None
    """What the items are, in the singular: "country"."""
    reversed: bool = False
    """Whether more of `name` comes later: "price" with the poles ("expensive", "cheap"). Methods that ask for the name
    alone, such as ratings, reverse their scores."""
    understood: Understood | None = field(default=None, compare=False, repr=False)
    """What the phrase that it was made from was taken to mean."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise CcrankError(
                f"a criterion needs a name such as 'size' or 'how positive it is', got {self.name!r}"
            )
        for label, value in (("comparative", self.comparative), ("category", self.category)):
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise CcrankError(f"criterion {self.name!r}: {label} must be a word, got {value!r}")
        if self.poles is not None:
            if isinstance(self.poles, str) or len(tuple(self.poles)) != 2:
                raise CcrankError(
                    f"criterion {self.name!r}: poles must be two words, low then high, got {self.poles!r}"
                )
            low, high = self.poles
            if not all(isinstance(pole, str) and pole.strip() for pole in (low, high)) or low == high:
                raise CcrankError(
                    f"criterion {self.name!r}: poles must be two different words (low, high), got {self.poles!r}"
                )
            object.__setattr__(self, "poles", (low, high))

    @property
    def comparative_phrase(self) -> str:
        """The comparative, or the paper's phrase for a criterion without one."""
        return self.comparative or f"{'less' if self.reversed else 'more'} in terms of {self.name}"

    @property
    def sign(self) -> int:
        """1 where more of `name` comes first, -1 where it comes last."""
        return -1 if self.reversed else 1

    @property
    def kind(self) -> str:
        """The category, or "item" if none was given."""
        return self.category or "item"

    @classmethod
    def parse(cls, value: object) -> Criterion:
        """A criterion from its JSON form.

        Parameters
        ----------
        value
            An object with the fields of a criterion, or the name alone.
        """
        if isinstance(value, Criterion):
            return value
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, Mapping):
            raise CcrankError(f"a criterion must be a name or an object with a name, got {value!r}")
        known = {"name", "comparative", "poles", "category", "reversed"}
        if unknown := sorted(set(map(str, value)) - known):
            raise CcrankError(f"criterion has unknown fields {unknown}; known are {sorted(known)}")
        if "name" not in value:
            raise CcrankError(f"criterion {dict(value)!r} has no name")
        poles = value.get("poles")
        if poles is not None and not isinstance(poles, Sequence):
            raise CcrankError(
                f"criterion {value['name']!r}: poles must be two words (low, high), got {poles!r}"
            )
        return cls(
            name=value["name"],
            comparative=value.get("comparative"),
            poles=poles if poles is None or isinstance(poles, str) else tuple(poles),  # type: ignore[arg-type]
            category=value.get("category"),
            reversed=bool(value.get("reversed", False)),
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON form, without the fields that are None."""
        fields = {
            "name": self.name,
            "comparative": self.comparative,
            "poles": None if self.poles is None else list(self.poles),
            "category": self.category,
            "reversed": self.reversed or None,
        }
        return {key: value for key, value in fields.items() if value is not None}


def relevance_to(query: str) -> Criterion:
    """The criterion of a task that has a query: how relevant a document is to it.

    Parameters
    ----------
    query
        A question or keywords.

    >>> relevance_to("smart cities").name
    'relevance to the query "smart cities"'
    """
    return Criterion(
        f'relevance to the query "{" ".join(query.split())}"',
        "more relevant",
        ("irrelevant", "relevant"),
        "document",
    )
