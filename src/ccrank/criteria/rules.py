"""A phrase without its frame ("lowest price", "more dangerous", "how cheap it is") as a scale and its first pole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ccrank.criterion_phrase import words as w
from ccrank.criterion_phrase.meaning import (
    AMOUNTS,
    Meaning,
    head_is_known,
    name_with,
    of_adjective,
    of_amount,
    unknown_poles,
)
from ccrank.criterion_phrase.words import Inflected, adjective_of
from ccrank.errors import CcrankError
from ccrank.inflection import PREPOSITION, adjectives_of_noun, plural
from ccrank.lexicon import (
    FALLBACK,
    Poles,
    known_adjectives,
    known_nouns,
    name_of_scale,
    scale_of_adjective,
    scale_of_noun,
)

_GENERIC = frozenset(
    ("one", "ones", "item", "items", "thing", "things", "option", "options", "choice", "choices")
)
_SUBJECT = re.compile(
    r"^(?:it|they|he|she|this|that|these|those|you|we|people|(?:the|a|an|each|every) \w+)?\s*"
    r"(?:is|are|was|were|be|has|have|had|feels?|looks?|sounds?|seems?|tastes?|gets?|becomes?|lies?|would be)?\b\s*"
)
_LOOSE_ADJECTIVE = re.compile(r".{2,}(y|al|ent|ant|ing|ar|ory|ary|en|id|ile|ate|ose|esque|ed)$")
_NOUN_ENDING = re.compile(
    r".*(ity|ency|ancy|logy|graphy|ment|ness|tion|sion|ship|ism|money|ary|ery|story|thing)$"
)
_COMPLEMENT = re.compile(rf"^(?:{PREPOSITION}|than|about|without|around|as)\b")


def meaning_of(text: str, category: str | None = None) -> Meaning:
    """The scale of a phrase, and the pole that comes first.

    Parameters
    ----------
    text
        The phrase, without a frame such as "sort by" and without a direction such as "ascending".
    category
        What the items are; a phrase may name it: "cheapest watch".
    """
    tokens = _tokens(text)
    if not tokens:
        raise CcrankError(f"{text!r} has no words; give a criterion, such as 'size' or 'least expensive'")
    dropped = _without_category(tokens, category)
    joined = " ".join(dropped)
    _refuse_several(joined)
    if len(dropped) == 1 < len(tokens) and (height := re.match(r"(high|low)(?:er|est)?$", joined)):
        return of_adjective(height[1])  # "highest mountain", of mountains
    if (joined in known_nouns() and not joined.startswith("how ")) or w.COMPOUNDS.match(joined):
        return _noun(dropped, text)
    for rule in (_how, _lack, _verb, _amount, _adjective):
        found = rule(dropped)
        if found is not None:
            return found
    return _noun(dropped, text)


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
    generic = {*_GENERIC, *(([category.lower(), plural(category.lower())]) if category else ())}
    return tokens[:-1] if len(tokens) > 1 and tokens[-1] in generic else tokens


def _how(tokens: list[str]) -> Meaning | None:
    """ "How expensive it is", "how much sugar it has", "how likely it is to fail"."""
    if tokens[0] != "how" or len(tokens) < 2:
        return None
    phrases = [" ".join(tokens[:stop]) for stop in range(len(tokens), 1, -1)]
    listed = next((phrase for phrase in phrases if phrase in known_nouns()), None)
    if listed is not None:
        scale = known_nouns()[listed]
        rest = " ".join(tokens[len(listed.split()) :])
        named = name_of_scale(scale.high[0])
        name, reverse = named if named else (listed, False)
        complement = f"to {rest}" if listed.endswith(" to") and rest else ""
        return Meaning(
            name_with(name, complement),
            scale.low[0],
            scale.high[0],
            "lexicon",
            reverse,
            complement=complement,
        )
    if tokens[1] in ("much", "many") and tokens[2:]:
        if tokens[1] == "many" or not _SUBJECT.match(" ".join(tokens[2:]))[0]:  # type: ignore[index]
            stop = next(
                (index for index, word in enumerate(tokens) if index > 2 and _noun_of_verb([word])), None
            )
            noun = tokens[2 : min(filter(None, (stop, _subject_at(tokens, 3))), default=None)]
            return of_amount(1, noun, counted=tokens[1] == "many")
        verb = _noun_of_verb(tokens[2:])
        return of_amount(1, [verb]) if verb else None
    if tokens[1] == "well":
        verb = _noun_of_verb(tokens[2:])
        good = of_adjective("good")
        return replace(good, name=verb or good.name, of=verb)
    return _adjective(_subject_dropped(tokens[1:]))


def _noun_of_verb(tokens: Sequence[str]) -> str:
    """What the first verb that measures says: "it costs" → "price"; empty if there is none."""
    return next((w.VERBS[one] for word in tokens if (one := word.removesuffix("s")) in w.VERBS), "")


def _subject_at(tokens: list[str], start: int) -> int | None:
    """Where a subject or its verb begins ("it is", "the food is"); None if nowhere."""
    ends = (index for index in range(start, len(tokens)) if _SUBJECT.match(" ".join(tokens[index:]))[0])  # type: ignore[index]
    return next(ends, None)


def _subject_dropped(tokens: list[str]) -> list[str]:
    """ "Likely it is to fail" → "likely to fail"; "cheap the watch is" → "cheap"."""
    start = _subject_at(tokens, 1)
    if start is None:
        return tokens
    rest = _SUBJECT.sub("", " ".join(tokens[start:])).split()
    return [*tokens[:start], *(rest if _COMPLEMENT.match(" ".join(rest)) else ())]


def _lack(tokens: list[str]) -> Meaning | None:
    """ "Lack of importance", "without sugar", "free of errors"."""
    found = re.match(rf"(?:{w.LACK}) (.+)", " ".join(tokens))
    if not found:
        return None
    return of_amount(-1, _undetermined(found[1].split()))


def _verb(tokens: list[str]) -> Meaning | None:
    """ "Costs less", "weighs the most", "lasts longer", "tastes better"."""
    noun = w.VERBS.get(tokens[0]) or w.VERBS.get(tokens[0].removesuffix("s"))
    rest = _undetermined(tokens[1:])
    if noun is None or not rest:
        return (
            _verb(tokens[1:]) if len(tokens) > 2 and adjective_of(tokens[-1]) and len(tokens[0]) > 3 else None
        )
    if rest[0] in w.MUCH | w.LITTLE and (len(rest) == 1 or _COMPLEMENT.match(rest[1])):
        return of_amount(1 if rest[0] in w.MUCH else -1, [noun])
    found = adjective_of(rest[0])
    if found is None:
        return None
    return _before_noun(found, 1, [noun], found.degree)


def _amount(tokens: list[str]) -> Meaning | None:
    """ "Lowest price", "fewest legs", "low in sugar", "highest rated", "rich in iron"."""
    tokens = _undetermined(tokens)
    head, rest = tokens[0], tokens[1:]
    if (
        rest
        and (noun := w.PARTICIPLES.get(rest[0]))
        and (head in w.MUCH | w.LITTLE or head in ("top", "best", "worst"))
    ):
        return of_amount(-1 if head in w.LITTLE or head == "worst" else 1, [noun])
    if (
        head in ("rich", "poor", "abundant", "lacking", "richest", "poorest")
        and rest[:1] == ["in"]
        and rest[1:]
    ):
        return of_amount(-1 if head.startswith(("poor", "lack")) else 1, rest[1:])
    if head not in w.MUCH | w.LITTLE:
        return None
    if not rest or all(word in ("to", "and", "or") or word in w.MUCH | w.LITTLE for word in rest):
        raise CcrankError(f"{head!r} of what? Name the scale too, as in '{head} price' or '{head} risk'")
    if head in ("most", "more", "least", "less", "lesser") and _is_adjective(rest):
        return None
    if head in ("great", "greater", "greatest") and not head_is_known(" ".join(rest)):
        return None
    rest = _undetermined([word for index, word in enumerate(rest) if index or word not in ("of", "in")])
    found = of_amount(1 if head in w.MUCH else -1, rest, counted=head in ("few", "fewer", "fewest", "many"))
    if head in ("min", "minimum"):
        return replace(found, doubt=f"{head!r} is taken to mean the lowest first")
    return found


def _is_adjective(tokens: Sequence[str]) -> bool:
    """Whether "most …" goes on with an adjective, not with a noun as in "most goals"."""
    first = tokens[0]
    if " ".join(tokens) in known_nouns() and (len(tokens) > 1 or first not in known_adjectives()):
        return False
    if f"how {' '.join(tokens[:2])}" in known_nouns():
        return True
    found = adjective_of(first)
    if found is not None and (found.known or first not in known_nouns()):
        return True
    if len(tokens) > 1 and first.endswith("ly") and adjective_of(tokens[1]):
        return True
    if (
        len(tokens) == 2
        and first not in known_nouns()
        and (second := adjective_of(tokens[1]))
        and second.known
    ):
        return True
    return (
        first not in known_nouns() and bool(_LOOSE_ADJECTIVE.match(first)) and not _NOUN_ENDING.match(first)
    )


def _adjective(tokens: list[str]) -> Meaning | None:
    """An adjective of any degree, negated or not, with what follows it: "least likely to fail", "cheapest watch"."""
    sign, degree, start = 1, "", 0
    while start < len(tokens) - 1:
        word = tokens[start]
        if word in ("more", "most"):
            degree = "comparative" if word == "more" else "superlative"
        elif word in ("less", "least", "lesser"):
            sign, degree = -sign, "superlative"
        elif word in w.NEGATORS:
            sign, degree = -sign, degree or "negated"
            if tokens[start + 1] in ("much", "many", "high", "low", "enough"):
                found = meaning_of(" ".join(tokens[start + 1 :]))
                return found if sign > 0 else found.flipped()
        elif word not in w.INTENSIFIERS:
            break
        start += 1
    head, rest = tokens[start], tokens[start + 1 :]
    if not degree and head in known_nouns() and rest[:1] == ["of"]:
        return None  # "level of noise", "content of sugar": a noun, although an adjective is spelled alike
    two = f"how {head} {rest[0]}" if rest else ""
    if two in known_nouns():
        scale = known_nouns()[two]
        name, reverse = name_of_scale(scale.high[0]) or (two, False)
        found = Meaning(name, scale.low[0], scale.high[0], "lexicon", reverse)
        return found if sign > 0 else found.flipped()
    if rest and head.endswith("ly") and adjective_of(rest[0]) and head not in known_adjectives():
        return _adjective([*tokens[:start], *rest])
    inflected = adjective_of(head)
    behind = adjective_of(rest[0]) if len(rest) == 1 else None
    graded = behind if behind is not None and behind.known and behind.degree != "positive" else None
    if graded is not None and (inflected is None or not inflected.known):
        return _before_noun(graded, sign, [], graded.degree)  # an adverb: "founded earliest", "runs faster"
    loose = _LOOSE_ADJECTIVE.match(head) and not _NOUN_ENDING.match(head) and head not in known_nouns()
    if inflected is None and degree and loose:
        inflected = Inflected(head, "positive", False)
    if inflected is None:
        compound = adjective_of(rest[0]) if len(rest) == 1 else None
        if compound is not None and compound.known and rest[0] not in known_nouns():
            found = of_adjective(compound.adjective)  # "energy efficient"
            found = replace(found, name=f"{head} {found.name}")
            return found if sign > 0 else found.flipped()
        if degree == "negated" and start:
            found = meaning_of(" ".join(tokens[start:]))
            return found if sign > 0 else found.flipped()
        return None
    return _before_noun(inflected, sign, rest, degree or inflected.degree)


def _before_noun(inflected: Inflected, sign: int, rest: list[str], degree: str) -> Meaning | None:
    """An adjective and the words behind it, which are a complement, a noun that it is said of, or the items' own."""
    adjective, text = inflected.adjective, " ".join(rest)
    if adjective == "far" and rest and (side := re.match(r"(north|south|east|west)", rest[0])):
        adjective, text, rest = f"{side[1]}ern", " ".join(rest[1:]), rest[1:]
    if not rest or _COMPLEMENT.match(text):
        complement = "" if text.startswith("than") else text
        in_terms = re.match(r"in (?:terms of )?(.+)", complement)
        if in_terms and head_is_known(in_terms[1]):
            return _before_noun(inflected, sign, in_terms[1].split(), "superlative")
        if adjective in ("hard", "tough") and complement.startswith("to "):
            found = replace(of_adjective("difficult", complement), high="hard")
        else:
            found = of_adjective(adjective, complement)
        return found if sign > 0 else found.flipped()
    if head_is_known(text):
        scale = scale_of_noun(text)
        assert scale is not None
        if adjective in scale.high or adjective in scale.low:
            up = adjective in scale.high
            low, high = (scale.low[0], adjective) if up else (scale.high[0], adjective)
            of = text if adjective in AMOUNTS or adjective in w.GOOD | w.BAD else ""
            found = Meaning(text, low, high, "lexicon", not up, of=of)
        elif adjective in w.GOOD | w.BAD:
            opposite = "bad" if adjective in w.GOOD else "good"
            found = Meaning(text, opposite, adjective, "lexicon", of=text)
        elif adjective in w.SIZES:
            return of_amount(sign * w.SIZES[adjective], rest)
        elif degree == "positive":
            return None  # "natural beauty", "physical strength": a noun
        else:
            found = replace(of_adjective(adjective), name=text)
        return found if sign > 0 else found.flipped()
    found = of_adjective(adjective)
    if adjective in w.GOOD | w.BAD:
        found = replace(found, name=f"{found.name} of the {text}")
    return found if sign > 0 else found.flipped()


def _noun(tokens: list[str], typed: str) -> Meaning:
    """A noun phrase as it stands: its own scale, one by its adjective, else low and high with a doubt."""
    text = " ".join(tokens)
    name = " ".join(typed.split())
    scale = scale_of_noun(text)
    if scale is not None:
        found = Meaning(name, scale.low[0], scale.high[0], "lexicon", plain=True, of=_if_amount(scale, name))
        also = scale_of_adjective(text) if len(tokens) == 1 else None
        if also is not None and not {*also.low} & {*scale.low}:
            first = found.superlative_of(found.high)
            doubt = f"{name!r} is taken as {first} first; for the adjective, say 'most {text}'"
            return replace(found, doubt=doubt)
        return found
    head = re.split(rf" (?:{PREPOSITION})\b", text)[0].rpartition(" ")[2]
    for adjective in adjectives_of_noun(head):
        known = scale_of_adjective(adjective) is not None or head.endswith(("ness", "ability", "ibility"))
        if known:
            found = of_adjective(adjective)
            return replace(found, name=name, reversed=False)
    doubt = unknown_poles(name)
    return Meaning(name, FALLBACK.low[0], FALLBACK.high[0], "fallback", plain=True, of=name, doubt=doubt)


def _if_amount(scale: Poles, name: str) -> str:
    return name if scale.high[0] in AMOUNTS or scale.low[0] in AMOUNTS else ""


def _undetermined(tokens: list[str]) -> list[str]:
    return tokens[1:] if len(tokens) > 1 and tokens[0] in ("the", "a", "an", "any") else tokens
