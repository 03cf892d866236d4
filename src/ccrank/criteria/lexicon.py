"""Words for the two poles of a criterion: the user's own, a table, rules, and fallbacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from ccrank.inflection import PREPOSITION, quality_noun, superlative, uninflected
from ccrank.task import Criterion
from ccrank.toml import parse_toml

IRREGULAR = {
    "better": "good",
    "best": "good",
    "worse": "bad",
    "worst": "bad",
    "more": "high",
    "most": "high",
    "greater": "high",
    "less": "low",
    "lesser": "low",
    "least": "low",
    "fewer": "few",
    "farther": "far",
    "further": "far",
}
PREPOSITIONS = frozenset((*PREPOSITION.split("|"), "than"))
MEASURES = ("amount", "quantity", "level", "degree", "score", "rating", "index", "measure")
"""Head nouns that measure what another word names: "level of noise", "noise level"."""
OPPOSITES = ("lack", "absence", "loss", "reduction", "decline", "aversion")
"""Head nouns that negate their complement, so that its scale would be reversed."""
NEGATED = r"dis|il|im|in|ir|mis|non|out|over|un"
"""Prefixes of adjectives that are already negated or modified; a false match does little harm."""


@dataclass(frozen=True, slots=True)
class Poles:
    """Words for the low and the high pole of a criterion."""

    low: tuple[str, ...]
    """Adjectives for the low pole, the most common one first."""
    high: tuple[str, ...]
    least: str
    """The superlative of the low pole: "smallest"."""
    most: str
    source: str
    """The origin of the words: "poles", "comparative", "name", or "fallback"."""

    def reversed(self) -> Poles:
        """The same scale reversed."""
        return Poles(self.high, self.low, self.most, self.least, self.source)


FALLBACK = Poles(("low", "small", "little"), ("high", "great", "strong"), "lowest", "highest", "fallback")


@lru_cache(maxsize=4096)
def poles_of(criterion: Criterion) -> Poles:
    """Words for a criterion: its poles if given, else by its comparative, else by its name, else low and high.

    >>> poles_of(Criterion("size")).high[0], poles_of(Criterion("era", comparative="earlier")).high[0]
    ('large', 'early')
    """
    if criterion.poles is not None:
        return _of_poles(*(pole.strip() for pole in criterion.poles))
    if criterion.comparative is not None:
        found = _of_comparative(criterion.comparative, criterion.name)
        if found is not None:
            return found
    return scale_of_noun(criterion.name) or FALLBACK


def _of_poles(low: str, high: str) -> Poles:
    """The user's words first; synonyms are added if the table lists both words on one scale."""
    for scale in _scales():
        for one in (scale, scale.reversed()):
            if low.lower() in one.low and high.lower() in one.high:
                lows, highs = _first(low, one.low), _first(high, one.high)
                return Poles(lows, highs, superlative(low), superlative(high), "poles")
    return Poles((low,), (high,), superlative(low), superlative(high), "poles")


def _of_comparative(comparative: str, name: str) -> Poles | None:
    """Poles by the comparative, which gives the direction; the words are its own, or those of the name if it has
    none."""
    words = re.sub(r"^\s*((the|a|an|much|far|even|slightly) )+", "", comparative.lower()).split()
    turned = False
    if words[:1] in (["more"], ["less"]) and len(words) > 1 and words[1] not in PREPOSITIONS:
        if _is_thing(words[1], name):
            adjective: str | None = "low" if words[0] == "less" else "high"
        else:
            adjective, turned = words[1], words[0] == "less"
    else:
        adjective = positive_form(" ".join(words))
    if adjective is None:
        return None
    found = _of_adjective(adjective, name)
    return found.reversed() if turned else found


def _is_thing(word: str, name: str) -> bool:
    """Whether "more …" is followed by a noun ("more goals", "more power"), which is not a word for a pole."""
    if word in known_adjectives():
        return False
    plural_noun = word.endswith("s") and not word.endswith(("ous", "ss"))
    return plural_noun or word in ("people", "money") or word in known_nouns() or word in _words(name)


def _of_adjective(adjective: str, name: str) -> Poles:
    """The scale with the adjective at its high pole."""
    named = scale_of_noun(name)
    if adjective in ("high", "low"):
        # "more" and "less" have no scale of their own: the name gives the words, the comparative the direction.
        scale = FALLBACK if named is None else replace(named, source="comparative")
        return scale if adjective == "high" else scale.reversed()
    # Of several scales with the word, take that of the name, else the one that lists the word earliest.
    if named is not None and (adjective in named.high or adjective in named.low):
        scale = named if adjective in named.high else named.reversed()
    else:
        known = _scale_with(adjective)
        if known is None:
            return scale_of_unknown(adjective, "comparative")
        scale = known
    most = superlative(adjective) if adjective != scale.high[0] else scale.most
    return Poles(scale.low, _first(adjective, scale.high), scale.least, most, "comparative")


def _scale_with(adjective: str) -> Poles | None:
    """The scale with the adjective at its high pole, reversed if necessary: the one that lists it earliest."""
    sides = [one for scale in _scales() for one in (scale, scale.reversed()) if adjective in one.high]
    return min(sides, key=lambda one: one.high.index(adjective), default=None)


def scale_of_noun(name: str) -> Poles | None:
    """The scale whose noun is the head of the name, else of another noun in the name; "how loud it is" is resolved by
    its adjective."""
    text = " ".join(_words(name))
    found = _found(text)
    how = re.match(r"how (?:very )?([a-z]+)", text)
    if how:
        phrases = [one for one in found if one[0] == 0]
        if phrases:
            return max(phrases, key=lambda one: one[1])[2]
        adjective = how.group(1)
        known = scale_of_adjective(adjective)
        if known is not None:
            return known
        if adjective not in ("much", "many", "often", "far", "well"):
            return scale_of_unknown(adjective, "name")
    cut = re.search(rf" (?:{PREPOSITION})\b", text)
    head = len(text) if cut is None else cut.start()
    last = text[:head].rpartition(" ")[2]
    if last in OPPOSITES:
        return None
    heads = [one for one in found if one[0] < head <= one[1]]
    others = [one for one in found if one not in heads]
    # "noise level" is about noise and "level of noise" as well; "interest rate" is about a rate.
    chosen = others if heads and last in MEASURES and others and not _covers(heads, last) else heads or others
    if chosen:
        return max(chosen, key=lambda one: one[1] - one[0])[2]
    stem = re.fullmatch(r"(?!business)([a-z]+?)(i?)ness", last)
    return scale_of_adjective(stem[1] + stem[2].replace("i", "y")) if stem else None


def _found(text: str) -> list[tuple[int, int, Poles]]:
    """The nouns of the table in a text: start, end and scale of each match."""
    nouns = known_nouns()
    starts = [0, *(match.end() for match in re.finditer(" ", text))]
    ends = [*(start - 1 for start in starts[1:]), len(text)]
    spans = [(start, end) for start in starts for end in ends if start < end]
    return [(start, end, nouns[text[start:end]]) for start, end in spans if text[start:end] in nouns]


def scale_of_adjective(adjective: str) -> Poles | None:
    """The scale with the adjective as the first word of its high pole: for "how loud it is" and "noisiness"."""
    scale = _scale_with(adjective)
    if scale is None:
        return None
    return Poles(scale.low, _first(adjective, scale.high), scale.least, superlative(adjective), "name")


def are_opposite(one: str, other: str) -> bool:
    """Whether two adjectives stand at different poles of a scale."""
    sides = [side for scale in _scales() for side in (scale, scale.reversed())]
    return any(one in side.high and other in side.low for side in sides)


def name_of_scale(adjective: str) -> tuple[str, bool] | None:
    """The usual noun for an adjective's scale, and whether the adjective is at its low pole; None if it is on none.

    >>> name_of_scale("costly"), name_of_scale("cheap"), name_of_scale("zippy")
    (('price', False), ('price', True), None)
    """
    scale = _scale_with(adjective)
    if scale is None:
        return None
    for entry in _table()["scale"]:
        if (*entry["high"], *entry["low"]) in ((*scale.high, *scale.low), (*scale.low, *scale.high)):
            noun = next(
                (one for one in entry["nouns"] if not one.startswith("how ")), quality_noun(entry["high"][0])
            )
            return noun, adjective in entry["low"]
    raise AssertionError(f"no entry for the scale of {adjective!r}")


def _covers(heads: list[tuple[int, int, Poles]], last: str) -> bool:
    """Whether the table lists the head noun in a longer phrase, such as "degree of intensity"."""
    return any(end - start > len(last) for start, end, _ in heads)


def scale_of_unknown(adjective: str, source: str) -> Poles:
    """Poles of an adjective that is not in the table: itself and its negation, or the adjective that it negates."""
    plain = affirmed(adjective)
    if plain is not None:
        return Poles((plain,), (adjective,), superlative(plain), superlative(adjective), source)
    return Poles((negation(adjective),), (adjective,), f"least {adjective}", superlative(adjective), source)


def negation(adjective: str) -> str:
    """The opposite with a prefix or -less where English has that word, else with "not".

    >>> negation("walkable"), negation("edible"), negation("cheerful"), negation("zippy")
    ('unwalkable', 'inedible', 'cheerless', 'not zippy')
    """
    listed = _negations().get(adjective)
    if listed is not None:
        return listed
    # Few adjectives with other endings take "un-": "unmoving" is not the opposite of "moving", "unterrible" not a word.
    regular = re.fullmatch(rf"(?!{NEGATED})[a-z]{{3,}}([^e]ed|able)", adjective)
    return f"un{adjective}" if regular else f"not {adjective}"


def is_listed_negation(adjective: str) -> bool:
    """Whether the table lists the adjective or its negation outside the scales: "edible", "inedible"."""
    negations = _negations()
    return adjective in negations or adjective in _negated()


def affirmed(adjective: str) -> str | None:
    """The adjective that this one negates: "unwalkable" → "walkable"; None if it is not a negation."""
    listed = next((plain for plain, negated in _negations().items() if negated == adjective), None)
    if listed is not None:
        return listed
    plain = adjective.removeprefix("un")
    # "united" and "understated" do not start with the prefix "un-".
    if plain == adjective or re.match(r"un(?:der|du|i[fqtv])", adjective):
        return None
    return plain if negation(plain) == adjective else None


def positive_form(comparative: str) -> str | None:
    """The adjective of a comparative: "larger in area" → "large", "more expensive" → "expensive"; None if unclear."""
    words = comparative.lower().split()
    if not words:
        return None
    first = words[0]
    if first == "more" and len(words) > 1 and words[1] not in PREPOSITIONS:
        return words[1]
    if first in IRREGULAR:
        return IRREGULAR[first]
    known = known_adjectives()
    if first in known:
        return first
    if not first.endswith("er"):
        return None
    stem = first[:-2]
    guesses = (stem, stem + "e", stem[:-1] + "y" if stem.endswith("i") else stem, stem[:-1])
    return next((guess for guess in guesses if guess in known), None) or uninflected(stem)


def _first(word: str, others: tuple[str, ...]) -> tuple[str, ...]:
    """The word, then the others without it: at most 3 in all."""
    return (word, *(one for one in others if one != word.lower()))[:3]


def _words(text: str) -> list[str]:
    """Lower-case words, without text in brackets: "price (USD)" is about a price."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=\w )\(.*?\)", " ", text.lower()))


@cache
def _table() -> Mapping[str, Any]:
    return parse_toml(resources.files("ccrank") / "lexicon.toml")


@cache
def _scales() -> tuple[Poles, ...]:
    return tuple(_scale(entry) for entry in _table()["scale"])


@cache
def known_nouns() -> Mapping[str, Poles]:
    """The names of criteria, each with its scale."""
    upright = {noun: _scale(entry) for entry in _table()["scale"] for noun in entry["nouns"]}
    turned = {
        noun: _scale(entry).reversed() for entry in _table()["scale"] for noun in entry.get("low_nouns", ())
    }
    return upright | turned


@cache
def _negations() -> Mapping[str, str]:
    """Adjectives to their listed negations; or "not …" where the rules would be wrong."""
    listed = dict(_table()["negation"])
    plain = {adjective: f"not {adjective}" for adjective in listed.pop("none")}
    ending = {f"{stem}ful": f"{stem}less" for stem in listed.pop("less")}
    prefixed = {word: prefix + word for prefix, words in listed.items() for word in words}
    return plain | ending | prefixed


@cache
def _negated() -> frozenset[str]:
    return frozenset(_negations().values())


@cache
def known_adjectives() -> frozenset[str]:
    """The adjectives of all scales."""
    return frozenset(word for scale in _scales() for word in (*scale.high, *scale.low))


def _scale(entry: Mapping[str, Any]) -> Poles:
    low: tuple[str, ...] = tuple(entry["low"])
    high: tuple[str, ...] = tuple(entry["high"])
    least = str(entry.get("least") or superlative(low[0]))
    most = str(entry.get("most") or superlative(high[0]))
    return Poles(low, high, least, most, "name")
