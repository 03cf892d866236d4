"""A scale and the pole that comes first: of an adjective, or of much or little of a noun."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from ccrank.criteria.inflection import (
    PREPOSITION,
    adjectives_of_noun,
    comparative_of,
    gerund,
    pattern,
    plural,
    quality_noun,
    superlative,
    table,
    word_set,
)
from ccrank.criteria.lexicon import (
    Poles,
    affirmed,
    known_nouns,
    most_noun_words,
    negation,
    scale_of_adjective,
    scale_of_noun,
)
from ccrank.task import Criterion

AMOUNTS = {"low": "lower", "high": "higher", "few": "lower", "many": "higher"}
"""Poles for the amount of the criterion, not for a property of an item, with their comparatives."""
_JUDGED = word_set("good") | word_set("bad")


@dataclass(frozen=True, slots=True)
class Meaning:
    """A scale and which of its poles comes first."""

    name: str
    low: str
    high: str
    """The pole that comes first."""
    source: str
    """How the poles were found: "lexicon", "negation", "amount" or "fallback"."""
    reversed: bool = False
    """Whether more of `name` comes later: "price" where the cheapest comes first."""
    plain: bool = False
    """Whether the name alone means all this, as with a noun."""
    of: str = ""
    """The noun that the poles describe, if they do not describe the items: lowest *price*, best *battery life*."""
    complement: str = ""
    """The words after the adjective: "to fail", "for kids"."""
    adjective: str = ""
    """The adjective of the phrase where that decides the scale, so that another sense of it may be meant."""
    describes: str = ""
    """What the items are, where the phrase says so: "pepper" in "hottest pepper"."""
    doubt: str = ""
    """Why it may be wrong."""

    def flipped(self) -> Meaning:
        """The same scale with the other pole first."""
        return replace(self, low=self.high, high=self.low, reversed=not self.reversed, plain=False)

    def signed(self, sign: int) -> Meaning:
        """This meaning for a positive sign, else flipped."""
        return self if sign > 0 else self.flipped()

    @property
    def comparative(self) -> str:
        """What an item is, compared with those after it."""
        if self.plain:
            return f"more in terms of {self.name}"
        if self.of and self.high in AMOUNTS:
            counted = "number of " if self.high in ("few", "many") and "number of" not in self.of else ""
            return f"{AMOUNTS[self.high]} in {counted}{self.of}"
        rest = f"in terms of {self.of}" if self.of else self.complement
        return f"{comparative_of(self.high)} {rest}".strip()

    def superlative_of(self, pole: str) -> str:
        """The items at a pole, in words: "cheapest", "fewest legs"."""
        most, judged = superlative(pole), _JUDGED & {self.low, self.high}
        if self.of and pole not in AMOUNTS and self.source == "lexicon" and not judged:
            most = "lowest" if (pole == self.high) == self.reversed else "highest"
        if pole in ("low", "high") and re.fullmatch(r"\S*[^su\s]s", self.of):
            most = "fewest" if pole == "low" else "most"
        return " ".join(filter(None, (most, self.of, self.complement)))


def of_adjective(adjective: str, complement: str = "") -> Meaning:
    """The scale with the adjective first: from the lexicon, by a negating prefix, or against its negation."""
    source, reverse = "lexicon", False
    if scale := scale_of_adjective(adjective):
        name, low, reverse = scale.noun, scale.low[0], scale.turned
    elif noun := _noun_made_of(adjective):
        name, low = noun, known_nouns()[noun].low[0]
    else:
        source = "negation"
        prefixed = re.match(r"(?:un|in|im|ir|il|dis|non)(.+)", adjective)
        plain = affirmed(adjective)
        if prefixed and (scale := scale_of_adjective(prefixed[1])):
            name, low, reverse = scale.noun, prefixed[1], not scale.turned
        else:
            name, low = quality_noun(plain or adjective), plain or negation(adjective)
            reverse = plain is not None
    deciding = adjective if source == "lexicon" else ""
    name = name_with(name, complement)
    return Meaning(name, low, adjective, source, reverse, complement=complement, adjective=deciding)


@cache
def _noun_made_of(adjective: str) -> str | None:
    """The noun of the lexicon that is derived from an adjective on no scale: "hazardous" → "hazardousness"."""
    return next((noun for noun in known_nouns() if adjective in adjectives_of_noun(noun)), None)


def of_amount(sign: int, noun: Sequence[str], counted: bool = False) -> Meaning:
    """Much of a noun first, or little of it (sign -1): in the poles of its scale, else in words for amounts."""
    text = " ".join(noun)
    scale = _scale_of(text)
    if scale is None and (several := " ".join((*noun[:-1], plural(noun[-1])))) in known_nouns():
        text, scale = several, known_nouns()[several]  # "low calorie"
    name = re.sub(r"^(?:amounts?|quantity|quantities) of ", "", text)
    if scale is not None and not pattern("substances").search(name):
        of = name if scale.high[0] in AMOUNTS or has_object(name) else ""
        return Meaning(name, scale.low[0], scale.high[0], "lexicon", of=of).signed(sign)
    plural_noun = re.search(r"[^su]s\b", text if noun[2:] else noun[-1])
    counted = scale is None and (counted or "number of" in text or bool(plural_noun))
    low, high = ("few", "many") if counted else ("low", "high")
    of = name if scale is not None else name.removeprefix("number of ")
    return Meaning(name, low, high, "amount", of=of).signed(sign)


def _scale_of(text: str) -> Poles | None:
    """The scale of a noun phrase whose head is in the lexicon, or of an adjective that the head is derived from."""
    if head_is_known(text):
        return scale_of_noun(text)
    head = re.split(rf" (?:{PREPOSITION})\b", text)[0].rpartition(" ")[2]
    scales = map(scale_of_adjective, adjectives_of_noun(head))
    return next((scale for scale in scales if scale is not None), None)


def head_is_known(text: str) -> bool:
    """Whether the words before any preposition, or after a measure such as "level of", end in a noun of the lexicon."""
    nouns = known_nouns()
    head, *rest = re.split(rf" (?:{PREPOSITION})\b ?", text, maxsplit=1)
    parts = head.split()
    starts = range(max(0, len(parts) - most_noun_words()), len(parts))
    if text in nouns or any(" ".join(parts[start:]) in nouns for start in starts):
        return True
    return bool(rest) and parts[-1:] in (["amount"], ["quantity"], ["level"]) and head_is_known(rest[0])


def has_object(name: str) -> bool:
    """Whether a noun phrase says of what, beyond its scale: "likelihood of churn", "leadership experience"."""
    return " " in name and name not in known_nouns() and not name.startswith("how ")


def unknown_poles(name: str) -> str:
    """The warning about a criterion whose poles are low and high."""
    return f"no words are known for the poles of {name!r}: low and high are used; give your own with --poles LOW HIGH"


def name_with(name: str, complement: str) -> str:
    """The noun with the complement of its adjective: "to fail" → "probability of failing"."""
    verb = re.match(r"to (\w+)(.*)", complement)
    if verb and name in word_set("of_actions"):
        return f"{name} of {gerund(verb[1])}{verb[2]}"
    return f"{name} {complement}".strip()


def senses_of(meaning: Meaning) -> tuple[Meaning, ...]:
    """What else the adjective of a meaning may say, each in the direction of the meaning.

    >>> [(sense.name, sense.low) for sense in senses_of(of_adjective("hard"))]
    [('difficulty', 'easy'), ('harshness', 'gentle')]
    """
    adjective, usual = meaning.adjective, (meaning.low, meaning.high)
    senses = []
    for opposite, noun in table("senses").get(adjective, {}).items():
        scale = known_nouns().get(noun)
        turned = scale is not None and (adjective in scale.low or opposite in scale.high)
        name = name_with(noun, meaning.complement)
        sense = replace(meaning, name=name, low=opposite, high=adjective, reversed=turned)
        if opposite not in usual:
            senses.append(sense if meaning.high == adjective else sense.flipped())
    return tuple(senses)


def comparison(criterion: Criterion) -> str:
    """How the higher of two items compares with the other, in a question about them: "larger"."""
    understood = criterion.understood
    if understood is None:
        return criterion.comparative_phrase
    if not understood.comparative.startswith("more in terms of"):
        return understood.comparative
    high = understood.poles[1]
    return f"{AMOUNTS[high]} in {understood.name}" if high in AMOUNTS else comparative_of(high)
