"""Exemplars for common criteria: texts and things at both poles, written for this package.

They are data (`exemplars.toml`). They are not labels of a user's items: they say what a criterion means in the way
that a dictionary does, by example.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from ccrank.lexicon import poles_of
from ccrank.task import Criterion
from ccrank.toml import parse_toml


Kind = Literal["texts", "things"]


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

    def is_named(self, name: str) -> bool:
        """Whether a word of the name is one of the criterion's: "top speed", "how noisy it is"."""
        words = set(name.casefold().split())
        return name.strip().casefold() in self.names or bool(words & (self.names | self.low | self.high))


def exemplars_of(criterion: Criterion, kind: Kind) -> Exemplars | None:
    """What was written for a criterion, found by its poles where both are known, or by its name; None if nothing was.

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
        same = low in entry.low and high in entry.high
        against = low in entry.high and high in entry.low
        # short and long, or small and large, are poles of many criteria: things need its name as well
        if (same or against) and (kind == "texts" or entry.is_named(criterion.name)):
            return entry.exemplars.reversed() if against else entry.exemplars
    for entry in _entries(kind):
        if criterion.name.strip().casefold() in entry.names:
            against = criterion.reversed or high in entry.low or low in entry.high
            return entry.exemplars.reversed() if against else entry.exemplars
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
