"""Single words of a criterion phrase: adjectives of any degree, and words for much and little."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ccrank.criteria.inflection import uninflected, word_set, word_table
from ccrank.criteria.lexicon import is_listed_negation, known_adjectives, known_nouns

Degree = Literal["positive", "comparative", "superlative"]

_ADJECTIVE_ENDING = re.compile(
    r".+([bdfglmnprt])\1y$|.{3,}(able|ible|ic|ous|ive|ful|less|ish|[^e]ed|worthy|like|proof|some|genic)$"
)


class Inflected(NamedTuple):
    """The adjective of a word in a phrase."""

    adjective: str
    """The positive form."""
    degree: Degree
    known: bool
    """Whether the lexicon has it."""


def amount_sign(word: str) -> int:
    """1 for a word that asks for much of something, -1 for one that asks for little, 0 for any other word."""
    return (word in word_set("much")) - (word in word_set("little"))


def adjective_of(word: str) -> Inflected | None:
    """The adjective that a word is a form of, by the lexicon or by its ending; None for any other word.

    >>> adjective_of("cheapest"), adjective_of("worse").adjective, adjective_of("zippiest").adjective
    (Inflected(adjective='cheap', degree='superlative', known=True), 'bad', 'zippy')
    >>> adjective_of("number"), adjective_of("interest"), adjective_of("river")
    (None, None, None)
    """
    if word in known_adjectives() or is_listed_negation(word):
        return Inflected(word, "positive", True)
    if word in ("farthest", "furthest"):
        return Inflected("far", "superlative", True)
    if word.endswith("most") and word[:-4] in known_adjectives():
        return Inflected(word[:-4], "superlative", True)
    irregular = word_table("positives").get(word, "high")
    if irregular not in ("high", "low", "few"):
        return Inflected(irregular, "superlative" if word.endswith("st") else "comparative", True)
    negated = re.match(r"(?:un|in|im|ir|il|dis|non)(.{4,})", word)
    if negated and negated[1] in known_adjectives():
        return Inflected(word, "positive", True)
    degrees: tuple[tuple[str, Degree], ...] = (("est", "superlative"), ("er", "comparative"))
    for ending, degree in degrees:
        if word.endswith(ending) and word not in word_set(f"no_{degree}") and word not in known_nouns():
            stem = word.removesuffix(ending)
            adjective = _known_adjective(stem)
            if adjective is not None:
                return Inflected(adjective, degree, True)
            if word.endswith(("est", "ier")) and len(word) > 5:
                return Inflected(uninflected(stem), degree, False)
    # Few nouns that end as adjectives do are used as a criterion.
    if _ADJECTIVE_ENDING.match(word) and word not in word_set("no_adjective") and word not in known_nouns():
        return Inflected(word, "positive", False)
    return None


def _known_adjective(stem: str) -> str | None:
    """The adjective of the lexicon behind a stem: larg → large, bigg → big, happi → happy."""
    guesses = [stem, stem + "e", stem[:-1]]
    if stem.endswith("i"):
        guesses = [stem[:-1] + "y", stem[:-1] + "ey"]
    return next((word for word in guesses if word in known_adjectives() or is_listed_negation(word)), None)
