"""Checking that a model's weights, its tokenizer and the code that runs it agree, by ratios that need no reference.

A checkpoint that was converted wrongly loads without an error and answers at chance. A language model finds real
sentences far more likely than their words in random order. Copying words needs exact positions, so it shows errors in
rotary embeddings that hardly matter in a short sentence.
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
Mistake = tuple[str, str]  # what shows a mistake, and its cause

MAX_ORDER, MAX_COPYING = 0.6, 0.5
CLEAR_ORDER, CLEAR_COPYING = 0.45, 0.3
"""Below these a model is read with the right start, and no other is tried."""
MIN_CLOZES, MIN_FOREIGN_CLOZES = 0.5, 0.8
"""A random model reaches the first with probability 0.002, and the second, with five gaps, with 0.007."""
BOS_HELPS = 0.85
"""A BOS token that is missing (or added) wrongly is reported if the sentences take less than this share of the bits
without the mistake."""
MAX_DIFFERENCE = 0.01
"""Of the bits of a sentence. For the default model it is 0.0023 in bfloat16, and at least 0.036 where one matrix was
damaged (docs/how-to/use-another-model.md)."""
MIN_TOKEN_LENGTH = 1.5  # characters per token of English, below which a tokenizer splits words into letters
LARGE_VOCABULARY = 1000  # models of letters or bytes have smaller ones
NOT_NUMBERS = "its scores are not numbers (NaN)"


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
    """The share of gaps whose own word gains most, relative to its mean over all gaps."""
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
        reasons = "; ".join(self.reasons)
        if self.status != "suspect":
            return f"{self.status}: {reasons}" if reasons else self.status
        causes = "; ".join(self.causes)
        return f"this model reads plain text far worse than a language model should: {reasons}. Likely causes: {causes}"


def check_model(reader: Reader) -> Verdict:
    """Read a few plain sentences and judge whether the model works; about 300 tokens if it does."""
    loaded = reader.loaded
    reason = ""
    if loaded.missing_head:
        reason = "the model has no language-model head"
    elif loaded.family.get("translates"):
        reason = "the model translates, so it fills no gaps"
    elif loaded.form == "encoder_decoder" and "<extra_id_0>" not in loaded.tokenizer.get_vocab():
        reason = "the tokenizer has no sentinels, so gaps cannot be filled"
    if not reason:
        reader = reader.with_engine(reader.engine)
        reader.cache = None
        reader.prompt_tokenizer = replace(reader.prompt_tokenizer, chat=False)
        try:
            return _check_causal(reader) if loaded.form == "causal" else _check_clozes(reader)
        except CcrankError as error:  # such as a window that is shorter than the texts
            reason = str(error)
    return Verdict("not checked", loaded.form, reasons=(reason,))


def _check_causal(reader: Reader) -> Verdict:
    words = str(_data()["copied"])
    first, again = list_bits(reader, words, (1, 2))
    copying = again / first
    read: dict[str, tuple[list[SentenceCheck], list[ClozeCheck]]] = {}
    for language in _texts():
        read[language] = _sentences(reader, language), _clozes(reader, language)
        if _order(read[language][0]) <= MAX_ORDER or not math.isfinite(copying):
            break
    # NaN counts as the worst.
    language = min(read, key=lambda name: np.nan_to_num(_order(read[name][0]), nan=np.inf))
    order, right = _order(read[language][0]), _share_right(read[language][1])
    english = read["english"][0]
    clear = order <= CLEAR_ORDER and copying <= CLEAR_COPYING
    reasons = [] if math.isfinite(order + copying) else [NOT_NUMBERS]
    if order > MAX_ORDER:
        reasons.append(f"sentences take {order:.0%} of the bits of shuffled words (at most {MAX_ORDER:.0%})")
    if copying > MAX_COPYING:
        of_new = f"{copying:.0%} of the bits of new ones (at most {MAX_COPYING:.0%})"
        reasons.append(f"words that were just read take {of_new}")
    if language == "english":
        reasons += _few_clozes(right, MIN_CLOZES)
        large = reader.loaded.model.config.vocab_size > LARGE_VOCABULARY
        if large and _token_length(english) < MIN_TOKEN_LENGTH:
            reasons.append("its tokenizer splits words into letters, though it has a large vocabulary")
    off = _difference(figures_of(reader.loaded), english)
    other_weights = off is not None and not off <= MAX_DIFFERENCE
    if other_weights:
        of_name = f"from those of {reader.loaded.name} (at most {MAX_DIFFERENCE:.0%})"
        reasons.append(f"the bits of a sentence differ by {off:.1%} {of_name}")
    distant, mistake = distant_copying(reader, words, first)
    mistake = mistake or (None if clear else _bos_mistake(reader, english))
    causes = _causes(english, order, copying, mistake) if reasons or mistake else []
    if other_weights and not mistake:
        damaged = "weights that are damaged, or not those of this name: fetch the model again"
        causes = [damaged, *(() if clear else causes)]
    return Verdict(
        "suspect" if causes else "good",
        "causal",
        language,
        order,
        copying,
        distant,
        right,
        off,
        reasons=(*reasons, *(mistake or ())[:1]),
        causes=tuple(causes),
        sentences=tuple(sentence for sentences, _ in read.values() for sentence in sentences),
        gaps=tuple(gap for _, gaps in read.values() for gap in gaps),
    )


def _check_clozes(reader: Reader) -> Verdict:
    read: dict[str, list[ClozeCheck]] = {}
    problem = None
    for language in _texts():
        try:
            read[language] = _clozes(reader, language)
        except CcrankError as error:  # a vocabulary without the letters of this language
            problem = error
            continue
        if _share_right(read[language]) >= _least_clozes(language):
            break
    if problem is not None and not read:
        raise problem
    language = max(read, key=lambda name: _share_right(read[name]) - _least_clozes(name))
    right = _share_right(read[language])
    finite = all(math.isfinite(gap.margin) for gap in read[language])
    reasons = _few_clozes(right, _least_clozes(language)) if finite else [NOT_NUMBERS]
    return Verdict(
        "suspect" if reasons else "good",
        reader.form,
        language,
        clozes=right,
        reasons=tuple(reasons),
        causes=tuple(_data()["causes"]["clozes"]) if reasons else (),
        gaps=tuple(gap for gaps in read.values() for gap in gaps),
    )


def _least_clozes(language: str) -> float:
    return MIN_CLOZES if language == "english" else MIN_FOREIGN_CLOZES


def _few_clozes(share: float, least: float) -> list[str]:
    few = f"{share:.0%} of trivial gaps are filled by their own word (at least {least:.0%})"
    return [few] if share < least else []


def _causes(
    english: Sequence[SentenceCheck], order: float, copying: float, mistake: Mistake | None
) -> list[str]:
    """The likely causes, the likeliest first."""
    causes, characters = _data()["causes"], _token_length(english)
    if not math.isfinite(order + copying):
        return list(causes["not_numbers"])
    if mistake:
        return [mistake[1]]
    if characters < MIN_TOKEN_LENGTH:
        return [cause.format(characters=characters) for cause in causes["short_tokens"]]
    if order <= MAX_ORDER and copying > MAX_COPYING:
        return list(causes["copying"])
    return list(causes["order" if copying <= MAX_COPYING else "order_and_copying"])


def _bos_mistake(reader: Reader, english: Sequence[SentenceCheck]) -> Mistake | None:
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
    shown = f"sentences take {otherwise / bits:.0%} of the bits {'without' if bos else 'with'} a BOS token"
    superfluous = "the model was trained without the BOS token that it is given"
    wrong = superfluous if bos else "the BOS token is missing"
    return shown, f"{wrong} (add_bos_token in tokenizer_config.json, ccrank_bos in config.json)"


def _sentences(reader: Reader, language: str, *, shuffled: bool = True) -> list[SentenceCheck]:
    sentences = _texts()[language]["sentences"]
    texts = list(map(_scored, sentences))
    candidates = [[rest, in_random_order(rest)] if shuffled else [rest] for _, rest in texts]
    readings = reader.read([open_prompt(before) for before, _ in texts], candidates, log_probabilities=True)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    lengths = np.array([len(rest) for _, rest in texts])
    bits = -readings.logits.astype(float) / math.log(2) / lengths[:, None]
    tokens = readings.answer_tokens[:, 0].tolist()
    rows = zip(sentences, bits[:, 0].tolist(), bits[:, -1].tolist(), tokens, strict=True)
    return [SentenceCheck(language, *row) for row in rows]


def _clozes(reader: Reader, language: str) -> list[ClozeCheck]:
    rows = _texts()[language]["clozes"]
    blank = _blank_of(rows[0][0])
    end = () if reader.form == "causal" else (Piece("." if blank else "。"),)
    prompts = [Prompt((Piece(before + blank), Piece("", "slot"), *end)) for before, _ in rows]
    logits = reader.read(prompts, [answer for _, answer in rows], log_probabilities=True).logits
    assert logits is not None
    gains = logits - logits.mean(0)  # gaps × words
    others = np.where(np.eye(len(rows), dtype=bool), -np.inf, gains).max(1)
    margins = (gains.diagonal() - others).tolist()
    return [
        ClozeCheck(language, f"{before}{blank}{answer}", margin)
        for (before, answer), margin in zip(rows, margins, strict=True)
    ]


def in_random_order(text: str) -> str:
    """The words of a text (pairs of characters, if it has no blanks) in another order, always the same one."""
    blank = _blank_of(text)
    words = text.split(blank) if blank else [text[start : start + 2] for start in range(0, len(text), 2)]
    order = list(words)
    generator = random.Random(0)
    while order == words:
        generator.shuffle(order)
    return blank.join(order)


def _blank_of(text: str) -> str:
    """What separates the words of a text: nothing, in some scripts."""
    return " " if " " in text else ""


def _scored(text: str) -> tuple[str, str]:
    """A sentence's first words, with the blank after them, and the words that are scored."""
    before, _, rest = text.partition("|")
    return before.strip() + (" " if rest.startswith(" ") else ""), rest.strip()


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
    """The stored figures of a model; None if there are none, or its weights were quantized while loading."""
    quantized = ", weights " in loaded.weights.get("compute_precision", "")
    return None if quantized else stored_figures().get(loaded.name)


def _difference(figures: Mapping[str, Any] | None, sentences: Sequence[SentenceCheck]) -> float | None:
    """The largest relative difference from the stored bits of a sentence; some per cent if a matrix is damaged."""
    if figures is None:
        return None
    measured = np.array([[sentence.bits, sentence.shuffled_bits] for sentence in sentences])
    return float(np.max(np.abs(measured.T / np.array([figures["bits"], figures["shuffled_bits"]]) - 1)))


@cache
def _data() -> Mapping[str, Any]:
    return parse_toml(resources.files("ccrank.models.check") / "check.toml")


def _texts() -> dict[str, Mapping[str, Any]]:
    """The texts by language, English first."""
    return {name: table for name, table in _data().items() if name not in ("copied", "causes")}
