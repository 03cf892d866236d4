"""English word forms by the rules of spelling: plurals, comparatives, superlatives, gerunds, nouns of adjectives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ccrank.util.files import parse_toml

PREPOSITION = r"of|in|per|by|for|at|to|on|from|with|since|among|between"


@cache
def table(name: str) -> dict[str, Any]:
    """A data file of this package."""
    return parse_toml(resources.files("ccrank.criteria") / f"{name}.toml")


@cache
def word_set(name: str) -> frozenset[str]:
    """A list of `words.toml`."""
    return frozenset(table("words")[name])


def word_table(name: str) -> Mapping[str, Any]:
    """A table of `words.toml`."""
    words: Mapping[str, Any] = table("words")[name]
    return words


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A regular expression of `patterns.toml`."""
    return re.compile(table("patterns")[name])


def superlative(adjective: str) -> str:
    """The superlative by the usual rules: largest, busiest, biggest, most expensive."""
    if adjective.startswith("not "):
        return f"least {adjective.removeprefix('not ')}"
    if irregular := word_table("superlatives").get(adjective):
        return str(irregular)
    vowels = len(re.findall(r"[aeiouy]+", adjective.removesuffix("e")))
    takes_no_ending = " " in adjective or adjective in word_set("most")
    if re.search(r"[^aeiou]y$", adjective) and vowels <= 2 and not takes_no_ending:
        return adjective[:-1] + "iest"
    if takes_no_ending or (vowels > 1 and not re.search(r"[^aeiou]ow$", adjective)):
        return f"most {adjective}"
    if adjective.endswith("e"):
        return adjective + "st"
    doubled = vowels == 1 and re.search(r"[^aeiou][aeiou][bdgmnpt]$", adjective)
    return adjective + (adjective[-1] if doubled else "") + "est"


def comparative_of(adjective: str) -> str:
    """The comparative that goes with the superlative: larger, better, more expensive, less zippy.

    >>> comparative_of("cheap"), comparative_of("good"), comparative_of("not zippy"), comparative_of("northern")
    ('cheaper', 'better', 'less zippy', 'more northern')
    """
    most = superlative(adjective)
    if irregular := word_table("comparatives").get(most):
        return str(irregular)
    if most.startswith("least "):
        return f"less {most.removeprefix('least ')}"
    return f"more {adjective}" if most.startswith("most ") or not most.endswith("est") else most[:-3] + "er"


def gerund(verb: str) -> str:
    """The -ing form: failing, using, running, lying."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if re.search(r".[^eoy]e$", verb):
        return verb[:-1] + "ing"
    doubled = re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]|begin|forget|commit|admit", verb)
    return verb + (verb[-1] if doubled else "") + "ing"


def quality_noun(adjective: str) -> str:
    """A noun for what an adjective says: zippiness, walkability, abrasiveness.

    >>> quality_noun("zippy"), quality_noun("walkable"), quality_noun("photogenic"), quality_noun("not zippy")
    ('zippiness', 'walkability', 'photogenicness', 'lack of zippiness')
    """
    if adjective.startswith("not "):
        return f"lack of {quality_noun(adjective.removeprefix('not '))}"
    if re.search(r"[ai]ble$", adjective):
        return adjective[:-2] + "ility"
    return re.sub(r"(?<=[^aeiou])y$", "i", adjective) + "ness"


def adjectives_of_noun(noun: str) -> tuple[str, ...]:
    """Adjectives that a noun may be made of, the likeliest first; they may be no words.

    >>> adjectives_of_noun("zippiness"), adjectives_of_noun("walkability"), adjectives_of_noun("creativity")
    (('zippy',), ('walkable',), ('creative',))
    """
    for ending, replacements in word_table("noun_endings").items():
        if noun.endswith(ending) and len(noun) > len(ending) + 2:
            return tuple(noun[: -len(ending)] + replacement for replacement in replacements)
    return ()


def plural(noun: str) -> str:
    """The plural by the usual rules, of the noun before any preposition: countries, moons of Jupiter."""
    head, *rest = re.split(rf"( (?:{PREPOSITION}) |-in-)", noun, maxsplit=1)
    start, blank, last = head.rpartition(" ")
    low, irregulars = last.lower(), word_table("plurals")
    if irregular := low if low in word_set("unchanged") else irregulars.get(low):
        last = irregular if last == low else irregular.capitalize()
    elif low not in irregulars.values():
        endings = table("patterns")["plurals"]
        rules = (re.subn(ending, new, last, count=1, flags=re.IGNORECASE) for ending, new in endings)
        last = next((several for several, fits in rules if fits), last)
    return "".join((start, blank, last, *rest))


def uninflected(stem: str) -> str:
    """What stands before "-er", by the rules of spelling: zippi → zippy, redd → red, nic → nice."""
    if stem.endswith("i"):
        return stem[:-1] + "y"
    if re.search(r"([bdgmnprt])\1$", stem):
        return stem[:-1]
    silent = r"[uvcz]$|[^aeious]s$|oos$|^[^aeiou]+e$|^[^aeiou]*[aeiou][^aeiouwxy]$"
    return stem + "e" if re.search(silent, stem) else stem
