"""A phrase without its frame ("lowest price", "more dangerous", "how cheap it is") as a scale and its first pole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ccrank.criteria.inflection import (
    PREPOSITION,
    adjectives_of_noun,
    pattern,
    plural,
    table,
    word_set,
    word_table,
)
from ccrank.criteria.lexicon import (
    FALLBACK,
    known_adjectives,
    known_nouns,
    most_noun_words,
    scale_of_adjective,
    scale_of_noun,
)
from ccrank.criteria.meaning import (
    AMOUNTS,
    Meaning,
    has_object,
    head_is_known,
    name_with,
    of_adjective,
    of_amount,
    unknown_poles,
)
from ccrank.criteria.phrase_words import Inflected, adjective_of, amount_sign
from ccrank.errors import CcrankError

_COMPLEMENT = re.compile(rf"^(?:{PREPOSITION}|than|about|without|around|as)\b")


def meaning_of(text: str, category: str | None = None) -> Meaning:
    """The scale of a phrase, and the pole that comes first."""
    tokens = _tokens(text)
    if not tokens:
        raise CcrankError(f"{text!r} has no words; give a criterion, such as 'size' or 'least expensive'")
    dropped = _without_category(tokens, category)
    if dropped[-1] == "free" and len(dropped) > 1 and _is_thing(dropped[-2]):
        dropped[-2:] = ["free", "of", dropped[-2]]  # "gluten free"
    joined = " ".join(dropped)
    _refuse_several(joined)
    if len(dropped) == 1 < len(tokens) and (height := re.match(r"(high|low)(?:er|est)?$", joined)):
        return of_adjective(height[1])  # "highest mountain", of mountains
    is_noun = joined in known_nouns() and not (category and joined in table("senses"))  # "light", of meals
    if (is_noun and not joined.startswith("how ")) or pattern("compound").match(joined):
        return _noun(dropped, text)
    for rule in (_how, _lack, _verb, _amount, _adjective):
        meaning = rule(dropped)
        if meaning is not None:
            return meaning
    return _noun(dropped, text)


def _is_thing(word: str) -> bool:
    """Whether something may be free of it, as of gluten."""
    said_of_free = {"how", "is", "are", "most", "more", "least", "less"} | word_set("intensifiers")
    if word in said_of_free | word_set("negators") or word.endswith("ly"):
        return False
    return word in known_nouns() or adjective_of(word) is None


def _refuse_several(text: str) -> None:
    """Two adjectives are two criteria; two nouns may be one name, as in "health and safety"."""
    parts = re.split(r" (?:and|but|or|yet) ", text)
    heads = [adjective_of(part.split()[-1]) for part in parts if part.split()]
    if len(parts) > 1 and len(heads) == len(parts) and all(head is not None and head.known for head in heads):
        raise CcrankError(f"{text!r} is more than one criterion; rank by one at a time: {parts[0]!r}")


def _tokens(text: str) -> list[str]:
    """Lower-case words; a hyphen is taken apart unless the lexicon has the word with it."""
    tokens: list[str] = []
    plain = text.lower().replace("n't", " not").replace("'s", "")
    for word in re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", plain):
        first, *others = word.split("-")
        joined = "".join((first, *others))
        if not others or word in known_adjectives():
            tokens.append(word)
        elif joined in known_adjectives():
            tokens.append(joined)
        elif others[-1] == "free" and len(others) == 1:
            tokens += ["free", "of", first]
        else:
            tokens += ["not", *others] if first in ("non", "un", "anti") else [first, *others]
    return tokens


def _without_category(tokens: list[str], category: str | None) -> list[str]:
    """The phrase without a last word that only says what the items are."""
    generic = {*word_set("generic"), *((category.lower(), plural(category.lower())) if category else ())}
    return tokens[:-1] if len(tokens) > 1 and tokens[-1] in generic else tokens


def _how(tokens: list[str]) -> Meaning | None:
    """ "How expensive it is", "how much sugar it has", "how likely it is to fail"."""
    tokens = [token for token in tokens if token not in word_set("auxiliaries")]
    if tokens[:1] != ["how"] or len(tokens) < 2:
        return None
    if tokens[1] in ("little", "few") and tokens[2:]:
        much = _how(["how", "much" if tokens[1] == "little" else "many", *tokens[2:]])
        if much is not None:
            return much.flipped()
    phrases = [" ".join(tokens[:stop]) for stop in range(min(len(tokens), most_noun_words()), 1, -1)]
    if listed := next((phrase for phrase in phrases if phrase in known_nouns()), ""):
        rest = " ".join(tokens[len(listed.split()) :])
        return _listed(listed, f"to {rest}" if listed.endswith(" to") and rest else "")
    if tokens[1] in ("much", "many") and tokens[2:]:
        if tokens[1] == "many" or not _starts_subject(tokens[2:]):
            later = range(3, len(tokens))
            ends = (at for at in later if _noun_of_verb(tokens[at : at + 1]) or _starts_subject(tokens[at:]))
            return of_amount(1, tokens[2 : next(ends, None)], counted=tokens[1] == "many")
        verb = _noun_of_verb(tokens[2:])
        return of_amount(1, [verb]) if verb else None
    if tokens[1] == "well":
        verb = _noun_of_verb(tokens[2:])
        good = of_adjective("good")
        return replace(good, name=verb or good.name, of=verb)
    return _adjective(_subject_dropped(tokens[1:]))


def _listed(noun: str, complement: str = "") -> Meaning:
    """The scale of a phrase of the lexicon: "how likely it is to"."""
    scale = known_nouns()[noun]
    named = scale_of_adjective(scale.high[0])
    name, turned = (noun, False) if named is None else (named.noun, named.turned)
    name = name_with(name, complement)
    return Meaning(name, scale.low[0], scale.high[0], "lexicon", turned, complement=complement)


def _noun_of_verb(tokens: Sequence[str]) -> str:
    """What the first verb that measures says: "it costs" → "price"; empty if there is none."""
    verbs = word_table("verbs")
    return next((verbs[verb] for word in tokens if (verb := word.removesuffix("s")) in verbs), "")


def _starts_subject(tokens: Sequence[str]) -> bool:
    """Whether words begin with a subject or its verb: "it is", "the food is"."""
    subject = pattern("subject").match(" ".join(tokens))
    return bool(subject and subject[0])


def _subject_dropped(tokens: list[str]) -> list[str]:
    """ "Likely it is to fail" → "likely to fail"; "cheap the watch is" → "cheap"."""
    for at in range(1, len(tokens)):
        if _starts_subject(tokens[at:]):
            rest = pattern("subject").sub("", " ".join(tokens[at:]))
            return [*tokens[:at], *(rest.split() if _COMPLEMENT.match(rest) else ())]
    return tokens


def _lack(tokens: list[str]) -> Meaning | None:
    """ "Lack of importance", "without sugar", "free of errors"."""
    lack = pattern("lack").match(" ".join(tokens))
    return of_amount(-1, _undetermined(lack[1].split())) if lack else None


def _verb(tokens: list[str]) -> Meaning | None:
    """ "Costs less", "weighs the most", "lasts longer", "tastes better"."""
    noun = _noun_of_verb(tokens[:1])
    rest = _undetermined(tokens[1:])
    if not noun or not rest:
        has_adverb = len(tokens) > 2 and len(tokens[0]) > 3 and adjective_of(tokens[-1])
        return _verb(tokens[1:]) if has_adverb else None
    sign = amount_sign(rest[0])
    if sign and (len(rest) == 1 or _COMPLEMENT.match(rest[1])):
        return of_amount(sign, [noun])
    inflected = adjective_of(rest[0])
    return _before_noun(inflected, 1, [noun], inflected.degree) if inflected is not None else None


def _amount(tokens: list[str]) -> Meaning | None:
    """ "Lowest price", "fewest legs", "low in sugar", "highest rated", "rich in iron"."""
    tokens = _undetermined(tokens)
    head, rest = tokens[0], tokens[1:]
    sign = amount_sign(head)
    noun = word_table("participles").get(rest[0]) if rest else None
    if noun and (sign or head in ("top", "best", "worst")):
        return of_amount(-1 if sign < 0 or head == "worst" else 1, [noun])
    things = rest[1:] if rest[:1] in (["in"], ["of"]) else rest
    if things and rest[0] == "in" and re.fullmatch("rich(est)?|poor(est)?|abundant|lacking", head):
        return of_amount(-1 if head.startswith(("poor", "lack")) else 1, things)
    if not sign:
        return None
    if not things or all(word in ("to", "and", "or") or amount_sign(word) for word in rest):
        raise CcrankError(f"{head!r} of what? Name the scale too, as in '{head} price' or '{head} risk'")
    if head in ("most", "more", "least", "less", "lesser") and _is_adjective(rest):
        return None
    if head in ("great", "greater", "greatest") and not head_is_known(" ".join(rest)):
        return None
    counted = head in ("few", "fewer", "fewest", "many")
    meaning = of_amount(sign, _undetermined(things), counted)
    if head in ("min", "minimum"):
        return replace(meaning, doubt=f"{head!r} is taken to mean the lowest first")
    return meaning


def _is_adjective(tokens: Sequence[str]) -> bool:
    """Whether "most …" goes on with an adjective, not with a noun as in "most goals"."""
    first = tokens[0]
    if " ".join(tokens) in word_table("idioms"):
        return True
    if " ".join(tokens) in known_nouns() and (len(tokens) > 1 or first not in known_adjectives()):
        return False
    if f"how {' '.join(tokens[:2])}" in known_nouns():
        return True
    inflected, unlisted = adjective_of(first), first not in known_nouns()
    if inflected is not None and (inflected.known or unlisted):
        return True
    second = adjective_of(tokens[1]) if len(tokens) > 1 else None
    if second is not None and (first.endswith("ly") or (second.known and len(tokens) == 2 and unlisted)):
        return True
    return _is_loose_adjective(first)


def _is_loose_adjective(word: str) -> bool:
    """Whether an unknown word after "most" may be an adjective by its ending."""
    ends_like_adjective = pattern("loose_adjective").match(word) and not pattern("noun_ending").match(word)
    return word not in known_nouns() and bool(ends_like_adjective)


def _adjective(tokens: list[str]) -> Meaning | None:
    """An adjective of any degree, negated or not, with what follows it: "least likely to fail", "cheapest watch"."""
    sign, degree, start = 1, "", 0
    while start < len(tokens) - 1:
        word = tokens[start]
        if word in ("more", "most"):
            degree = "comparative" if word == "more" else "superlative"
        elif word in ("less", "least", "lesser"):
            sign, degree = -sign, "superlative"
        elif word in word_set("negators"):
            sign, degree = -sign, degree or "negated"
            if tokens[start + 1] in ("much", "many", "high", "low", "enough"):
                return meaning_of(" ".join(tokens[start + 1 :])).signed(sign)
        elif word not in word_set("intensifiers"):
            break
        start += 1
    head, rest = tokens[start], tokens[start + 1 :]
    if not degree and head in known_nouns() and rest[:1] == ["of"]:
        return None  # "level of noise", "content of sugar": a noun with the spelling of an adjective
    if rest and (two := f"how {head} {rest[0]}") in known_nouns():
        return _listed(two).signed(sign)
    if rest and head.endswith("ly") and adjective_of(rest[0]) and head not in known_adjectives():
        return _adjective([*tokens[:start], *rest])
    if idiom := word_table("idioms").get(" ".join(tokens[start:])):
        return of_adjective(idiom).signed(sign)
    if head == "free" and rest[:1] in (["of"], ["from"]) and rest[1:]:
        return of_amount(-sign, rest[1:])
    inflected = adjective_of(head)
    behind = adjective_of(rest[0]) if len(rest) == 1 else None
    graded = behind if behind is not None and behind.known and behind.degree != "positive" else None
    if graded is not None and (inflected is None or not inflected.known):
        return _before_noun(graded, sign, [], graded.degree)  # an adverb: "founded earliest", "runs faster"
    if inflected is None and degree and _is_loose_adjective(head):
        inflected = Inflected(head, "positive", False)
    if inflected is None:
        if behind is not None and behind.known and rest[0] not in known_nouns():
            meaning = of_adjective(behind.adjective)  # "energy efficient"
            return replace(meaning, name=f"{head} {meaning.name}", adjective="").signed(sign)
        return meaning_of(" ".join(tokens[start:])).signed(sign) if degree == "negated" and start else None
    return _before_noun(inflected, sign, rest, degree or inflected.degree)


def _before_noun(inflected: Inflected, sign: int, rest: list[str], degree: str) -> Meaning | None:
    """An adjective and the words after it: a complement, a noun that it describes, or what the items are."""
    adjective, text = inflected.adjective, " ".join(rest)
    if adjective == "far" and rest and (side := re.match(r"(north|south|east|west)", rest[0])):
        adjective, text, rest = f"{side[1]}ern", " ".join(rest[1:]), rest[1:]
    if not rest or _COMPLEMENT.match(text):
        complement = "" if text.startswith("than") else text
        if idiom := word_table("idioms").get(f"{adjective} {complement}"):
            return of_adjective(idiom).signed(sign)
        in_terms = re.match(r"in (?:terms of )?(.+)", complement)
        if in_terms and head_is_known(in_terms[1]):
            return _before_noun(inflected, sign, in_terms[1].split(), "superlative")
        if adjective in ("hard", "tough") and complement.startswith("to "):
            return replace(of_adjective("difficult", complement), high="hard").signed(sign)
        return of_adjective(adjective, complement).signed(sign)
    good = adjective in word_set("good")
    judges = good or adjective in word_set("bad")
    if head_is_known(text):
        scale = scale_of_noun(text)
        assert scale is not None
        if adjective in (*scale.high, *scale.low):
            down = adjective in scale.low
            low = (scale.high if down else scale.low)[0]
            of = text if adjective in AMOUNTS or judges else ""
            meaning = Meaning(text, low, adjective, "lexicon", down, of=of)
        elif judges:
            meaning = Meaning(text, "bad" if good else "good", adjective, "lexicon", of=text)
        elif size := word_table("sizes").get(adjective):
            return of_amount(sign * size, rest)
        elif degree == "positive":
            return None  # "natural beauty", "physical strength": a noun
        else:
            meaning = replace(of_adjective(adjective), name=text, adjective="")
        return meaning.signed(sign)
    meaning = replace(of_adjective(adjective), describes=text)
    if judges:
        meaning = replace(meaning, name=f"{meaning.name} of the {text}")
    return meaning.signed(sign)


def _noun(tokens: list[str], typed: str) -> Meaning:
    """A noun phrase: its scale, the scale of an adjective that it is derived from, else low and high with a doubt."""
    text = " ".join(tokens)
    name = " ".join(typed.split())
    scale = scale_of_noun(text)
    if scale is not None:
        of = name if {scale.high[0], scale.low[0]} & AMOUNTS.keys() or has_object(text) else ""
        meaning = Meaning(name, scale.low[0], scale.high[0], "lexicon", plain=True, of=of)
        adjectives = scale_of_adjective(text) if len(tokens) == 1 else None
        if adjectives is not None and not {*adjectives.low} & {*scale.low}:
            first = meaning.superlative_of(meaning.high)
            doubt = f"{name!r} is taken as {first} first; for the adjective, say 'most {text}'"
            return replace(meaning, doubt=doubt)
        return meaning
    head = re.split(rf" (?:{PREPOSITION})\b", text)[0].rpartition(" ")[2]
    for adjective in adjectives_of_noun(head):
        if scale_of_adjective(adjective) is not None or head.endswith(("ness", "ability", "ibility")):
            return replace(of_adjective(adjective), name=name, reversed=False, adjective="")
    doubt = unknown_poles(name)
    return Meaning(name, FALLBACK.low[0], FALLBACK.high[0], "fallback", plain=True, of=name, doubt=doubt)


def _undetermined(tokens: list[str]) -> list[str]:
    return tokens[1:] if len(tokens) > 1 and tokens[0] in ("the", "a", "an", "any") else tokens
