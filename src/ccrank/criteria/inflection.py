"""English word forms by the rules of spelling: plurals, comparatives, superlatives, gerunds, nouns of adjectives."""

from __future__ import annotations

import re

SUPERLATIVES = {
    "good": "best",
    "bad": "worst",
    "far": "farthest",
    "many": "most",
    "few": "fewest",
    "little": "smallest",
    "northern": "northernmost",
    "north": "northernmost",
    "southern": "southernmost",
    "south": "southernmost",
    "eastern": "easternmost",
    "east": "easternmost",
    "western": "westernmost",
    "west": "westernmost",
    "nearby": "nearest",
    "gooey": "gooiest",
    # One syllable to the rules below, or one that takes no ending.
    **{
        word: f"most {word}"
        for word in (
            *("bent", "broke", "dried", "fluent", "fun", "grown", "just", "known", "loyal", "matt", "naive"),
            *("niche", "paid", "pious", "real", "right", "shut", "viable", "whole", "worn", "wrong"),
        )
    },
}
PLURALS = {
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "mouse": "mice",
    "dormouse": "dormice",
    "louse": "lice",
    "ox": "oxen",
    "die": "dice",
    "quiz": "quizzes",
    "lens": "lenses",
    "genus": "genera",
    "corpus": "corpora",
    "passer-by": "passers-by",
    **dict.fromkeys(("species", "series", "sheep", "deer", "people", "offspring", "headquarters")),
    **dict.fromkeys(("moose", "bison", "salmon", "trout", "shrimp", "squid", "crossroads", "means")),
    **{
        f"{stem}o": f"{stem}oes"
        for stem in ("her", "potat", "tomat", "volcan", "ech", "vet", "torped", "tornad")
    },
    **{f"{stem}o": f"{stem}oes" for stem in ("mosquit", "embarg", "domin", "buffal", "mang", "carg")},
    **{f"{stem}on": f"{stem}a" for stem in ("criteri", "phenomen", "automat")},
    **{
        f"{stem}um": f"{stem}a"
        for stem in ("bacteri", "dat", "medi", "strat", "curricul", "memorand", "symposi")
    },
    **{
        f"{stem}us": f"{stem}i"
        for stem in ("alumn", "cact", "fung", "nucle", "stimul", "syllab", "radi", "foc")
    },
    **{f"{stem}a": f"{stem}ae" for stem in ("larv", "alg", "vertebr", "alumn", "antenn")},
    "matrix": "matrices",
    "vertex": "vertices",
    "appendix": "appendices",
    "codex": "codices",
}
"""Nouns with a plural of their own; None for those whose plural is the same."""
_HARD_CH = r"(stoma|mon|ar|epo|eunu|lo)ch$"
COMPARATIVES = {"best": "better", "worst": "worse", "most": "more", "fewest": "fewer"}
"""Of superlatives that are not formed with -est."""
_NOUN_ENDINGS = (
    ("iness", ("y",)),
    ("ness", ("",)),
    ("ability", ("able",)),
    ("ibility", ("ible",)),
    ("ivity", ("ive",)),
    ("icity", ("ic",)),
    ("ality", ("al",)),
    ("osity", ("ous",)),
    ("arity", ("ar",)),
    ("ility", ("ile",)),
    ("ity", ("", "e", "ous")),
    ("ence", ("ent",)),
    ("ance", ("ant",)),
    ("ency", ("ent",)),
    ("ancy", ("ant",)),
    ("acy", ("ate",)),
)
PREPOSITION = r"of|in|per|by|for|at|to|on|from|with|since|among|between"


def superlative(adjective: str) -> str:
    """The superlative by the usual rules: largest, busiest, biggest, most expensive."""
    if adjective.startswith("not "):
        return f"least {adjective.removeprefix('not ')}"
    if " " in adjective:
        return f"most {adjective}"
    if adjective in SUPERLATIVES:
        return SUPERLATIVES[adjective]
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
    if most in COMPARATIVES:
        return COMPARATIVES[most]
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
    for ending, replacements in _NOUN_ENDINGS:
        if noun.endswith(ending) and len(noun) > len(ending) + 2:
            return tuple(noun[: -len(ending)] + one for one in replacements)
    return ()


def plural(noun: str) -> str:
    """The plural by the usual rules, of the noun before any preposition: countries, moons of Jupiter."""
    cut = re.search(rf" (?:{PREPOSITION}) ", noun)
    head, rest = (noun, "") if cut is None else (noun[: cut.start()], noun[cut.start() :])
    start, blank, last = head.rpartition(" ")
    low = last.lower()
    if low in PLURALS:
        irregular = PLURALS[low] or low
        last = irregular if last == low else irregular.capitalize()
    elif low in PLURALS.values() or re.search(r"(craft|fish|sheep|deer)$", low):
        pass
    elif "-in-" in low:  # mothers-in-law
        mother, _, law = last.partition("-")
        last = f"{plural(mother)}-{law}"
    elif compound := re.search(r"(tooth|foot|child)$", low):
        last = last[: compound.start()] + str(PLURALS[compound[0]])
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
