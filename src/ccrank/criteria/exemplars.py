"""Exemplars for common criteria: texts and things at both poles, written for this package.

They are data (`exemplars.toml`). They are not labels of a user's items: they define a criterion by example.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from ccrank.criteria.lexicon import PREPOSITIONS, poles_of
from ccrank.task import Criterion
from ccrank.util.files import parse_toml

ExemplarKind = Literal["texts", "things"]

WRITTEN = "exemplars"
"""The name of the signal that reads them."""


@dataclass(frozen=True)
class Exemplars:
    """Texts or things at both poles of a criterion, the same number at each."""

    high: tuple[str, ...]
    low: tuple[str, ...]

    def reversed(self) -> Exemplars:
        """The same for the reversed criterion."""
        return Exemplars(self.low, self.high)


@dataclass(frozen=True)
class _Entry:
    names: frozenset[str]
    low: frozenset[str]
    high: frozenset[str]
    exemplars: Exemplars

    def votes(self, low: str, high: str) -> int:
        """The number of the two poles on the same side here minus those on the other side: -2 to 2."""
        return (low in self.low) + (high in self.high) - (low in self.high) - (high in self.low)

    def is_named(self, name: str) -> bool:
        """Whether the name is the criterion's or contains a word for it: "top speed", "how noisy it is".

        The height of a country's highest mountain is not the height of the country.
        """
        words = name.casefold().split()
        return " ".join(words) in self.names or (
            not PREPOSITIONS & set(words) and bool(set(words) & (self.names | self.low | self.high))
        )


def exemplars_of(criterion: Criterion, kind: ExemplarKind) -> Exemplars | None:
    """The exemplars of a criterion by its poles or its name; None if there are none, or if the two disagree."""
    poles = poles_of(criterion)
    low, high = poles.low[0].casefold(), poles.high[0].casefold()
    for entry in _entries(kind):
        votes = entry.votes(low, high)
        # short and long, or small and large, are poles of many criteria: things need its name as well
        if abs(votes) == 2 and (kind == "texts" or entry.is_named(criterion.name)):
            return entry.exemplars if votes > 0 else entry.exemplars.reversed()
    for entry in _entries(kind):
        if " ".join(criterion.name.casefold().split()) not in entry.names:
            continue
        votes = entry.votes(low, high)
        if votes == 0 and poles.source in ("name", "fallback"):
            votes = criterion.sign
        if votes:
            return entry.exemplars if votes > 0 else entry.exemplars.reversed()
    return None


@cache
def _entries(kind: ExemplarKind) -> tuple[_Entry, ...]:
    table = parse_toml(resources.files("ccrank.criteria") / "exemplars.toml")
    entries = []
    for entry in table[kind]:
        low, high = (
            (entry["low_items"], entry["high_items"])
            if kind == "things"
            else zip(*entry["pairs"], strict=True)
        )
        names, low_words, high_words = (frozenset(entry[key]) for key in ("names", "low", "high"))
        entries.append(_Entry(names, low_words, high_words, Exemplars(tuple(high), tuple(low))))
    return tuple(entries)
