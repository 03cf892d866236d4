"""Criterion: what to rank by, and what the phrase for it was taken to mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccrank.errors import CcrankError
from ccrank.task.checks import MAX_QUERY, check_length
from ccrank.util.text import quoted

MAX_PHRASE = 300
"""Characters of a criterion's name, comparative and category, and of each pole."""
RELEVANCE = "relevance to the query "
"""How the name of the criterion of a query begins."""


@dataclass(frozen=True, slots=True)
class Understood:
    """What a criterion phrase was taken to mean."""

    phrase: str
    """As it was typed."""
    name: str
    """The scale, as a noun: "price". It reads well in "in terms of price"."""
    poles: tuple[str, str]
    """Words for the two poles; what the second says comes first in the ranking."""
    comparative: str
    """What an item is, compared with those after it: "cheaper"."""
    first: str
    """What comes first, for people: "cheapest first"."""
    last: str
    """What comes first if the ranking is shown in reverse: "most expensive first"."""
    source: str
    """How the poles were found: "given", "lexicon", "sense" (of several, the one that fits the items), "negation",
    "amount", "model" or "fallback"."""
    reversed: bool = False
    """Whether more of `name` comes later."""
    warning: str | None = None
    """Why the meaning is in doubt; None where it is certain."""
    alternatives: tuple[Understood, ...] = ()
    """What else the words may mean, the likeliest first where the items have been looked at."""
    describes: str = ""
    """What the items are, where the phrase says so: "pepper" in "hottest pepper"."""

    @property
    def certain(self) -> bool:
        """Whether the phrase can mean nothing else."""
        return self.warning is None

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as the output of `ccrank rank --json` has it."""
        return {
            "phrase": self.phrase,
            "first": self.first,
            "poles": list(self.poles),
            "comparative": self.comparative,
            "source": self.source,
            "certain": self.certain,
            "alternatives": [{"first": one.first, "poles": list(one.poles)} for one in self.alternatives],
        }


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
        Methods that ask for the name alone, such as ratings, reverse their scores.
    understood
        What the phrase that the criterion was made from was taken to mean; see `ccrank.criteria`.

    Examples
    --------
    >>> Criterion("size", comparative="larger", poles=("small", "large"), category="country").comparative_phrase
    'larger'
    >>> Criterion("size").comparative_phrase
    'more in terms of size'
    """

    name: str
    comparative: str | None = None
    poles: tuple[str, str] | None = None
    category: str | None = None
    reversed: bool = False
    understood: Understood | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not _is_word(self.name):
            raise CcrankError(
                f"a criterion needs a name such as 'size' or 'how positive it is', got {quoted(self.name)}"
            )
        of_query = self.name.startswith(RELEVANCE)
        check_length(self.name, "the criterion", len(RELEVANCE) + 2 + MAX_QUERY if of_query else MAX_PHRASE)
        for label, value in (("comparative", self.comparative), ("category", self.category)):
            if value is None:
                continue
            if not _is_word(value):
                raise CcrankError(f"criterion {self.name!r}: {label} must be a word, got {quoted(value)}")
            check_length(value, f"the {label} of a criterion", MAX_PHRASE)
        if self.poles is not None:
            poles = self.poles if isinstance(self.poles, (list, tuple)) else ()
            if len(poles) != 2 or poles[0] == poles[1] or not all(map(_is_word, poles)):
                raise CcrankError(
                    f"criterion {self.name!r}: poles must be two different words, low then high, got "
                    f"{quoted(self.poles)}"
                )
            for pole in poles:
                check_length(pole, "a pole of a criterion", MAX_PHRASE)
            object.__setattr__(self, "poles", tuple(poles))

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
        return cls(**{**value, "reversed": bool(value.get("reversed", False))})

    def to_json(self) -> dict[str, Any]:
        """The JSON form, without the fields that are None."""
        names = ("name", "comparative", "poles", "category")
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        fields |= {"poles": self.poles and list(self.poles), "reversed": self.reversed or None}
        return {name: value for name, value in fields.items() if value is not None}


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def relevance_to(query: str) -> Criterion:
    """The criterion of a task that has a query: how relevant a document is to it."""
    name = f'{RELEVANCE}"{" ".join(query.split())}"'
    return Criterion(name, "more relevant", ("irrelevant", "relevant"), "document")
