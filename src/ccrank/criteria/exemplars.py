"""Exemplars for common criteria: texts and things at both poles, written for this package.

They are data (`exemplars.toml`). They are not labels of a user's items: they say what a criterion means in the way
that a dictionary does, by example.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from ccrank.lexicon import PREPOSITIONS, poles_of
from ccrank.task import Criterion
from ccrank.toml import parse_toml

Kind = Literal["texts", "things"]

WRITTEN = "exemplars"
"""The name of the signal from exemplars that were written for the criterion."""


@dataclass(frozen=True)
class Exemplars:
    """Texts or things at both poles of a criterion, as many at each."""

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
        """How many of two poles are on the same side here, less those on the other side: -2 to 2."""
        return (low in self.low) + (high in self.high) - (low in self.high) - (high in self.low)

    def is_named(self, name: str) -> bool:
        """Whether the name is the criterion's, or has a word of it: "top speed", "how noisy it is".

        The height of a country's highest mountain is not the height of the country.
        """
        words = name.casefold().split()
        return " ".join(words) in self.names or (
            not PREPOSITIONS & set(words) and bool(set(words) & (self.names | self.low | self.high))
        )


def exemplars_of(criterion: Criterion, kind: Kind) -> Exemplars | None:
    """What was written for a criterion, found by its poles or its name; None if nothing was, or the two disagree.

    Parameters
    ----------
    criterion
        The criterion; its direction decides which exemplars are the high ones.
    kind
        texts: sentences and longer texts; things: names and words.

    >>> rude = Criterion("rudeness", poles=("polite", "rude"))
    >>> exemplars_of(Criterion("politeness"), "texts").low == exemplars_of(rude, "texts").high
    True
    """
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
def _entries(kind: Kind) -> tuple[_Entry, ...]:
    table = parse_toml(resources.files("ccrank") / "exemplars.toml")
    return tuple(
        _Entry(
            frozenset(one["names"]),
            frozenset(one["low"]),
            frozenset(one["high"]),
            Exemplars(tuple(one["high_items"]), tuple(one["low_items"]))
            if kind == "things"
            else Exemplars(tuple(high for _, high in one["pairs"]), tuple(low for low, _ in one["pairs"])),
        )
        for one in table[kind]
    )
