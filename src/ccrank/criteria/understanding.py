"""Any phrase for a criterion as a scale and a direction, or a refusal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace

from ccrank.criteria.inflection import quality_noun, superlative, word_set
from ccrank.criteria.lexicon import (
    Poles,
    known_adjectives,
    known_nouns,
    poles_of,
    scale_between,
    scale_of_adjective,
    scale_of_noun,
)
from ccrank.criteria.meaning import AMOUNTS, Meaning, senses_of, unknown_poles
from ccrank.criteria.phrase_frames import Framed, without_frame
from ccrank.criteria.phrase_words import adjective_of, did_you_mean
from ccrank.criteria.rules import meaning_of
from ccrank.errors import CcrankError
from ccrank.task import MAX_PHRASE, Criterion, Understood, check_length

Propose = Callable[[str], str | None]
"""An adjective → its opposite by a model; None where the model is not sure."""


def understand(phrase: str, *, category: str | None = None, propose: Propose | None = None) -> Understood:
    """The scale and the direction that a phrase means.

    A noun or a plain adjective means the most first: "price" and "expensive" put the most expensive first, "safety" the
    safest. Superlatives, "least", "lowest", "ascending", "low to high" and "from A to B" say what comes first.
    """
    return _understood(phrase, _meaning(phrase, category), propose)


def criterion_of(
    phrase: str,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    propose: Propose | None = None,
) -> Criterion:
    """A criterion from a phrase, with its `understood`; given poles and a given comparative take precedence.

    A noun makes the criterion of that name, with nothing else set.
    """
    given = Criterion(phrase.strip() if isinstance(phrase, str) else phrase, comparative, poles, category)
    if comparative is not None or poles is not None:
        return _with_given(given)
    meaning = _meaning(given.name, category)
    understood = _understood(given.name, meaning, propose)
    if meaning.plain:
        return replace(given, name=meaning.name, understood=understood)
    return in_sense(given, understood)


def in_sense(criterion: Criterion, sense: Understood) -> Criterion:
    """The criterion with a scale and a direction that its phrase may mean."""
    return Criterion(sense.name, sense.comparative, sense.poles, criterion.category, sense.reversed, sense)


def resolved(criterion: Criterion, propose: Propose | None = None) -> Criterion:
    """The criterion with its `understood`; a criterion with a name alone is understood as a phrase."""
    known = criterion.understood
    if known is not None and (propose is None or known.source != "negation"):
        return criterion
    if known is not None:
        return criterion_of(known.phrase, category=criterion.category, propose=propose)
    if criterion.comparative is None and criterion.poles is None and not criterion.reversed:
        return criterion_of(criterion.name, category=criterion.category, propose=propose)
    return replace(criterion, understood=_of_criterion(criterion))


def _with_given(given: Criterion) -> Criterion:
    """A criterion with given poles or a given comparative; warns if its phrase says the opposite."""
    try:
        meaning = _meaning(given.name, given.category)
    except CcrankError:  # the given poles or comparative are enough
        return replace(given, understood=_of_criterion(given))
    same = (sense for sense in senses_of(meaning) if {sense.low, sense.high} == {*(given.poles or ())})
    meaning = next(same, meaning)
    turned = _is_turned(poles_of(given), meaning)
    criterion = replace(given, name=meaning.name, reversed=meaning.reversed != turned)
    understood = replace(_of_criterion(criterion), phrase=given.name)
    if turned and not meaning.plain:
        said = meaning.superlative_of(meaning.high)
        says, decides = ("poles say", "decide") if given.poles else ("comparative says", "decides")
        warning = f"{given.name!r} says {said} first, but the given {says} {understood.first}, and {decides} the order"
        understood = replace(understood, warning=warning)
    return replace(criterion, understood=understood)


def _of_criterion(criterion: Criterion) -> Understood:
    """The meaning of a criterion with given poles or a given comparative."""
    scale = poles_of(criterion)
    low, high = scale.low[0], scale.high[0]
    source = {"poles": "given", "comparative": "given", "name": "lexicon"}.get(scale.source, scale.source)
    of = criterion.name if high in AMOUNTS else ""
    doubt = unknown_poles(criterion.name) if source == "fallback" else ""
    meaning = Meaning(criterion.name, low, high, source, criterion.reversed, of=of, doubt=doubt)
    return replace(_understood(criterion.name, meaning, None), comparative=criterion.comparative_phrase)


def _understood(phrase: str, meaning: Meaning, propose: Propose | None) -> Understood:
    if propose is not None and meaning.source == "negation":
        meaning = _proposed(meaning, propose)
    others = tuple(_understood(phrase, replace(sense, adjective=""), None) for sense in senses_of(meaning))
    first, last = (f"{meaning.superlative_of(pole)} first" for pole in (meaning.high, meaning.low))
    words = (meaning.name, (meaning.low, meaning.high), meaning.comparative, first, last)
    about = (meaning.source, meaning.reversed, meaning.doubt or None, others, meaning.describes)
    return Understood(phrase, *words, *about)


def _proposed(meaning: Meaning, propose: Propose) -> Meaning:
    """With the model's own opposite in place of "not …"; the adjective that was typed keeps its direction."""
    if meaning.low == f"not {meaning.high}" and (opposite := propose(meaning.high)):
        return replace(meaning, low=opposite, source="model")
    if meaning.high == f"not {meaning.low}" and (opposite := propose(meaning.low)):
        return replace(meaning, high=opposite, source="model")
    return meaning


def _meaning(phrase: str, category: str | None) -> Meaning:
    check_length(phrase, "the criterion", MAX_PHRASE)
    text = unicodedata.normalize("NFKC", phrase).replace("’", "'").strip()
    if not any(char.isalpha() for char in text):
        raise CcrankError(f"{phrase!r} has no words; give a criterion, such as 'size' or 'least expensive'")
    frame = without_frame(text)
    bare = re.sub(r"(?<=\w )\(.*?\)|\[.*?\]", " ", frame.text).strip()
    if not bare:
        return _of_poles(frame, category)
    meaning = meaning_of(bare, category)
    if meaning.plain:
        meaning = _checked(replace(meaning, name=frame.text, of=frame.text if meaning.of else ""), bare)
    meaning = _directed(meaning, frame, bare, category)
    unknown = meaning.source in ("negation", "amount", "fallback") or "not " in meaning.low + meaning.high
    corrected = did_you_mean(text) if unknown else None
    if corrected is None:
        return meaning
    doubt = " ".join(filter(None, (f"did you mean {corrected!r}?", meaning.doubt)))
    return replace(meaning, doubt=doubt)


def _checked(meaning: Meaning, text: str) -> Meaning:
    """A noun phrase, with a doubt where a word in it may say a direction that was not understood."""
    words = re.findall(r"[a-z]+", text.lower())
    if " ".join(words) in known_nouns():
        return meaning
    if len(words) == 2 and words[0] in known_adjectives() and meaning.of and re.search(r"[^su]s$", words[1]):
        first = meaning.superlative_of(meaning.high)
        doubt = (
            f"{meaning.name!r} is taken as a number, {first} first; for the adjective, say 'most {words[0]}'"
        )
        return replace(meaning, doubt=doubt)
    directing = word_set("little") | word_set("negators") | word_set("left_over")
    for word in words:
        inflected = adjective_of(word)
        if word in directing or (inflected and inflected.known and inflected.degree != "positive"):
            break
    else:
        return meaning
    doubt = (
        f"{word!r} in {meaning.name!r} may say a direction that is not understood; "
        f"{meaning.superlative_of(meaning.high)} comes first. Say it as 'lowest price' or 'price ascending', "
        "or name the poles (--poles LOW HIGH)"
    )
    return replace(meaning, doubt=doubt)


def _directed(meaning: Meaning, frame: Framed, text: str, category: str | None) -> Meaning:
    """The meaning of the words with the direction of the frame around them."""
    if frame.turns:
        return meaning.flipped()
    if frame.sign:
        less_first = meaning.reversed and not meaning.plain
        if less_first == (frame.sign < 0):
            return meaning
        turned = meaning.flipped()
        if meaning.plain or meaning.source == "fallback":
            return turned
        doubt = meaning.doubt or f"the direction is taken as {turned.superlative_of(turned.high)} first"
        return replace(turned, doubt=doubt)
    unlisted = meaning
    for words, comes_first in ((frame.first, True), (frame.last, False)):
        if not words:
            continue
        other = meaning_of(words, category)
        side = _side(other, scale_of_noun(text), meaning)
        if side:
            return meaning if (side > 0) == comes_first else meaning.flipped()
        if comes_first or not frame.first:
            unlisted = replace(other if comes_first else other.flipped(), name=meaning.name, adjective="")
    return unlisted


def _side(other: Meaning, scale: Poles | None, meaning: Meaning) -> int:
    """Whether the words are at the high (1) or the low (-1) pole of the meaning's scale; 0 if not on it."""
    lows, highs = (scale.low, scale.high) if scale is not None and meaning.plain else ((), ())
    low, high = {meaning.low, *lows}, {meaning.high, *highs}
    if other.high in high or (other.low in low and other.high not in low):
        return 1
    return -1 if other.high in low or other.low in high else 0


def _of_poles(frame: Framed, category: str | None) -> Meaning:
    """A phrase that is a direction alone: "cheapest first", "from old to new"."""
    if frame.first and frame.last:
        both = frame.first, frame.last
        adjectives = [adjective_of(words.split()[-1]) for words in both]
        first, last = (
            word.adjective if word else words for word, words in zip(adjectives, both, strict=True)
        )
        if "least" in (*frame.first.split(), *frame.last.split()) or scale_between(last, first) is None:
            if first == last:  # "least likely to most likely"
                return meaning_of(frame.first, category)
            named = scale_of_adjective(first)
            name, reverse = (quality_noun(first), False) if named is None else (named.noun, named.turned)
            doubt = f"{last!r} and {first!r} are taken as the poles, {superlative(first)} first"
            return Meaning(name, last, first, "given", reverse, doubt="" if all(adjectives) else doubt)
        return replace(meaning_of(first, category), low=last, high=first, adjective="")
    words = frame.first or frame.last
    meaning = meaning_of(words, category)
    if meaning.source == "fallback":
        raise CcrankError(
            f"{words!r} {'first' if frame.first else 'last'} is not understood; say it as 'oldest first'"
        )
    return meaning if frame.first else meaning.flipped()


def _is_turned(scale: Poles, meaning: Meaning) -> bool:
    """Whether the poles are the poles of the meaning, reversed; False if they are on another scale."""
    meant = poles_of(Criterion(meaning.name, poles=(meaning.low, meaning.high)))
    high, low = scale.high[0].lower(), scale.low[0].lower()
    same = high in meant.high or low in meant.low
    return not same and (high in meant.low or low in meant.high)
