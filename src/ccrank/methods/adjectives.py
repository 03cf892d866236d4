"""What the model says about adjectives: an opposite that the lexicon does not know, and the sense that fits the items.

An opposite: the model continues "The opposite of zippy is …" with one of the lexicon's adjectives, which is taken only
if "The opposite of slow is …" leads back. `studies/label_free/opposites.py` measures how often that is right.

A sense: a dry wine is not sweet, a dry climate not wet. The model continues three sentences with the opposite of each
sense, such as "Some wines are very dry, others are very …". The mean log-probability is the score of the sense. Nothing
is read for words with one sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from ccrank.criteria import Propose, resolved
from ccrank.criteria.inflection import plural
from ccrank.criteria.lexicon import known_adjectives
from ccrank.criteria.understanding import in_sense
from ccrank.models import Reader, ReaderLike
from ccrank.prompts import Piece, Prompt
from ccrank.task import Criterion, Task, Understood
from ccrank.util.text import one_line

SHOTS = (("tall", "short"), ("dirty", "clean"), ("generous", "stingy"), ("useful", "useless"))
"""Pairs that show the model what an opposite is."""
MAX_RANK_BACK = 3
"""The adjective must be among this many first answers to the opposite question."""
MIN_LOG_PROBABILITY = -2.5
"""An answer that the model finds less likely is not taken."""
MAX_ITEMS = 8
"""Items that the model sees before it says in which sense they are described."""
MAX_CHARACTERS = 60
"""Of each of them."""
USUAL = 0.5
"""Added to the score of the lexicon's usual sense. Chosen, as `CLOSE`, on 50 adjectives with categories and items."""
CLOSE = 1.0
"""Senses whose scores differ by less leave a doubt."""


def opposite_proposer(reader: Reader) -> Propose:
    """A function from an adjective to its opposite; nothing is read before it is called."""
    return lru_cache(maxsize=256)(partial(propose_opposite, reader=reader))


def propose_opposite(adjective: str, reader: Reader) -> str | None:
    """The opposite of an adjective if the model is sure of it, else None."""
    if reader.form != "causal" or reader.loaded.missing_head:
        return None
    words = [word for word in one_token_adjectives(reader) if word != adjective]
    if not words:
        return None
    [forward] = _log_probabilities([_about_opposite(adjective)], words, reader)
    best = int(forward.argmax())
    if forward[best] < MIN_LOG_PROBABILITY:
        return None
    others = [word for word in words if word != words[best]]
    [back] = _log_probabilities([_about_opposite(words[best])], [*others, adjective], reader)
    return words[best] if (back > back[-1]).sum() < MAX_RANK_BACK else None


def one_token_adjectives(reader: Reader) -> list[str]:
    """The lexicon's adjectives that are one token to the model, so that all of them take one pass together."""
    words = sorted(known_adjectives())
    [encoded] = reader.prompt_tokenizer.encode([_about_opposite("it")], [words])
    return [word for word, tokens in zip(words, encoded.answers, strict=True) if len(tokens) == 1]


def with_senses(tasks: Sequence[Task], reader: ReaderLike) -> list[Task]:
    """The tasks with their criteria in the sense that fits their items; tasks of one criterion share one sense."""
    tasks = [replace(task, criterion=resolved(task.criterion)) for task in tasks]
    if reader.form != "causal" or reader.loaded.missing_head:
        return tasks
    items: dict[Criterion, list[str]] = {}
    for task in tasks:
        if _is_open(task.criterion):
            items.setdefault(task.criterion, []).extend(task.items)
    chosen = {criterion: _sense_of(criterion, texts, reader) for criterion, texts in items.items()}
    return [
        replace(task, criterion=chosen[task.criterion]) if _is_open(task.criterion) else task
        for task in tasks
    ]


def _is_open(criterion: Criterion) -> bool:
    """Whether the words have several senses of which none was chosen."""
    understood = criterion.understood
    return understood is not None and bool(understood.alternatives) and understood.source == "lexicon"


def _sense_of(criterion: Criterion, items: Sequence[str], reader: ReaderLike) -> Criterion:
    """The criterion in the sense that fits the items."""
    understood = criterion.understood
    assert understood is not None
    adjective, opposites = adjective_and_opposites((understood, *understood.alternatives))
    texts, category = sorted({*items}), criterion.category or understood.describes
    shown = [texts[index] for index in np.linspace(0, len(texts) - 1, min(MAX_ITEMS, len(texts))).astype(int)]
    listed = ", ".join(one_line(item)[:MAX_CHARACTERS] for item in shown)
    frames = [(f"{listed}: some are very ", ", others are very ")]
    if category:
        several = plural(category)
        frames = [
            (f"{listed}: some of these {several} are very ", ", others are very "),
            (f"Some {several} are very ", ", others are very "),
            (f"This {category} is not ", " at all. On the contrary, it is very "),
        ]
    prompts = [_prompt(before, adjective, after, "senses") for before, after in frames]
    return in_best_sense(criterion, _log_probabilities(prompts, opposites, reader).mean(axis=0).tolist())


def adjective_and_opposites(senses: Sequence[Understood]) -> tuple[str, list[str]]:
    """The adjective that several senses have in common, and its opposite in each."""
    [adjective] = set.intersection(*({*sense.poles} for sense in senses))
    return adjective, [next(pole for pole in sense.poles if pole != adjective) for sense in senses]


def in_best_sense(criterion: Criterion, scores: Sequence[float]) -> Criterion:
    """The criterion in the sense with the highest score, with the others, best first, as alternatives. `scores` are
    log-probabilities, the usual sense's first; close ones leave a doubt."""
    usual = criterion.understood
    assert usual is not None
    senses = (usual, *usual.alternatives)
    totals = [score + USUAL * (not index) for index, score in enumerate(scores)]
    order = sorted(range(len(senses)), key=lambda index: -totals[index])
    best, *others = (replace(senses[index], source="sense", alternatives=()) for index in order)
    doubt = usual.warning
    if totals[order[0]] - totals[order[1]] < CLOSE:
        _, (taken, other) = adjective_and_opposites((best, others[0]))
        low, high = others[0].poles
        doubt = (
            f"{usual.phrase!r} is taken as the opposite of {taken!r}; if you mean that of {other!r}, name the poles: "
            f"--poles {low} {high} (poles=({low!r}, {high!r}))"
        )
    return in_sense(criterion, replace(best, alternatives=tuple(others), warning=doubt))


def _log_probabilities(prompts: Sequence[Prompt], words: Sequence[str], reader: ReaderLike) -> np.ndarray:
    """(P, W) of the words as answers."""
    readings = reader.read(prompts, words, log_probabilities=True)
    assert readings.logits is not None
    return np.asarray(readings.logits[:, : len(words)], dtype=float)


def _about_opposite(adjective: str) -> Prompt:
    shown = " ".join(f"The opposite of {word} is {opposite}." for word, opposite in SHOTS)
    return _prompt(f"{shown} The opposite of ", adjective, " is ", "opposites")


def _prompt(before: str, adjective: str, after: str, task: str) -> Prompt:
    return Prompt((Piece(before), Piece(adjective, "criterion"), Piece(after), Piece("", "slot")), task=task)
