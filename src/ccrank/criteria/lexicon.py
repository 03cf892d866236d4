"""Words for the two poles of a criterion: the user's own, a table, rules, and fallbacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from ccrank.criteria.inflection import (
    PREPOSITION,
    quality_noun,
    superlative,
    uninflected,
    word_set,
    word_table,
)
from ccrank.task import Criterion
from ccrank.util.files import parse_toml

PREPOSITIONS = frozenset((*PREPOSITION.split("|"), "than"))
_NEGATED = r"dis|il|im|in|ir|mis|non|out|over|un"
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
        poles = _of_comparative(criterion.comparative, criterion.name)
        if poles is not None:
            return poles
    return scale_of_noun(criterion.name) or FALLBACK


def _of_poles(low: str, high: str) -> Poles:
    """The user's words first; synonyms are added if the table lists both words on one scale."""
    for scale in _directed_scales():
        if low.lower() in scale.low and high.lower() in scale.high:
            lows, highs = _first(low, scale.low), _first(high, scale.high)
            return Poles(lows, highs, superlative(low), superlative(high), "poles")
    return Poles((low,), (high,), superlative(low), superlative(high), "poles")


def _of_comparative(comparative: str, name: str) -> Poles | None:
    """Poles by the comparative, which gives the direction, and the words unless only the name has some."""
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
    poles = _of_adjective(adjective, name)
    return poles.reversed() if turned else poles


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
        # "more" and "less" belong to any scale: the name gives the words, the comparative the direction.
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
    scales = [scale for scale in _directed_scales() if adjective in scale.high]
    return min(scales, key=lambda scale: scale.high.index(adjective), default=None)


def scale_of_noun(name: str) -> Poles | None:
    """The scale whose noun is the head of the name, else of another noun in the name; "how loud it is" is resolved by
    its adjective."""
    text = " ".join(_words(name))
    matches = _nouns_in(text)
    how = re.match(r"how (?:very )?([a-z]+)", text)
    if how:
        phrases = [match for match in matches if match[0] == 0]
        if phrases:
            return max(phrases, key=lambda match: match[1])[2]
        adjective = how.group(1)
        known = scale_of_adjective(adjective)
        if known is not None:
            return known
        if adjective not in ("much", "many", "often", "far", "well"):
            return scale_of_unknown(adjective, "name")
    cut = re.search(rf" (?:{PREPOSITION})\b", text)
    head = len(text) if cut is None else cut.start()
    last = text[:head].rpartition(" ")[2]
    if last in word_set("opposites"):
        return None
    heads = [match for match in matches if match[0] < head <= match[1]]
    others = [match for match in matches if not match[0] < head <= match[1]]
    # "noise level" is about noise and "level of noise" as well; "interest rate" is about a rate.
    # But the table may list the head noun in a longer phrase, such as "degree of intensity".
    measured = last in word_set("measures") and all(end - start <= len(last) for start, end, _ in heads)
    chosen = others if others and measured else heads or others
    if chosen:
        return max(chosen, key=lambda match: match[1] - match[0])[2]
    stem = re.fullmatch(r"(?!business)([a-z]+?)(i?)ness", last)
    return scale_of_adjective(stem[1] + stem[2].replace("i", "y")) if stem else None


def _nouns_in(text: str) -> list[tuple[int, int, Poles]]:
    """The nouns of the table in a text: start, end and scale of each match. Linear in the length of the text."""
    nouns, most = known_nouns(), most_noun_words()
    starts = [0, *(match.end() for match in re.finditer(" ", text))]
    ends = [*(start - 1 for start in starts[1:]), len(text)]
    spans = [(start, end) for index, start in enumerate(starts) for end in ends[index : index + most]]
    return [(start, end, nouns[text[start:end]]) for start, end in spans if text[start:end] in nouns]


def scale_of_adjective(adjective: str) -> Poles | None:
    """The scale with the adjective as the first word of its high pole: for "how loud it is" and "noisiness"."""
    scale = _scale_with(adjective)
    if scale is None:
        return None
    return Poles(scale.low, _first(adjective, scale.high), scale.least, superlative(adjective), "name")


def are_opposite(first: str, second: str) -> bool:
    """Whether two adjectives stand at different poles of a scale."""
    return any(first in scale.high and second in scale.low for scale in _directed_scales())


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
            nouns = (noun for noun in entry["nouns"] if not noun.startswith("how "))
            return next(nouns, quality_noun(entry["high"][0])), adjective in entry["low"]
    raise AssertionError(f"no entry for the scale of {adjective!r}")


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
    regular = re.fullmatch(rf"(?!{_NEGATED})[a-z]{{3,}}([^e]ed|able)", adjective)
    return f"un{adjective}" if regular else f"not {adjective}"


def is_listed_negation(adjective: str) -> bool:
    """Whether the table lists the adjective or its negation outside the scales: "edible", "inedible"."""
    return adjective in _negations() or adjective in _affirmations()


def affirmed(adjective: str) -> str | None:
    """The adjective that this one negates: "unwalkable" → "walkable"; None if it is not a negation."""
    if listed := _affirmations().get(adjective):
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
    if irregular := word_table("positives").get(first):
        return str(irregular)
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
    return (word, *(other for other in others if other != word.lower()))[:3]


def _words(text: str) -> list[str]:
    """Lower-case words, without text in brackets: "price (USD)" is about a price."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=\w )\(.*?\)", " ", text.lower()))


@cache
def _table() -> Mapping[str, Any]:
    return parse_toml(resources.files("ccrank.criteria") / "lexicon.toml")


@cache
def _scales() -> tuple[Poles, ...]:
    return tuple(_scale(entry) for entry in _table()["scale"])


@cache
def _directed_scales() -> tuple[Poles, ...]:
    """Each scale, and each reversed."""
    return tuple(directed for scale in _scales() for directed in (scale, scale.reversed()))


@cache
def known_nouns() -> Mapping[str, Poles]:
    """The names of criteria, each with its scale."""
    entries = list(zip(_table()["scale"], _scales(), strict=True))
    high = {noun: scale for entry, scale in entries for noun in entry["nouns"]}
    low = {noun: scale.reversed() for entry, scale in entries for noun in entry.get("low_nouns", ())}
    return high | low


@cache
def most_noun_words() -> int:
    """The number of words of the longest name in the table."""
    return max(len(noun.split()) for noun in known_nouns())


@cache
def _negations() -> Mapping[str, str]:
    """Adjectives to their listed negations; or "not …" where the rules would be wrong."""
    listed = dict(_table()["negation"])
    plain = {adjective: f"not {adjective}" for adjective in listed.pop("none")}
    ending = {f"{stem}ful": f"{stem}less" for stem in listed.pop("less")}
    prefixed = {word: prefix + word for prefix, words in listed.items() for word in words}
    return plain | ending | prefixed


@cache
def _affirmations() -> Mapping[str, str]:
    """Listed negations to the adjectives that they negate; of two such adjectives to the first."""
    return {negated: adjective for adjective, negated in reversed([*_negations().items()])}


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
