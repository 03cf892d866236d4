"""Words for the two ends of any criterion: what a user typed, a small table, rules, and sensible fall-backs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from ccrank.task import Criterion
from ccrank.toml import parse_toml

IRREGULAR = {
    "better": "good",
    "best": "good",
    "worse": "bad",
    "worst": "bad",
    "more": "high",
    "most": "high",
    "less": "low",
    "least": "low",
    "fewer": "few",
    "farther": "far",
    "further": "far",
}


@dataclass(frozen=True, slots=True)
class Ends:
    """The words for the low and the high end of a criterion."""

    low: tuple[str, ...]
    """Adjectives for the low end, the usual one first."""
    high: tuple[str, ...]
    least: str
    """The superlative of the low end: "smallest"."""
    most: str
    source: str
    """Where the words are from: "poles", "comparative", "name", or "fallback"."""

    def turned(self) -> Ends:
        """The same scale upside down."""
        return Ends(self.high, self.low, self.most, self.least, self.source)


def ends_of(criterion: Criterion) -> Ends:
    """Words for a criterion: its poles if given, else by its comparative, else by its name, else low and high.

    >>> ends_of(Criterion("size")).high[0], ends_of(Criterion("era", comparative="earlier")).high[0]
    ('large', 'early')
    """
    if criterion.poles is not None:
        return _of_poles(*criterion.poles)
    if criterion.comparative is not None:
        found = _of_comparative(criterion.comparative, criterion.name)
        if found is not None:
            return found
    found = _of_name(criterion.name)
    return found or Ends(
        ("low", "small", "little"), ("high", "great", "strong"), "lowest", "highest", "fallback"
    )


def _of_poles(low: str, high: str) -> Ends:
    """The user's words first; synonyms join where the table has the very pair on one scale."""
    for scale in _scales():
        for one in (scale, scale.turned()):
            if low.lower() in one.low and high.lower() in one.high:
                lows = tuple(dict.fromkeys((low, *one.low)))
                highs = tuple(dict.fromkeys((high, *one.high)))
                return Ends(lows[:3], highs[:3], superlative(low), superlative(high), "poles")
    return Ends((low,), (high,), superlative(low), superlative(high), "poles")


def _of_comparative(comparative: str, name: str) -> Ends | None:
    adjective = positive_form(comparative)
    if adjective is None:
        return None
    named = _of_name(name)
    if adjective in ("high", "low"):
        # "more" and "less" say nothing of their own: the name gives the words, the comparative the direction.
        if named is None:
            return None
        return Ends(
            *((named.low, named.high, named.least, named.most) if adjective == "high" else _flipped(named)),
            "comparative",
        )
    scales = [scale for scale in _scales() if adjective in scale.high or adjective in scale.low]
    # Of several scales with the word, the one that the name belongs to, else the one where it comes first.
    if named is not None and (adjective in named.high or adjective in named.low):
        scales = [named]
    if not scales:
        return _made_up(adjective)
    scales.sort(key=lambda scale: (scale.high + scale.low).index(adjective) % 3)
    scale = scales[0] if adjective in scales[0].high else scales[0].turned()
    highs = tuple(dict.fromkeys((adjective, *scale.high)))[:3]
    most = superlative(adjective) if adjective != scale.high[0] else scale.most
    return Ends(scale.low, highs, scale.least, most, "comparative")


def _flipped(ends: Ends) -> tuple[tuple[str, ...], tuple[str, ...], str, str]:
    return ends.high, ends.low, ends.most, ends.least


def _of_name(name: str) -> Ends | None:
    """The scale whose noun stands in the name, the longest noun first; "how loud it is" goes by its adjective."""
    words = " ".join(re.findall(r"[a-z]+", name.lower()))
    how = re.match(r"how ([a-z]+)", words)
    if how:
        adjective = how.group(1)
        for scale in _scales():
            for one in (scale, scale.turned()):
                if adjective in one.high:
                    return Ends(
                        one.low,
                        tuple(dict.fromkeys((adjective, *one.high)))[:3],
                        one.least,
                        superlative(adjective),
                        "name",
                    )
        if adjective not in ("much", "many", "often", "far", "well"):
            return _made_up(adjective)
    best: tuple[int, Ends] | None = None
    for noun, scale in _nouns().items():
        if re.search(rf"\b{re.escape(noun)}\b", words) and (best is None or len(noun) > best[0]):
            best = (len(noun), scale)
    return best[1] if best else None


def _made_up(adjective: str) -> Ends:
    """An adjective that the table does not know: itself and its plain negation."""
    return Ends(
        (f"not {adjective}",), (adjective,), f"least {adjective}", superlative(adjective), "comparative"
    )


def positive_form(comparative: str) -> str | None:
    """The adjective of a comparative: "larger in area" → "large", "more expensive" → "expensive"; None if unclear."""
    words = comparative.lower().split()
    if not words:
        return None
    if words[0] in ("more", "less") and len(words) > 1 and words[1] not in ("in", "of", "to", "than", "by"):
        return words[1] if words[0] == "more" else None
    first = words[0]
    if first in IRREGULAR:
        return IRREGULAR[first]
    known = {word for scale in _scales() for word in (*scale.high, *scale.low)}
    if not first.endswith("er"):
        return first if first in known else None
    stem = first[:-2]
    for guess in (stem, stem + "e", stem[:-1] + "y" if stem.endswith("i") else stem, stem[:-1]):
        if guess in known:
            return guess
    return stem[:-1] + "y" if stem.endswith("i") else stem


def superlative(adjective: str) -> str:
    """The superlative by the usual rules: largest, busiest, biggest, most expensive."""
    if " " in adjective:
        return f"most {adjective}"
    irregular = {
        "good": "best",
        "bad": "worst",
        "far": "farthest",
        "many": "most",
        "few": "fewest",
        "little": "smallest",
    }
    if adjective in irregular:
        return irregular[adjective]
    vowels = len(re.findall(r"[aeiouy]+", adjective.removesuffix("e")))
    if adjective.endswith("y") and vowels == 2:
        return adjective[:-1] + "iest"
    if vowels > 1:
        return f"most {adjective}"
    if adjective.endswith("e"):
        return adjective + "st"
    if re.search(r"[^aeiou][aeiou][bdgmnpt]$", adjective):
        return adjective + adjective[-1] + "est"
    return adjective + "est"


def plural(noun: str) -> str:
    """The plural by the usual rules, of the noun before any "of": countries, moons of Jupiter."""
    head, of, rest = noun.partition(" of ")
    if head.endswith("y") and head[-2:-1] not in "aeiou":
        head = head[:-1] + "ies"
    elif head.endswith(("s", "x", "z", "ch", "sh")):
        head += "es"
    elif head.endswith("person"):
        head = head.removesuffix("person") + "people"
    else:
        head += "s"
    return head + of + rest


@cache
def _scales() -> tuple[Ends, ...]:
    table = parse_toml(resources.files("ccrank") / "words.toml")["scale"]
    return tuple(_scale(entry) for entry in table)


@cache
def _nouns() -> Mapping[str, Ends]:
    table = parse_toml(resources.files("ccrank") / "words.toml")["scale"]
    return {noun: _scale(entry) for entry in table for noun in entry["nouns"]}


def _scale(entry: Mapping[str, Any]) -> Ends:
    low: tuple[str, ...] = tuple(entry["low"])
    high: tuple[str, ...] = tuple(entry["high"])
    least = str(entry.get("least") or superlative(low[0]))
    most = str(entry.get("most") or superlative(high[0]))
    return Ends(low, high, least, most, "name")
