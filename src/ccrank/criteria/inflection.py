"""English word forms by the rules of spelling: plurals, comparatives, superlatives, gerunds, nouns of adjectives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ccrank.util.files import parse_toml

_HARD_CH = r"(stoma|mon|ar|epo|eunu|lo)ch$"
PREPOSITION = r"of|in|per|by|for|at|to|on|from|with|since|among|between"


@cache
def _words() -> Mapping[str, Any]:
    return parse_toml(resources.files("ccrank.criteria") / "words.toml")


@cache
def word_set(name: str) -> frozenset[str]:
    """A list of `words.toml`."""
    return frozenset(_words()[name])


def word_table(name: str) -> Mapping[str, Any]:
    """A table of `words.toml`."""
    table: Mapping[str, Any] = _words()[name]
    return table


def superlative(adjective: str) -> str:
    """The superlative by the usual rules: largest, busiest, biggest, most expensive."""
    if adjective.startswith("not "):
        return f"least {adjective.removeprefix('not ')}"
    if " " in adjective:
        return f"most {adjective}"
    if irregular := word_table("superlatives").get(adjective):
        return str(irregular)
    if adjective in word_set("most"):
        return f"most {adjective}"
    vowels = len(re.findall(r"[aeiouy]+", adjective.removesuffix("e")))
    if re.search(r"[^aeiou]y$", adjective) and vowels <= 2:
        return adjective[:-1] + "iest"
    if vowels > 1 and not re.search(r"[^aeiou]ow$", adjective):
        return f"most {adjective}"
    if adjective.endswith("e"):
        return adjective + "st"
    if vowels == 1 and re.search(r"[^aeiou][aeiou][bdgmnpt]$", adjective):
        return adjective + adjective[-1] + "est"
    return adjective + "est"


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
    if most.startswith("most ") or not most.endswith("est"):
        return f"more {adjective}"
    return most[:-3] + "er"


def gerund(verb: str) -> str:
    """The -ing form: failing, using, running, lying."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if re.search(r".[^eoy]e$", verb):
        return verb[:-1] + "ing"
    if re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]", verb) or verb in ("begin", "forget", "commit", "admit"):
        return verb + verb[-1] + "ing"
    return verb + "ing"


def quality_noun(adjective: str) -> str:
    """A noun for what an adjective says: zippiness, walkability, abrasiveness.

    >>> quality_noun("zippy"), quality_noun("walkable"), quality_noun("photogenic"), quality_noun("not zippy")
    ('zippiness', 'walkability', 'photogenicness', 'lack of zippiness')
    """
    if adjective.startswith("not "):
        return f"lack of {quality_noun(adjective.removeprefix('not '))}"
    if re.search(r"[ai]ble$", adjective):
        return adjective[:-2] + "ility"
    if re.search(r"[^aeiou]y$", adjective):
        return adjective[:-1] + "iness"
    return adjective + "ness"


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
    cut = re.search(rf" (?:{PREPOSITION}) ", noun)
    head, rest = (noun, "") if cut is None else (noun[: cut.start()], noun[cut.start() :])
    start, blank, last = head.rpartition(" ")
    low = last.lower()
    irregulars = word_table("plurals")
    if irregular := low if low in word_set("unchanged") else irregulars.get(low):
        last = irregular if last == low else irregular.capitalize()
    elif low in irregulars.values() or re.search(r"(craft|fish|sheep|deer)$", low):
        pass
    elif "-in-" in low:  # mothers-in-law
        mother, _, law = last.partition("-")
        last = f"{plural(mother)}-{law}"
    elif compound := re.search(r"(tooth|foot|child)$", low):
        last = last[: compound.start()] + irregulars[compound[0]]
    elif re.search(r"(lea|shea|loa|wol|thie|hal|cal|el|scar|whar|hoo)f$", low):
        last = last[:-1] + "ves"
    elif re.search(r"(li|kni|wi)fe$", low):
        last = last[:-2] + "ves"
    elif low in ("man", "woman") or (re.search(r"(wo|s|e|y)man$", low) and low != "talisman"):
        last = last[:-2] + "en"
    elif low.endswith("person"):
        last = last[:-6] + ("People" if last.startswith("P") else "people")
    elif low.endswith("sis"):
        last = last[:-2] + "es"
    elif re.search(r"[^aeiou]y$", low):
        last = last[:-1] + "ies"
    elif re.search(_HARD_CH, low):
        last += "s"
    elif re.search(r"(s|x|z|ch|sh)$", low) and (not low.endswith("s") or re.search(r"[suiao]s$", low)):
        last += "es"
    elif not low.endswith("s"):  # what ends in any other s is a plural already: "animals"
        last += "s"
    return start + blank + last + rest


def uninflected(stem: str) -> str:
    """What stands before "-er", by the rules of spelling: zippi → zippy, redd → red, nic → nice."""
    if stem.endswith("i"):
        return stem[:-1] + "y"
    if re.search(r"([bdgmnprt])\1$", stem):
        return stem[:-1]
    if re.search(r"[uvcz]$|[^aeious]s$|oos$|^[^aeiou]+e$", stem) or re.fullmatch(
        r"[^aeiou]*[aeiou][^aeiouwxy]", stem
    ):
        return stem + "e"
    return stem
