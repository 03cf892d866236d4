"""The words around a criterion in a phrase: "sort by …", "which is …?", "… ascending", "… (low to high)"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ccrank.criteria.inflection import pattern, table, word_set
from ccrank.criteria.lexicon import scale_between
from ccrank.criteria.phrase_words import adjective_of, amount_sign
from ccrank.errors import CcrankError

_UP = r"(?:ascending|increasing|asc\b\.?|↑|▲)"
_DOWN = r"(?:descending|decreasing|desc\b\.?|↓|▼)"
_WAY = rf"(?:(?P<up>{_UP})|(?P<down>{_DOWN}))"
_REVERSE = r"(?:inverse|inverted|reversed?|opposite|backwards?)"
_GAP = r"[\s,;:(\[\-–—/|]+"
_CLOSE = r"[)\]\s.]*$"
_POLE = r"(?:the )?(?:(?:most|least|more|less) )?[^\W\d_]+(?:-[^\W\d_]+)*"


@dataclass(frozen=True, slots=True)
class Framed:
    """A phrase without its frame, and the direction that the frame gives."""

    text: str
    """May be empty where `first` or `last` says everything: "cheapest first"."""
    sign: int = 0
    """+1 for more first ("descending"), -1 for less first, 0 if the frame says neither."""
    turns: bool = False
    """Whether the order is reversed: "price reversed"."""
    first: str = ""
    """What comes first, in the phrase's words."""
    last: str = ""


def without_frame(phrase: str) -> Framed:
    """Take a phrase apart.

    >>> without_frame("Sort by price (low to high)")
    Framed(text='price', sign=-1, turns=False, first='', last='')
    >>> without_frame("which one is the cheapest?").text, without_frame("from old to new").first
    ('cheapest', 'old')
    """
    text = re.sub(r"(?<=[a-z])n't\b", " not", " ".join(phrase.split())).strip(" ?!.;:,'\"")
    if pattern("cannot").search(text):
        raise CcrankError(
            f"{phrase!r} is an order that needs no model; a criterion is a property, such as 'size' or 'cheapest'"
        )
    if dated := re.search(r"\b(reversed? |inverse )?chronological(?:ly| order)?$", text, re.IGNORECASE):
        return Framed("date", 1 if dated[1] else -1)  # by custom, the earliest first
    text = _without_lead(re.sub(r"\(\s*\)", "", pattern("range").sub(" ", text)))
    frames = (frame(text) for frame in (_direction, _from_to, _first_or_last, _better, _reverse))
    framed = next(filter(None, frames), None)
    if framed is None:
        return Framed(text)
    if framed.sign and not framed.text.strip():
        raise CcrankError(f"{text!r} is a direction without a criterion; name it too: 'price, {text}'")
    return replace(framed, text=_without_lead(framed.text))


def _without_lead(text: str) -> str:
    by, leads = table("patterns")["by"], table("patterns")["leads"]
    for lead in leads:
        text = re.sub(rf"^\s*{lead.replace('<by>', by)}", "", text, flags=re.IGNORECASE)
    return text.strip(" ,;:-–—?(")


def _match(text: str, *patterns: str) -> re.Match[str] | None:
    """The match of the first pattern that fits."""
    return next(filter(None, (re.match(pattern, text, re.IGNORECASE) for pattern in patterns)), None)


def _direction(text: str) -> Framed | None:
    """ "Price ascending", "price (desc)", "in descending order of price", "increasing price"."""
    match = _match(
        text,
        rf"^(?P<rest>.*?)(?:^|{_GAP}(?:in |by |sorted )?|(?=[↑▲↓▼])){_WAY}(?: order)?{_CLOSE}",
        rf"^(?:in )?(?:the )?(?:order of )?{_WAY}(?: order)?(?: (?:of|by|in))? (?P<rest>.+)$",
    )
    return Framed(match["rest"], -1 if match["up"] else 1) if match else None


def _from_to(text: str) -> Framed | None:
    """ "From old to new", "price (low to high)", "cheapest to most expensive"."""
    text = re.sub(r"-to-", " to ", text, flags=re.IGNORECASE)
    levels = "|".join(sorted(word_set("much") | word_set("little")))
    ahead = _match(text, rf"^(?:from )?(?P<a>{levels}) to (?P<b>{levels}) (?P<rest>.+)$")
    if ahead and amount_sign(ahead["a"].lower()) != amount_sign(ahead["b"].lower()):
        return Framed(ahead["rest"], amount_sign(ahead["a"].lower()))  # "lowest to highest price"
    match = _match(
        text,
        rf"^(?:(?P<rest>.*?){_GAP})?(?P<a_from>from )?(?P<a>{_POLE})(?: to |\s*(?:→|->|=>|–|-)\s*)(?P<b>{_POLE})"
        rf"(?: order)?{_CLOSE}",
    )
    if not match:
        return None
    before = (match["rest"] or "").strip()
    rest = re.sub(rf"(?:^|{_GAP})from$", "", before, flags=re.IGNORECASE)
    started = bool(match["a_from"]) or rest != before
    a, b = (re.sub(r"^the ", "", pole.lower()) for pole in (match["a"], match["b"]))
    if amount_sign(a) * amount_sign(b) < 0:
        return Framed(rest, amount_sign(a))
    words_a, words_b = (adjective_of(pole.split()[-1]) for pole in (a, b))
    if re.search(r"[a-z]\s*[-–]\s*[a-z]", text[match.start("a") :]) and "to" not in text.split():
        started = False  # a mere hyphen joins two words more often than two poles
    if words_a is None or words_b is None:
        taken = started and not rest
    else:
        same_degree = words_a.degree == words_b.degree == "superlative"
        same_degree = same_degree or "most" in {*a.split()[:-1], *b.split()[:-1]}
        taken = started or same_degree or scale_between(words_a.adjective, words_b.adjective) is not None
    return Framed(rest, first=a, last=b) if taken else None


def _first_or_last(text: str) -> Framed | None:
    """ "Cheapest first", "price, most expensive last", "price (lowest first)", "lowest price first"."""
    match = _match(text, rf"^(?P<rest>.+?) (?P<where>first|last|at the top|on top|at the bottom){_CLOSE}")
    split = re.split(r"[,;:(\[]| - | – | with (?:the )?", match["rest"] if match else "")
    parts = [part.strip() for part in split if part.strip()]
    if not match or not parts or pattern("lasting").search(text):
        return None
    last = match["where"].lower() in ("last", "at the bottom")
    noun, what = " ".join(parts[:-1]), parts[-1]
    if not noun:
        words = what.split()
        size = 2 if len(words) > 2 and words[-2].lower() in ("most", "least") else 1
        inflected = adjective_of(words[-1].lower())
        graded = inflected is not None and (inflected.degree == "superlative" or size == 2)
        graded = graded or amount_sign(words[-1].lower()) != 0
        if len(words) > size and graded and words[0].lower() not in ("most", "least"):
            noun, what = " ".join(words[:-size]), " ".join(words[-size:])
    if sign := amount_sign(what.lower().removeprefix("the ")):
        return Framed(noun, -sign if last else sign)
    return Framed(noun, last=what.lower()) if last else Framed(noun, first=what.lower())


def _better(text: str) -> Framed | None:
    """ "Price, lower is better", "latency (the lower the better)"."""
    match = _match(
        text,
        rf"^(?P<rest>.+?){_GAP}(?:the )?(?P<what>[^\W\d_]+)(?: is| are| the|=)+ ?(?P<judged>better|best|worse){_CLOSE}",
    )
    if not match:
        return None
    what, good = match["what"].lower(), match["judged"].lower() != "worse"
    if sign := amount_sign(what):
        return Framed(match["rest"], sign if good else -sign)
    if adjective_of(what) is None:
        return None
    return Framed(match["rest"], first=what) if good else Framed(match["rest"], last=what)


def _reverse(text: str) -> Framed | None:
    """ "Inverse price", "price reversed", "price in reverse order", "opposite of price"."""
    match = _match(
        text,
        rf"^(?:in )?(?:the )?{_REVERSE}(?: order)?(?: of| by)? (?P<rest>.+)$",
        rf"^(?P<rest>.+?){_GAP}(?:inverted|reversed?|inverse|backwards|in reverse(?: order)?){_CLOSE}",
    )
    return Framed(match["rest"], turns=True) if match else None
