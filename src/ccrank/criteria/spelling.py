"""Words of a phrase that may be misspelled: unknown, and one slip from a word of the lexicon."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from ccrank.criteria.inflection import comparative_of, superlative
from ccrank.criteria.lexicon import known_adjectives, known_nouns
from ccrank.criteria.phrase_words import adjective_of

MIN_LETTERS = 5
"""Shorter words have too many neighbours that are words."""


def did_you_mean(phrase: str) -> str | None:
    """The phrase with its first misspelled word corrected; None if no word looks misspelled.

    >>> did_you_mean("most beatiful"), did_you_mean("cheepest hotel"), did_you_mean("zippiest")
    ('most beautiful', 'cheapest hotel', None)
    """
    for word in re.findall(r"[a-z]+", phrase.lower()):
        inflected = adjective_of(word)
        if (
            len(word) < MIN_LETTERS
            or word in _words_of_nouns()
            or (inflected is not None and inflected.known)
        ):
            continue
        corrected = _neighbour(word)
        if corrected is None and inflected is not None and (near := _neighbour(inflected.adjective)):
            corrected = {"superlative": superlative, "comparative": comparative_of}.get(
                inflected.degree, str
            )(near)
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
