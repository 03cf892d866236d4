"""Checking that a model's weights, its tokenizer and the code that runs it agree.

A checkpoint that was converted wrongly loads without an error and answers at chance. Four ratios show it, none of
which depends on the vocabulary:

- *order*: the bits that plain sentences take, relative to the same words in random order. A language model finds the
  real order far more likely.
- *copying*: the bits that a list of unrelated words takes when it is read a second time, relative to the first. It
  needs exact positions, so it shows errors in rotary embeddings that hardly matter in a short sentence.
- *distant copying*: the same with a gap of some hundred positions between the two readings, which a base of rotary
  embeddings that is too small does not allow. A larger base must help, or the base is not to blame.
- *clozes*: how often, of ten words that fill the gaps of ten trivial sentences, a gap's own word is the one that gains
  most, relative to the word's mean over all gaps. For masked and encoder-decoder models this is the only one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm.copying import distant_copying, list_bits
from ccrank.prompts import Piece, Prompt
from ccrank.toml import parse_toml

if TYPE_CHECKING:
    from ccrank.lm.reader import Reader

Status = Literal["good", "suspect", "not checked"]

MOST_ORDER = 0.6
MOST_COPYING = 0.5
LEAST_CLOZES = 0.5
LEAST_FOREIGN_CLOZES = 0.8
"""A random model reaches the first with probability 0.002, and the second, with five gaps, with 0.007."""
CLEAR_ORDER, CLEAR_COPYING = 0.45, 0.3
"""Below these a model is read with the right start, and no other is tried."""
BOS_HELPS = 0.85
"""A BOS token that is missing (or added) wrongly is reported if the sentences take less than this share of the bits
without the mistake."""
SHORTEST_TOKEN = 1.5
"""Characters per token of English, below which a tokenizer splits words into letters."""
LARGE_VOCABULARY = 1000
"""Models of letters or bytes have smaller ones."""


@dataclass(frozen=True)
class SentenceCheck:
    """A sentence in one language: bits per character of its scored words."""

    language: str
    text: str
    bits: float
    shuffled_bits: float
    tokens: int
    """Of the scored words."""


@dataclass(frozen=True)
class ClozeCheck:
    """A sentence with a gap: how much more likely its word becomes than any other, in nats."""

    language: str
    text: str
    margin: float


@dataclass(frozen=True)
class Verdict:
    """What the check of a model found."""

    status: Status
    form: str
    language: str | None = None
    """The language that the model reads best, of those tried."""
    order: float | None = None
    """Bits of sentences, of those of the same words shuffled; causal models only."""
    copying: float | None = None
    """Bits of a list of words read again, of those of its first reading; causal models only."""
    distant_copying: float | None = None
    """The same with a gap between the two readings; causal models with rotary embeddings only."""
    clozes: float | None = None
    """The share of gaps whose own word gains most."""
    reasons: tuple[str, ...] = ()
    """What is wrong, or why nothing was checked."""
    causes: tuple[str, ...] = ()
    """Likely causes."""
    sentences: tuple[SentenceCheck, ...] = ()
    gaps: tuple[ClozeCheck, ...] = ()
    made_with: Mapping[str, str] = field(default_factory=dict)
    """Versions, device and precision; another combination is checked anew."""

    @property
    def message(self) -> str:
        """The verdict in one line."""
        if self.status != "suspect":
            return f"{self.status}{': ' if self.reasons else ''}{'; '.join(self.reasons)}"
        return (
            f"this model reads plain text far worse than a language model should: {'; '.join(self.reasons)}. "
            f"Likely causes: {'; '.join(self.causes)}"
        )


def check_model(reader: Reader) -> Verdict:
    """Read a few plain sentences and judge whether the model works; about 300 tokens if it does.

    Parameters
    ----------
    reader
        An open model. Its cache of readings is not used.
    """
    loaded = reader.loaded
    if loaded.missing_head:
        return Verdict("not checked", loaded.form, reasons=("the model has no language-model head",))
    if loaded.family.get("translates"):
        return Verdict("not checked", loaded.form, reasons=("the model translates, so it fills no gaps",))
    reader = reader.with_engine(reader.engine)
    reader.cache = None
    reader.prompt_tokenizer = replace(reader.prompt_tokenizer, chat=False)
    if loaded.form == "encoder_decoder" and not _has_sentinels(loaded.tokenizer):
        return Verdict(
            "not checked", loaded.form, reasons=("the tokenizer has no sentinels, so gaps cannot be filled",)
        )
    try:
        return _check_causal(reader) if loaded.form == "causal" else _check_clozes(reader)
    except CcrankError as error:  # such as a window that is shorter than the texts
        return Verdict("not checked", loaded.form, reasons=(str(error),))


def _check_causal(reader: Reader) -> Verdict:
    words = str(_data()["copied"])
    first, again = list_bits(reader, words, (1, 2))
    copying = again / first
    read: list[tuple[str, list[SentenceCheck], list[ClozeCheck]]] = []
    for language in _texts():
        read.append((language, _sentences(reader, language), _clozes(reader, language)))
        if _order(read[-1][1]) <= MOST_ORDER or not math.isfinite(copying):
            break
    # NaN compares as the worst
    language, sentences, gaps = min(read, key=lambda one: _worst_if_nan(_order(one[1])))
    order, right = _order(sentences), _share_right(gaps)
    english = read[0][1]
    reasons = []
    if not math.isfinite(order + copying):
        reasons.append("its scores are not numbers (NaN)")
    if order > MOST_ORDER:
        reasons.append(f"sentences take {order:.0%} of the bits of shuffled words (at most {MOST_ORDER:.0%})")
    if copying > MOST_COPYING:
        reasons.append(
            f"words that were just read take {copying:.0%} of the bits of new ones (at most {MOST_COPYING:.0%})"
        )
    if language == "english" and right < LEAST_CLOZES:
        reasons.append(
            f"{right:.0%} of trivial gaps are filled by their own word (at least {LEAST_CLOZES:.0%})"
        )
    letters = (
        _token_length(english) < SHORTEST_TOKEN and reader.loaded.model.config.vocab_size > LARGE_VOCABULARY
    )
    if language == "english" and letters:
        reasons.append("its tokenizer splits words into letters, though it has a large vocabulary")
    clear = order <= CLEAR_ORDER and copying <= CLEAR_COPYING
    distant, mistake = distant_copying(reader, words, first)
    if mistake is None and not clear:
        mistake = _bos_mistake(reader, english)
    if mistake:
        reasons.append(mistake[0])
    return Verdict(
        "suspect" if reasons else "good",
        "causal",
        language,
        order,
        copying,
        distant,
        right,
        tuple(reasons),
        tuple(_causes(reader, english, order, copying, mistake)) if reasons else (),
        tuple(one for _, own, _ in read for one in own),
        tuple(one for _, _, own in read for one in own),
    )


def _check_clozes(reader: Reader) -> Verdict:
    read: list[tuple[str, list[ClozeCheck]]] = []
    problem = None
    for language in _texts():
        try:
            read.append((language, _clozes(reader, language)))
        except CcrankError as error:  # a vocabulary without the letters of this language
            problem = error
            continue
        if _share_right(read[-1][1]) >= _least_clozes(language):
            break
    if problem is not None and not read:
        raise problem
    language, gaps = max(read, key=lambda one: _share_right(one[1]) - _least_clozes(one[0]))
    right, least = _share_right(gaps), _least_clozes(language)
    reasons = []
    if not all(math.isfinite(gap.margin) for gap in gaps):
        reasons.append("its scores are not numbers (NaN)")
    elif right < least:
        reasons.append(f"{right:.0%} of trivial gaps are filled by their own word (at least {least:.0%})")
    causes = (
        "the language-model head belongs to another checkpoint, or the model was not trained to fill gaps",
        "the tokenizer belongs to another model",
        "weights of too few bits",
    )
    return Verdict(
        "suspect" if reasons else "good",
        reader.form,
        language,
        clozes=right,
        reasons=tuple(reasons),
        causes=causes if reasons else (),
        gaps=tuple(one for _, own in read for one in own),
    )


def _least_clozes(language: str) -> float:
    return LEAST_CLOZES if language == "english" else LEAST_FOREIGN_CLOZES


def _causes(
    reader: Reader,
    english: Sequence[SentenceCheck],
    order: float,
    copying: float,
    mistake: tuple[str, str] | None,
) -> list[str]:
    """The likely causes, the likeliest first."""
    if not math.isfinite(order + copying):
        return ["numbers overflow in this precision: use --dtype bfloat16 or float32", "damaged weights"]
    if mistake:
        return [mistake[1]]
    characters = sum(len(_scored(one.text)[1]) for one in english) / max(
        1, sum(one.tokens for one in english)
    )
    if characters < SHORTEST_TOKEN:
        return [
            f"the tokenizer splits words into pieces of {characters:.1f} characters: it was converted wrongly",
            "a model of letters or bytes, which needs no action",
        ]
    if order <= MOST_ORDER and copying > MOST_COPYING:
        return [
            "positions: rotary embeddings converted wrongly (halves not permuted, another base)",
            "a missing BOS token",
            "a very small model",
        ]
    if copying <= MOST_COPYING:
        return [
            "a tokenizer of another model: token ids are copied right, but mean nothing",
            "a model of another language or for another purpose",
        ]
    return [
        "norm weights or rotary embeddings converted wrongly",
        "a tokenizer of another model",
        "weights of too few bits",
        "a version of transformers that does not suit these files",
        "a very small or special-purpose model",
    ]


def _bos_mistake(reader: Reader, english: Sequence[SentenceCheck]) -> tuple[str, str] | None:
    """What shows that a BOS token is missing or should not be there, and what causes it; None if all is well."""
    token = reader.loaded.tokenizer.bos_token_id
    if token is None:
        return None
    own = reader.prompt_tokenizer.bos
    other = reader.with_engine(reader.engine)
    other.prompt_tokenizer = replace(reader.prompt_tokenizer, bos=() if own else (token,))
    bits = sum(one.bits for one in english)
    otherwise = sum(one.bits for one in _sentences(other, "english", shuffled=False))
    if not otherwise < BOS_HELPS * bits:
        return None
    said = f"sentences take {otherwise / bits:.0%} of the bits {'without' if own else 'with'} a BOS token"
    wrong = (
        "the model was trained without the BOS token that it is given" if own else "the BOS token is missing"
    )
    return said, f"{wrong} (add_bos_token in tokenizer_config.json, ccrank_bos in config.json)"


def _sentences(reader: Reader, language: str, *, shuffled: bool = True) -> list[SentenceCheck]:
    texts = [_scored(text) for text in _texts()[language]["sentences"]]
    candidates = [[rest, in_random_order(rest)] if shuffled else [rest] for _, rest in texts]
    readings = reader.read([_open(before) for before, _ in texts], candidates, log_probabilities=True)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    bits = -readings.logits.astype(float) / math.log(2)
    return [
        SentenceCheck(
            language,
            text,
            float(bits[place, 0]) / len(rest),
            float(bits[place, -1]) / len(rest),
            int(readings.answer_tokens[place, 0]),
        )
        for place, (text, (_, rest)) in enumerate(zip(_texts()[language]["sentences"], texts, strict=True))
    ]


def _clozes(reader: Reader, language: str) -> list[ClozeCheck]:
    rows = _texts()[language]["clozes"]
    blank = "" if _unspaced(rows[0][0]) else " "
    end = () if reader.form == "causal" else (Piece("." if blank else "。"),)
    prompts = [Prompt((Piece(before + blank), Piece("", "slot"), *end)) for before, _ in rows]
    logits = reader.read(prompts, [answer for _, answer in rows], log_probabilities=True).logits
    assert logits is not None
    gains = logits - logits.mean(0)  # gaps × words
    own = gains.diagonal()
    others = np.where(np.eye(len(rows), dtype=bool), -np.inf, gains).max(1)
    return [
        ClozeCheck(language, f"{before}{blank}{answer}", float(margin))
        for (before, answer), margin in zip(rows, own - others, strict=True)
    ]


def in_random_order(text: str) -> str:
    """The words of a text (pairs of characters, if it has no blanks) in another order, always the same one.

    Parameters
    ----------
    text
        A text of at least two different words.

    >>> sorted(in_random_order("one two three").split())
    ['one', 'three', 'two']
    """
    joint = "" if _unspaced(text) else " "
    words = text.split(" ") if joint else [text[place : place + 2] for place in range(0, len(text), 2)]
    order = list(words)
    generator = random.Random(0)
    while order == words:
        generator.shuffle(order)
    return joint.join(order)


def _unspaced(text: str) -> bool:
    """Whether a text is in a script without blanks between words."""
    return " " not in text


def _scored(text: str) -> tuple[str, str]:
    """A sentence's first words, with the blank after them, and the words that are scored."""
    before, _, rest = text.partition("|")
    blank = " " if rest.startswith(" ") else ""
    return before.strip() + blank, rest.strip()


def _open(before: str) -> Prompt:
    return Prompt((Piece(before), Piece("", "slot")))


def _order(sentences: Sequence[SentenceCheck]) -> float:
    shuffled = sum(one.shuffled_bits for one in sentences)
    return sum(one.bits for one in sentences) / shuffled if shuffled else math.nan


def _token_length(sentences: Sequence[SentenceCheck]) -> float:
    """Characters per token."""
    return sum(len(_scored(one.text)[1]) for one in sentences) / max(1, sum(one.tokens for one in sentences))


def _share_right(gaps: Sequence[ClozeCheck]) -> float:
    return float(np.mean([gap.margin > 0 for gap in gaps]))


def _worst_if_nan(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _has_sentinels(tokenizer: Any) -> bool:
    return "<extra_id_0>" in tokenizer.get_vocab()


@cache
def _data() -> Mapping[str, Any]:
    return parse_toml(resources.files("ccrank.lm") / "check.toml")


def _texts() -> dict[str, Mapping[str, Any]]:
    """The texts by language, English first."""
    return {name: table for name, table in _data().items() if name != "copied"}
