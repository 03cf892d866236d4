"""Words for the two poles of a criterion: the user's own, a table, rules, and fallbacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from ccrank.criteria.inflection import (
    PREPOSITION,
    quality_noun,
    superlative,
    table,
    uninflected,
    word_set,
    word_table,
)
from ccrank.task import Criterion

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
    noun: str = ""
    """The usual noun for a scale of the lexicon: "price"."""
    turned: bool = field(default=False, compare=False)
    """Whether the high pole is the low one of that noun: ("expensive", "cheap")."""

    @classmethod
    def of(cls, low: Sequence[str], high: Sequence[str], source: str, noun: str = "") -> Poles:
        """With the superlatives of the first words."""
        return cls(tuple(low), tuple(high), superlative(low[0]), superlative(high[0]), source, noun)

    def reversed(self) -> Poles:
        """The same scale reversed."""
        return Poles(self.high, self.low, self.most, self.least, self.source, self.noun, not self.turned)


FALLBACK = Poles(("low", "small", "little"), ("high", "great", "strong"), "lowest", "highest", "fallback")


@lru_cache(maxsize=4096)
def poles_of(criterion: Criterion) -> Poles:
    """Words for a criterion: its poles if given, else by its comparative, else by its name, else low and high.

    >>> poles_of(Criterion("size")).high[0], poles_of(Criterion("era", comparative="earlier")).high[0]
    ('large', 'early')
    """
    if criterion.poles is not None:
        low, high = (pole.strip() for pole in criterion.poles)
        scale = scale_between(low.lower(), high.lower())
        lows, highs = ((), ()) if scale is None else (scale.low, scale.high)
        return Poles.of(_first(low, lows), _first(high, highs), "poles")
    compared = criterion.comparative and _of_comparative(criterion.comparative, criterion.name)
    return compared or scale_of_noun(criterion.name) or FALLBACK


def _of_comparative(comparative: str, name: str) -> Poles | None:
    """Poles by the comparative, which gives the direction, and the words unless only the name has some."""
    words = re.sub(r"^\s*((the|a|an|much|far|even|slightly) )+", "", comparative.lower()).split()
    adjective, turned = positive_form(" ".join(words)), False
    if words[:1] in (["more"], ["less"]) and len(words) > 1 and words[1] not in PREPOSITIONS:
        if _is_thing(words[1], name):
            adjective = "low" if words[0] == "less" else "high"
        else:
            adjective, turned = words[1], words[0] == "less"
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
    """The scale with the adjective at its high pole, the scale of the name before others."""
    named = scale_of_noun(name)
    if adjective in ("high", "low"):
        # "more" and "less" belong to any scale: the name gives the words, the comparative the direction.
        scale = FALLBACK if named is None else replace(named, source="comparative")
        return scale if adjective == "high" else scale.reversed()
    by_name = None if named is None else scale_of_adjective(adjective, (named, named.reversed()))
    by_word = by_name or scale_of_adjective(adjective) or scale_of_unknown(adjective)
    return replace(by_word, source="comparative")


def scale_of_noun(name: str) -> Poles | None:
    """The scale whose noun is the head of the name, else of another noun; of "how loud it is" by its adjective."""
    text = " ".join(_words(name))
    matches = _nouns_in(text)
    if how := re.match(r"how (?:very )?([a-z]+)", text):
        phrases = [match for match in matches if match[0] == 0]
        if phrases:
            return max(phrases, key=lambda match: match[1])[2]
        if known := scale_of_adjective(how[1]):
            return known
        if how[1] not in ("much", "many", "often", "far", "well"):
            return scale_of_unknown(how[1])
    head = len(re.split(rf" (?:{PREPOSITION})\b", text, maxsplit=1)[0])
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


def scale_of_adjective(adjective: str, scales: Sequence[Poles] = ()) -> Poles | None:
    """The scale with the adjective as the first word of its high pole: of these, or of all, the one that lists it
    earliest."""
    listing = [scale for scale in scales or _directed_scales() if adjective in scale.high]
    if not listing:
        return None
    scale = min(listing, key=lambda scale: scale.high.index(adjective))
    return replace(scale, high=_first(adjective, scale.high), most=superlative(adjective), source="name")


def scale_between(low: str, high: str) -> Poles | None:
    """The scale with these adjectives at its poles."""
    return next((scale for scale in _directed_scales() if low in scale.low and high in scale.high), None)


def scale_of_unknown(adjective: str) -> Poles:
    """Poles of an adjective that is not in the table: itself and its negation, or the adjective that it negates."""
    if plain := affirmed(adjective):
        return Poles.of([plain], [adjective], "name")
    return Poles((negation(adjective),), (adjective,), f"least {adjective}", superlative(adjective), "name")


def negation(adjective: str) -> str:
    """The opposite with a prefix or -less where English has that word, else with "not".

    >>> negation("walkable"), negation("edible"), negation("cheerful"), negation("zippy")
    ('unwalkable', 'inedible', 'cheerless', 'not zippy')
    """
    if listed := _negations().get(adjective):
        return listed
    # Few adjectives with other endings take "un-": "unmoving" is not the opposite of "moving", "unterrible" not a word.
    regular = re.fullmatch(rf"(?!{_NEGATED})[a-z]{{3,}}([^e]ed|able)", adjective)
    return f"un{adjective}" if regular else f"not {adjective}"


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
    first, second = (*comparative.lower().split(), "", "")[:2]
    if first == "more" and second and second not in PREPOSITIONS:
        return second
    known = known_adjectives()
    if irregular := word_table("positives").get(first, first if first in known else None):
        return str(irregular)
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
def _scales() -> tuple[Poles, ...]:
    scales = []
    for entry in table("lexicon")["scale"]:
        nouns = (noun for noun in entry["nouns"] if not noun.startswith("how "))
        noun = next(nouns, quality_noun(entry["high"][0]))
        scales.append(Poles.of(entry["low"], entry["high"], "name", noun))
    return tuple(scales)


@cache
def _directed_scales() -> tuple[Poles, ...]:
    """Each scale, and each reversed."""
    return tuple(directed for scale in _scales() for directed in (scale, scale.reversed()))


@cache
def known_nouns() -> Mapping[str, Poles]:
    """The names of criteria, each with its scale."""
    entries = [*zip(table("lexicon")["scale"], _scales(), strict=True)]
    high = {noun: scale for entry, scale in entries for noun in entry["nouns"]}
    return high | {noun: scale.reversed() for entry, scale in entries for noun in entry.get("low_nouns", ())}


@cache
def most_noun_words() -> int:
    """The number of words of the longest name in the table."""
    return max(len(noun.split()) for noun in known_nouns())


@cache
def _negations() -> Mapping[str, str]:
    """Adjectives to their listed negations; or "not …" where the rules would be wrong."""
    listed = dict(table("lexicon")["negation"])
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


@cache
def listed_adjectives() -> frozenset[str]:
    """These, and those that are listed as negations or negated: "edible", "inedible"."""
    return known_adjectives() | _negations().keys() | _affirmations().keys()
