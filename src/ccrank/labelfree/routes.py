"""Label-free routes to a directed ranking. Each gives raw scores of items, higher = more, from words alone.

- poles: which end's word the model would say of the item;
- likelihood: whether the item comes to the model's mind rather at the high end than at the low one;
- axis: how far the item's state lies from made-up items of the low end towards those of the high end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.prompting.asking import checked_logits
from ccrank.prompts import Templates
from ccrank.task import Task
from ccrank.words import Ends, ends_of

EXEMPLAR_WORDS = 2
"""How many words of each end become made-up items."""


@dataclass(frozen=True)
class Looks:
    """What one pass over a template's prompts gives: the poles' scores, and states for the axis and for probes."""

    poles: list[np.ndarray]
    """Per task (N,); empty where no words were asked for, as of a model without a language-model head."""
    axis: list[np.ndarray]
    """Per task (N,)."""
    states: list[np.ndarray]
    """Per task (N, L, d), at the slot."""
    layers: tuple[int, ...]
    cost: Cost


def middle_and_late(depth: int) -> list[int]:
    """Every other layer from a third of the depth on: where meaning is kept, at half the memory."""
    return list(range(depth, depth // 3 - 1, -2))[::-1]


def read_poles(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    template: str = "poles-very",
    words: str | None = "adjectives",
    layers: Sequence[int] = (),
    progress: Progress | None = None,
) -> Looks:
    """Ask which end an item belongs to; with `layers`, read the item's states and those of made-up items as well.

    The score is log Σ_h exp l(h) − log Σ_l exp l(l) over the words h of the high and l of the low end: its adjectives,
    its superlative, or (None) not asked for.
    """
    ends = [ends_of(task.criterion) for task in tasks]
    prompts, candidates, sizes = [], [], []
    for task, end in zip(tasks, ends, strict=True):
        own = [templates.single(task, index, reader.form, template) for index in range(len(task.items))]
        if layers:
            own += [templates.exemplar(task, text, reader.form, template) for text in exemplars(task, end)]
        prompts += own
        candidates += [_pole_words(end, words)[0] + _pole_words(end, words)[1]] * len(own)
        sizes.append(len(own))
    asked = words is not None and not reader.loaded.missing_head
    readings = reader.read(
        prompts,
        candidates if asked else None,
        layers,
        items=bool(layers),
        log_probabilities=words == "superlatives",
        progress=progress,
    )
    poles, axis, states = [], [], []
    start = 0
    for task, end, size in zip(tasks, ends, sizes, strict=True):
        count = len(task.items)
        if readings.logits is not None:
            low, high = _pole_words(end, words)
            split, stop = len(low), len(low) + len(high)
            table = checked_logits(readings.logits[start : start + count, :stop].astype(float), task.id)
            poles.append(logsumexp(table[:, split:], axis=1) - logsumexp(table[:, :split], axis=1))
        if readings.item_states is not None and readings.states is not None:
            axis.append(axis_scores(readings.item_states[start : start + size], count))
            states.append(readings.states[start : start + count])
        start += size
    return Looks(poles, axis, states, readings.layers, readings.cost)


def exemplars(task: Task, ends: Ends) -> list[str]:
    """Made-up items, those of the high end first, as many of each."""
    kind = task.criterion.kind
    return [
        f"a very {word} {kind}"
        for words in (ends.high, ends.low)
        for word in (words * EXEMPLAR_WORDS)[:EXEMPLAR_WORDS]
    ]


def axis_scores(states: np.ndarray, count: int) -> np.ndarray:
    """Projections on mean(high exemplars) − mean(low exemplars), standardised per layer and averaged over layers.

    states (N + 2E, L, d): the items, then the exemplars of the high and of the low end. -> (N,)
    """
    items, made_up = states[:count].astype(float), states[count:].astype(float)
    half = len(made_up) // 2
    direction = made_up[:half].mean(axis=0) - made_up[half:].mean(axis=0)  # (L, d)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    direction /= np.where(length > 0, length, 1.0)
    return np.asarray(standard(np.einsum("nld,ld->ln", items, direction)).mean(axis=0))


def read_likelihood(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    template: str = "list-of",
    contrast: bool = True,
    progress: Progress | None = None,
) -> tuple[list[np.ndarray], Cost]:
    """The item as the answer: log p(item | high end) − log p(item | low end); or the first alone, per token.

    The contrast cancels how common an item is. Where a context speaks of the items, that is what matters, and the plain
    log-probability per token says more.
    """
    ends = [ends_of(task.criterion) for task in tasks]
    prompts, candidates = [], []
    for task, end in zip(tasks, ends, strict=True):
        for word in (end.high[0], end.low[0]) if contrast else (end.high[0],):
            prompts.append(templates.end(task, word, reader.form, template))
            candidates.append([item.strip() for item in task.items])
    readings = reader.read(prompts, candidates, log_probabilities=True, progress=progress)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    scores = []
    for index, task in enumerate(tasks):
        count, ways = len(task.items), 2 if contrast else 1
        own = slice(ways * index, ways * (index + 1))
        table = checked_logits(readings.logits[own, :count].astype(float), task.id)
        scores.append(table[0] - table[1] if contrast else table[0] / readings.answer_tokens[index, :count])
    return scores, readings.cost


def standard(scores: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1 along the last axis; 0 where all are equal."""
    centred = scores - scores.mean(axis=-1, keepdims=True)
    spread = centred.std(axis=-1, keepdims=True)
    some = spread > 1e-9
    return np.asarray(np.where(some, centred / np.where(some, spread, 1.0), 0.0))


def _pole_words(ends: Ends, words: str | None) -> tuple[list[str], list[str]]:
    if words == "superlatives":
        return [ends.least], [ends.most]
    return list(ends.low), list(ends.high)
