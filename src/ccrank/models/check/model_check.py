"""Checking that a model's weights, its tokenizer and the code that runs it agree.

A checkpoint that was converted wrongly loads without an error and answers at chance. These ratios show it, none of
which depends on the vocabulary:

- *order*: the bits that plain sentences take, relative to the same words in random order. A language model finds the
  real order far more likely.
- *copying*: the bits that a list of unrelated words takes when it is read a second time, relative to the first. It
  needs exact positions, so it shows errors in rotary embeddings that hardly matter in a short sentence.
- *distant copying*: the same with a gap of some hundred positions between the two readings, which a base of rotary
  embeddings that is too small does not allow. A larger base must help, or the base is not to blame.
- *difference*: what the sentences of a listed model take, relative to what they must take (`figures.toml`). The bounds
  of the other ratios leave room for any model; where one matrix of one layer is damaged, a sentence takes several per
  cent more or fewer bits, while another precision changes it by less than one.
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
from ccrank.models.check.copying import distant_copying, list_bits, open_prompt
from ccrank.prompts import Piece, Prompt
from ccrank.util.files import parse_toml

if TYPE_CHECKING:
    from ccrank.models.load.loading import LoadedModel
    from ccrank.models.reader import Reader

Status = Literal["good", "suspect", "not checked"]

MAX_ORDER = 0.6
MAX_COPYING = 0.5
MIN_CLOZES = 0.5
MIN_FOREIGN_CLOZES = 0.8
"""A random model reaches the first with probability 0.002, and the second, with five gaps, with 0.007."""
CLEAR_ORDER, CLEAR_COPYING = 0.45, 0.3
"""Below these a model is read with the right start, and no other is tried."""
BOS_HELPS = 0.85
"""A BOS token that is missing (or added) wrongly is reported if the sentences take less than this share of the bits
without the mistake."""
OTHER_WEIGHTS = "weights that are damaged, or not those of this name: fetch the model again"
MAX_DIFFERENCE = 0.01
"""Of the bits of a sentence. For the default model it is 0.0023 in bfloat16, and at least 0.036 where one matrix was
damaged (docs/how-to/use-another-model.md)."""
MIN_TOKEN_LENGTH = 1.5
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
    """Bits of sentences, relative to the same words shuffled; causal models only."""
    copying: float | None = None
    """Bits of a list of words read again, relative to its first reading; causal models only."""
    distant_copying: float | None = None
    """The same with a gap between the two readings; causal models with rotary embeddings only."""
    clozes: float | None = None
    """The share of gaps whose own word gains most."""
    difference: float | None = None
    """The largest relative difference of the bits of a sentence from the stored ones; listed models only."""
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
    """Read a few plain sentences and judge whether the model works; about 300 tokens if it does."""
    loaded = reader.loaded
    if loaded.missing_head:
        return Verdict("not checked", loaded.form, reasons=("the model has no language-model head",))
    if loaded.family.get("translates"):
        return Verdict("not checked", loaded.form, reasons=("the model translates, so it fills no gaps",))
    reader = reader.with_engine(reader.engine)
    reader.cache = None
    reader.prompt_tokenizer = replace(reader.prompt_tokenizer, chat=False)
    if loaded.form == "encoder_decoder" and "<extra_id_0>" not in loaded.tokenizer.get_vocab():
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
        if _order(read[-1][1]) <= MAX_ORDER or not math.isfinite(copying):
            break
    # NaN counts as the worst.
    language, sentences, gaps = min(read, key=lambda entry: np.nan_to_num(_order(entry[1]), nan=np.inf))
    order, right = _order(sentences), _share_right(gaps)
    english = read[0][1]
    reasons = []
    if not math.isfinite(order + copying):
        reasons.append("its scores are not numbers (NaN)")
    if order > MAX_ORDER:
        reasons.append(f"sentences take {order:.0%} of the bits of shuffled words (at most {MAX_ORDER:.0%})")
    if copying > MAX_COPYING:
        reasons.append(
            f"words that were just read take {copying:.0%} of the bits of new ones (at most {MAX_COPYING:.0%})"
        )
    if language == "english" and right < MIN_CLOZES:
        reasons.append(
            f"{right:.0%} of trivial gaps are filled by their own word (at least {MIN_CLOZES:.0%})"
        )
    letters = (
        _token_length(english) < MIN_TOKEN_LENGTH and reader.loaded.model.config.vocab_size > LARGE_VOCABULARY
    )
    if language == "english" and letters:
        reasons.append("its tokenizer splits words into letters, though it has a large vocabulary")
    clear = order <= CLEAR_ORDER and copying <= CLEAR_COPYING
    stored = figures_of(reader.loaded)
    off = None if stored is None else _difference(stored, english)
    other_weights = off is not None and not off <= MAX_DIFFERENCE
    if other_weights:
        reasons.append(
            f"the bits of a sentence differ by {off:.1%} from those of {reader.loaded.name} "
            f"(at most {MAX_DIFFERENCE:.0%})"
        )
    distant, mistake = distant_copying(reader, words, first)
    if mistake is None and not clear:
        mistake = _bos_mistake(reader, english)
    if mistake:
        reasons.append(mistake[0])
    causes = _causes(reader, english, order, copying, mistake) if reasons else []
    if other_weights and not mistake:
        causes = [OTHER_WEIGHTS, *(() if clear else causes)]
    return Verdict(
        "suspect" if reasons else "good",
        "causal",
        language,
        order,
        copying,
        distant,
        right,
        off,
        reasons=tuple(reasons),
        causes=tuple(causes),
        sentences=tuple(sentence for _, sentences, _ in read for sentence in sentences),
        gaps=tuple(gap for _, _, gaps in read for gap in gaps),
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
    language, gaps = max(read, key=lambda entry: _share_right(entry[1]) - _least_clozes(entry[0]))
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
        gaps=tuple(gap for _, gaps in read for gap in gaps),
    )


def _least_clozes(language: str) -> float:
    return MIN_CLOZES if language == "english" else MIN_FOREIGN_CLOZES


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
    characters = _token_length(english)
    if characters < MIN_TOKEN_LENGTH:
        return [
            f"the tokenizer splits words into pieces of {characters:.1f} characters: it was converted wrongly",
            "a model of letters or bytes, which needs no action",
        ]
    if order <= MAX_ORDER and copying > MAX_COPYING:
        return [
            "positions: rotary embeddings converted wrongly (halves not permuted, another base)",
            "a missing BOS token",
            "a very small model",
        ]
    if copying <= MAX_COPYING:
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
    bos = reader.prompt_tokenizer.bos
    other = reader.with_engine(reader.engine)
    other.prompt_tokenizer = replace(reader.prompt_tokenizer, bos=() if bos else (token,))
    bits = sum(sentence.bits for sentence in english)
    otherwise = sum(sentence.bits for sentence in _sentences(other, "english", shuffled=False))
    if not otherwise < BOS_HELPS * bits:
        return None
    said = f"sentences take {otherwise / bits:.0%} of the bits {'without' if bos else 'with'} a BOS token"
    wrong = (
        "the model was trained without the BOS token that it is given" if bos else "the BOS token is missing"
    )
    return said, f"{wrong} (add_bos_token in tokenizer_config.json, ccrank_bos in config.json)"


def _sentences(reader: Reader, language: str, *, shuffled: bool = True) -> list[SentenceCheck]:
    texts = [_scored(text) for text in _texts()[language]["sentences"]]
    candidates = [[rest, in_random_order(rest)] if shuffled else [rest] for _, rest in texts]
    readings = reader.read([open_prompt(before) for before, _ in texts], candidates, log_probabilities=True)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    bits = -readings.logits.astype(float) / math.log(2)
    return [
        SentenceCheck(
            language,
            text,
            float(bits[index, 0]) / len(rest),
            float(bits[index, -1]) / len(rest),
            int(readings.answer_tokens[index, 0]),
        )
        for index, (text, (_, rest)) in enumerate(zip(_texts()[language]["sentences"], texts, strict=True))
    ]


def _clozes(reader: Reader, language: str) -> list[ClozeCheck]:
    rows = _texts()[language]["clozes"]
    blank = "" if _unspaced(rows[0][0]) else " "
    end = () if reader.form == "causal" else (Piece("." if blank else "。"),)
    prompts = [Prompt((Piece(before + blank), Piece("", "slot"), *end)) for before, _ in rows]
    logits = reader.read(prompts, [answer for _, answer in rows], log_probabilities=True).logits
    assert logits is not None
    gains = logits - logits.mean(0)  # gaps × words
    gains_of_own = gains.diagonal()
    others = np.where(np.eye(len(rows), dtype=bool), -np.inf, gains).max(1)
    return [
        ClozeCheck(language, f"{before}{blank}{answer}", float(margin))
        for (before, answer), margin in zip(rows, gains_of_own - others, strict=True)
    ]


def in_random_order(text: str) -> str:
    """The words of a text (pairs of characters, if it has no blanks) in another order, always the same one."""
    joint = "" if _unspaced(text) else " "
    words = text.split(" ") if joint else [text[start : start + 2] for start in range(0, len(text), 2)]
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


def _order(sentences: Sequence[SentenceCheck]) -> float:
    shuffled = sum(sentence.shuffled_bits for sentence in sentences)
    return sum(sentence.bits for sentence in sentences) / shuffled if shuffled else math.nan


def _token_length(sentences: Sequence[SentenceCheck]) -> float:
    """Characters per token."""
    characters = sum(len(_scored(sentence.text)[1]) for sentence in sentences)
    return characters / max(1, sum(sentence.tokens for sentence in sentences))


def _share_right(gaps: Sequence[ClozeCheck]) -> float:
    return float(np.mean([gap.margin > 0 for gap in gaps]))


@cache
def stored_figures() -> Mapping[str, Mapping[str, Any]]:
    """Name → bits per character of each English sentence of the check, and of its words shuffled (`figures.toml`)."""
    return parse_toml(resources.files("ccrank.models.check") / "figures.toml")


def figures_of(loaded: LoadedModel) -> Mapping[str, Any] | None:
    """The figures that a model must have; None if it is not listed, none were measured, or its weights are quantized
    while loading, which changes them.
    """
    quantized = ", weights " in loaded.weights.get("compute_precision", "")
    return None if quantized else stored_figures().get(loaded.name)


def _difference(figures: Mapping[str, Any], sentences: Sequence[SentenceCheck]) -> float:
    """The largest relative difference of the bits of a sentence from what is stored."""
    measured = np.array([[sentence.bits, sentence.shuffled_bits] for sentence in sentences])
    return float(np.max(np.abs(measured.T / np.array([figures["bits"], figures["shuffled_bits"]]) - 1)))


@cache
def _data() -> Mapping[str, Any]:
    return parse_toml(resources.files("ccrank.models.check") / "check.toml")


def _texts() -> dict[str, Mapping[str, Any]]:
    """The texts by language, English first."""
    return {name: table for name, table in _data().items() if name != "copied"}
