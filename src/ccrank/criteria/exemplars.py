"""Exemplars for common criteria: texts and things at both poles, written for this package.

They are data (`exemplars.toml`). They are not labels of a user's items: they define a criterion by example.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ccrank.criteria.inflection import table
from ccrank.criteria.lexicon import PREPOSITIONS, poles_of
from ccrank.task import Criterion

ExemplarKind = Literal["texts", "things"]

WRITTEN = "exemplars"
"""The name of the signal that reads them."""


class Exemplars(NamedTuple):
    """Texts or things at both poles of a criterion, the same number at each."""

    high: tuple[str, ...]
    low: tuple[str, ...]


def exemplars_of(criterion: Criterion, kind: ExemplarKind) -> Exemplars | None:
    """The exemplars of a criterion by its poles or its name; None if there are none, or if the two disagree."""
    poles, words = poles_of(criterion), criterion.name.casefold().split()
    low, high = poles.low[0].casefold(), poles.high[0].casefold()
    named: tuple[Mapping[str, Any], int] | None = None
    for entry in table("exemplars")[kind]:
        votes = (
            (low in entry["low"]) + (high in entry["high"]) - (low in entry["high"]) - (high in entry["low"])
        )
        # short and long, or small and large, are poles of many criteria: things need its name as well
        if abs(votes) == 2 and (kind == "texts" or _is_named(words, entry)):
            return _directed(entry, votes)
        if named is None and " ".join(words) in entry["names"]:
            by_name = votes == 0 and poles.source in ("name", "fallback")
            sign = criterion.sign if by_name else votes
            named = (entry, sign) if sign else None
    return None if named is None else _directed(*named)


def _is_named(words: list[str], entry: Mapping[str, Any]) -> bool:
    """Whether a name is the criterion's or contains a word for it ("top speed", "how noisy it is") and no preposition:
    the height of a country's highest mountain is not the height of the country."""
    known = {*entry["names"], *entry["low"], *entry["high"]}
    return " ".join(words) in entry["names"] or (not PREPOSITIONS & set(words) and bool(known & set(words)))


def _directed(entry: Mapping[str, Any], sign: int) -> Exemplars:
    """The exemplars of an entry, reversed for a negative sign."""
    if "pairs" in entry:
        low, high = zip(*entry["pairs"], strict=True)
    else:
        low, high = tuple(entry["low_items"]), tuple(entry["high_items"])
    return Exemplars(high, low) if sign > 0 else Exemplars(low, high)
