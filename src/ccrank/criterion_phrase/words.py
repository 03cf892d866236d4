"""Single words of a criterion phrase: degrees of adjectives, words for much and little, verbs that measure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ccrank.inflection import uninflected
from ccrank.lexicon import IRREGULAR, is_listed_negation, known_adjectives, known_nouns

Degree = Literal["positive", "comparative", "superlative"]

MUCH = frozenset(
    (
        *("high", "higher", "highest", "many", "much", "more", "most", "great", "greater", "greatest"),
        *("max", "maximum", "maximal", "utmost", "lots", "plenty"),
    )
)
LITTLE = frozenset(
    (
        *("low", "lower", "lowest", "few", "fewer", "fewest", "less", "lesser", "least", "little"),
        *("min", "minimum", "minimal", "scant", "reduced"),
    )
)
"""Said of an amount: "lowest price", "fewest calories", "less noise"."""
SIZES = {
    "large": 1,
    "big": 1,
    "huge": 1,
    "great": 1,
    "long": 1,
    "small": -1,
    "little": -1,
    "tiny": -1,
    "short": -1,
}
"""Before the noun of an amount these say how much: "smallest carbon footprint", "shortest distance"."""
GOOD = frozenset(("good", "great", "excellent"))
BAD = frozenset(("bad", "poor", "terrible", "awful"))
INTENSIFIERS = frozenset(
    (
        *(
            "the",
            "a",
            "an",
            "very",
            "really",
            "so",
            "quite",
            "extremely",
            "highly",
            "truly",
            "too",
            "rather",
            "overly",
        ),
        *(
            "particularly",
            "especially",
            "much",
            "far",
            "even",
            "slightly",
            "fairly",
            "super",
            "that",
            "actually",
            "all",
        ),
        *("absolutely", "significantly", "somewhat", "relatively", "generally", "overall", "be", "being"),
    )
)
NEGATORS = frozenset(("not", "never", "hardly", "barely", "isnt", "arent", "doesnt", "dont", "non", "un"))
LACK = (
    r"(?:a |the )?(?:lack|absence|shortage|dearth|want) of|lacking(?: in)?|without|free (?:of|from)|"
    r"devoid of|short on|low on|no"
)
"""Before a noun, these ask for as little of it as possible."""
COMPOUNDS = re.compile(
    r"(?:lower (?:back|body|limb)|low(?:er)? (?:class|house|season|tide)|high (?:school|street|season|tide)|"
    r"little (?:finger|toe))\b"
)
"""Nouns that begin with a word for much or little."""
SUBSTANCES = re.compile(r"\b(?:sugar|salt|alcohol|abv)\b")
"""Of these there is little where the lexicon's scale has another taste: what is low in sugar is not sour."""
VERBS = {
    "cost": "price",
    "weigh": "weight",
    "earn": "income",
    "last": "duration",
    "take": "duration",
    "live": "lifespan",
    "sell": "sales",
    "score": "score",
    "spend": "spending",
    "consume": "consumption",
    "produce": "production",
    "rain": "rainfall",
    "pollute": "pollution",
    "grow": "growth",
    "perform": "performance",
    "taste": "taste",
    "smell": "smell",
    "matter": "importance",
    "hurt": "pain",
    "sleep": "sleep",
    "pay": "pay",
}
"""Verbs that say how much: "which costs less", "weighs more", "lasts longer"."""

_NO_COMPARATIVE = frozenset(
    (
        *(
            "number",
            "matter",
            "other",
            "another",
            "rather",
            "either",
            "after",
            "ever",
            "never",
            "over",
            "under",
            "per",
        ),
        *(
            "carrier",
            "supplier",
            "soldier",
            "barrier",
            "courier",
            "frontier",
            "tier",
            "pier",
            "premier",
            "glacier",
        ),
        *(
            "heater",
            "freezer",
            "leader",
            "killer",
            "player",
            "user",
            "buyer",
            "older-than",
        ),
    )
)
_NO_SUPERLATIVE = frozenset(
    (
        *(
            "interest",
            "forest",
            "harvest",
            "rest",
            "test",
            "request",
            "contest",
            "west",
            "guest",
            "chest",
            "quest",
        ),
        *(
            "invest",
            "protest",
            "nest",
            "pest",
            "vest",
            "crest",
            "conquest",
            "midwest",
            "arrest",
            "digest",
            "suggest",
        ),
        *(
            "behest",
            "inquest",
            "bequest",
            "manifest",
            "tempest",
            "everest",
            "honest",
            "modest",
            "earnest",
            "dishonest",
        ),
    )
)
_ADJECTIVE_ENDING = re.compile(
    r".+([bdfglmnprt])\1y$|.{3,}(able|ible|ic|ous|ive|ful|less|ish|[^e]ed|worthy|like|proof|some|genic)$"
)
_NO_ADJECTIVE = frozenset(
    (
        *(
            "music",
            "traffic",
            "topic",
            "logic",
            "public",
            "fabric",
            "clinic",
            "statistic",
            "metric",
            "panic",
            "magic",
        ),
        *(
            "critic",
            "graphic",
            "table",
            "vegetable",
            "cable",
            "variable",
            "archive",
            "motive",
            "drive",
            "olive",
        ),
        *(
            "incentive",
            "detective",
            "perspective",
            "initiative",
            "alternative",
            "objective",
            "income",
            "outcome",
        ),
        *(
            "arithmetic",
            "plastic",
            "republic",
            "rhetoric",
            "cosmetic",
            "mechanic",
            "comic",
            "epidemic",
            "dish",
            "fish",
        ),
    )
)


class Inflected(NamedTuple):
    """An adjective as it stands in a phrase."""

    adjective: str
    """The positive form."""
    degree: Degree
    known: bool
    """Whether the lexicon has it."""


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
    if word in IRREGULAR and IRREGULAR[word] not in ("high", "low", "few"):
        return Inflected(IRREGULAR[word], "superlative" if word.endswith("st") else "comparative", True)
    negated = re.match(r"(?:un|in|im|ir|il|dis|non)(.{4,})", word)
    if negated and negated[1] in known_adjectives():
        return Inflected(word, "positive", True)
    for ending, degree, exceptions in (
        ("est", "superlative", _NO_SUPERLATIVE),
        ("er", "comparative", _NO_COMPARATIVE),
    ):
        if word.endswith(ending) and word not in exceptions and word not in known_nouns():
            found = _uninflected(word.removesuffix(ending))
            if found is not None:
                return Inflected(found, degree, True)  # type: ignore[arg-type]
            if (ending == "est" and len(word) > 5) or (word.endswith("ier") and len(word) > 5):
                return Inflected(uninflected(word.removesuffix(ending)), degree, False)  # type: ignore[arg-type]
    if looks_like_adjective(word):
        return Inflected(word, "positive", False)
    return None


def _uninflected(stem: str) -> str | None:
    """The adjective of the lexicon behind a stem: larg → large, bigg → big, happi → happy."""
    guesses = [stem, stem + "e", stem[:-1]]
    if stem.endswith("i"):
        guesses = [stem[:-1] + "y", stem[:-1] + "ey"]
    return next((one for one in guesses if one in known_adjectives() or is_listed_negation(one)), None)


def looks_like_adjective(word: str) -> bool:
    """Whether an unknown word ends as adjectives do; few nouns of the same ending are used as a criterion."""
    return bool(_ADJECTIVE_ENDING.match(word)) and word not in _NO_ADJECTIVE and word not in known_nouns()


OF_ACTIONS = frozenset(
    ("probability", "difficulty", "price", "speed", "danger", "complexity", "interest", "certainty")
)
"""Scales of things done: "easiest to learn" is about the difficulty of learning, "similar to tea" about resemblance."""
PARTICIPLES = {
    "rated": "rating",
    "ranked": "rank",
    "paid": "pay",
    "paying": "pay",
    "priced": "price",
    "scoring": "score",
    "grossing": "box office",
    "earning": "income",
    "selling": "sales",
    "valued": "value",
}
"""Behind a word for much or little: "highest rated", "lowest paid", "top scoring", "best selling"."""
