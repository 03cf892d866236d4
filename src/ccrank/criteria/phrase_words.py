"""Single words of a criterion phrase: adjectives of any degree, words for much and little, and misspelled words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

from ccrank.criteria.inflection import comparative_of, pattern, superlative, uninflected, word_set, word_table
from ccrank.criteria.lexicon import known_adjectives, known_nouns, listed_adjectives

Degree = Literal["positive", "comparative", "superlative"]

MIN_LETTERS = 5
"""Shorter words have too many neighbours that are words."""
_DEGREES: tuple[tuple[str, Degree], ...] = (("est", "superlative"), ("er", "comparative"))


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
    known = known_adjectives()
    if word in listed_adjectives():
        return Inflected(word, "positive", True)
    if word in ("farthest", "furthest"):
        return Inflected("far", "superlative", True)
    if word.endswith("most") and word[:-4] in known:
        return Inflected(word[:-4], "superlative", True)
    irregular = word_table("positives").get(word, "high")
    if irregular not in ("high", "low", "few"):
        return Inflected(irregular, "superlative" if word.endswith("st") else "comparative", True)
    negated = re.match(r"(?:un|in|im|ir|il|dis|non)(.{4,})", word)
    if negated and negated[1] in known:
        return Inflected(word, "positive", True)
    if word in known_nouns():
        return None
    for ending, degree in _DEGREES:
        if word.endswith(ending) and word not in word_set(f"no_{degree}"):
            stem = word.removesuffix(ending)
            if adjective := _listed_adjective(stem):
                return Inflected(adjective, degree, True)
            if word.endswith(("est", "ier")) and len(word) > 5:
                return Inflected(uninflected(stem), degree, False)
    # Few nouns that end as adjectives do are used as a criterion.
    if pattern("adjective_ending").match(word) and word not in word_set("no_adjective"):
        return Inflected(word, "positive", False)
    return None


def _listed_adjective(stem: str) -> str | None:
    """The adjective of the lexicon behind a stem: larg → large, bigg → big, happi → happy."""
    guesses = (stem[:-1] + "y", stem[:-1] + "ey") if stem.endswith("i") else (stem, stem + "e", stem[:-1])
    return next((word for word in guesses if word in listed_adjectives()), None)


def did_you_mean(phrase: str) -> str | None:
    """The phrase with its first misspelled word corrected; None if no word looks misspelled.

    >>> did_you_mean("most beatiful"), did_you_mean("cheepest hotel"), did_you_mean("zippiest")
    ('most beautiful', 'cheapest hotel', None)
    """
    for word in re.findall(r"[a-z]+", phrase.lower()):
        inflected = adjective_of(word)
        if len(word) < MIN_LETTERS or word in _words_of_nouns() or (inflected and inflected.known):
            continue
        corrected = _neighbour(word)
        if corrected is None and inflected and (near := _neighbour(inflected.adjective)):
            form = {"superlative": superlative, "comparative": comparative_of}.get(inflected.degree, str)
            corrected = form(near)
        if corrected is not None:
            return re.sub(rf"\b{word}\b", corrected, phrase.lower(), count=1)
    return None


@cache
def _words_of_nouns() -> frozenset[str]:
    return frozenset(word for noun in known_nouns() for word in noun.split())


@cache
def _slips() -> dict[str, str]:
    """What is left of a word, for one slip, to the word: without a letter, or with a vowel in doubt."""
    words = sorted(known_adjectives() | {noun for noun in known_nouns() if " " not in noun})
    return {form: word for word in words if len(word) >= MIN_LETTERS for form in (word, *_reduced(word))}


def _reduced(word: str) -> Iterator[str]:
    for at in range(1, len(word)):  # people rarely mistake the first letter
        if word[at:] != "y":  # "sleep" is a word beside "sleepy"
            yield word[:at] + word[at + 1 :]
        if word[at] in "aeiouy":
            yield f"{word[:at]}*{word[at + 1 :]}"


def _neighbour(word: str) -> str | None:
    """The word of the lexicon that differs by a letter more or less, by another vowel, or by two letters exchanged."""
    slips, known = _slips(), known_adjectives() | known_nouns().keys()
    if (missing := slips.get(word)) is not None:
        return missing
    for form in _reduced(word):
        if ("*" in form and form in slips) or form in known:
            return slips.get(form)
    exchanged = (word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(1, len(word) - 1))
    return next((form for form in exchanged if form in known), None)
