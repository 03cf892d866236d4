"""Label-free signals of a directed ranking. Each gives raw scores of items, higher = more, without a label.

- poles: the log-odds of the high pole's words against the low pole's, said of the item;
- likelihood: the log-probability of the item where the high pole is named, less that where the low pole is;
- axis: the projection of the item's state on the direction from exemplars of the low pole to those of the high pole;
- exemplars: the item's state scored by a probe fitted to texts that were written for the criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.special import logsumexp

from ccrank.errors import CcrankError
from ccrank.exemplars import exemplars_of
from ccrank.lexicon import Poles, poles_of
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.reader import Progress
from ccrank.lm.reading import Readings, checked_logits, joined
from ccrank.lm.watch import Watcher, by_item, steps
from ccrank.prompts import Form, Prompt, Template, Templates
from ccrank.standardise import z_scores
from ccrank.task import Task

EXEMPLAR_WORDS = 2
"""How many words of each pole are made into exemplars."""

LONGEST_NAME = 60
"""Items with more characters than this, on average, are treated as texts and not as names."""
LEAST_WORDS = 4.5
"""Shorter items, on average, are not scored by exemplar texts: those are sentences, and states of names differ."""
SLOT_SHARE = 2 / 3
"""The weight of the slot's states in the signal `exemplars`; the rest is that of the item's last token."""


@dataclass(frozen=True)
class PoleReadings:
    """What one pass over a template's prompts gives: pole scores, and states for the axis and for probes."""

    poles: list[np.ndarray]
    """Per task (N,); empty if no words were asked for, as of a model without a language-model head."""
    axis: list[np.ndarray]
    """Per task (N,)."""
    exemplars: list[np.ndarray | None]
    """Per task (N,), or None where no texts were written for the criterion or the items are names."""
    states: list[np.ndarray]
    """Per task (N, L, d), at the slot."""
    item_states: list[np.ndarray]
    """Per task (N, L, d), at the item's last token."""
    layers: tuple[int, ...]
    cost: Cost


Against = Literal["low", "context", "nothing"]


@dataclass(frozen=True)
class Wording:
    """A template that asks for items of the high pole, and what their log-probability is compared with."""

    template: str
    against: Against = "low"
    """low: the same prompt about the low pole; context: the prompt without its context, per token; nothing."""

    def __post_init__(self) -> None:
        if self.against not in get_args(Against):
            raise CcrankError(f"against={self.against!r}: it is one of {', '.join(get_args(Against))}")


NAMES = (Wording("such-as"), Wording("considered"))
TEXTS = (Wording("list-of"),)
WITH_CONTEXT = (Wording("that-are"), Wording("this-is", "context"))


def wordings_of(task: Task) -> tuple[Wording, ...]:
    """The wordings for a task's kind of items.

    A name can follow "such as", a whole text cannot; and reading texts as answers is expensive: they get one wording.
    With a context, what counts is how much more likely it makes an item.
    """
    if task.context:
        return WITH_CONTEXT
    return TEXTS if are_texts(task.items) else NAMES


def are_texts(items: Sequence[str]) -> bool:
    """Whether items are texts rather than names, by their mean length."""
    return sum(map(len, items)) > LONGEST_NAME * len(items)


def read_poles(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    template: str = "poles",
    words: bool = True,
    layers: Sequence[int] = (),
    progress: Progress | None = None,
    written: bool = False,
) -> PoleReadings:
    """Score each item by the pole words; with `layers`, read its states and those of the exemplars as well.

    With `written`, the texts written for a criterion are read too, where there are any for such items.

    The score is log Σ_h p(h) − log Σ_l p(l) over the adjectives h of the high pole and l of the low pole.
    """
    asked = words and not reader.loaded.missing_head
    texts = [texts_for(task) if written and layers else [] for task in tasks]
    per_task = [
        pole_prompts(task, reader.form, templates, template, bool(layers), own)
        for task, own in zip(tasks, texts, strict=True)
    ]
    prompts = [prompt for own, _ in per_task for prompt in own]
    candidates = [pole_words for own, pole_words in per_task for _ in own]

    def read(part: slice) -> Readings:
        return reader.read(
            prompts[part],
            candidates[part] if asked else None,
            layers,
            items=bool(layers),
            log_probabilities=True,
            progress=progress,
        )

    if isinstance(progress, Watcher) and asked and len(tasks) == 1:
        readings = _read_in_steps(tasks[0], len(prompts), read, progress)
    else:
        readings = read(slice(None))
    poles, axis, states, item_states = [], [], [], []
    scored: list[np.ndarray | None] = []
    start = 0
    for task, own_texts, (own, pole_words) in zip(tasks, texts, per_task, strict=True):
        count, size = len(task.items), len(own)
        if readings.logits is not None:
            poles.append(log_odds(readings.logits[start : start + count, : len(pole_words)], task))
        if readings.item_states is not None and readings.states is not None:
            both = [one[start : start + size] for one in (readings.item_states, readings.states)]
            made = size - len(own_texts)
            axis.append(sum((axis_scores(one[:made], count) for one in both), np.zeros(count)))
            scored.append(exemplar_scores(both[1], both[0], count, made) if own_texts else None)
            item_states.append(both[0][:count])
            states.append(both[1][:count])
        start += size
    return PoleReadings(poles, axis, scored, states, item_states, readings.layers, readings.cost)


def log_odds(logits: np.ndarray, task: Task) -> np.ndarray:
    """log Σ_h p(h) − log Σ_l p(l) of each row, whose columns are the words of the low pole, then of the high pole.

    Parameters
    ----------
    logits
        (N, words) log-probabilities of the pole words of a task.
    task
        The task, whose criterion has these words.
    """
    table = checked_logits(logits.astype(float), task.id)
    split = len(poles_of(task.criterion).low)
    return np.asarray(logsumexp(table[:, split:], axis=1) - logsumexp(table[:, :split], axis=1))


def _read_in_steps(task: Task, prompts: int, read: Callable[[slice], Readings], watcher: Watcher) -> Readings:
    """The readings of one list's prompts, some items at a time; the watcher is given the pole scores so far.

    The prompts after those of the items, of exemplars, are read with the last items.
    """
    found: list[Readings] = []
    for part in steps(len(task.items)):
        found.append(read(part if part.stop < len(task.items) else slice(part.start, prompts)))
        logits = [one.logits for one in found if one.logits is not None]
        scores = log_odds(np.concatenate(logits)[: len(task.items)], task)
        watcher.partial(by_item(task.items, z_scores(scores)))
    return joined(found)


def pole_prompts(
    task: Task,
    form: Form,
    templates: Templates,
    template: str = "poles",
    with_exemplars: bool = False,
    texts: Sequence[str] = (),
) -> tuple[list[Prompt], list[str]]:
    """A prompt for each item and, if asked for, each exemplar; and the words for the low and the high pole.

    `texts` are further exemplars, after those made of the pole words.
    """
    poles = poles_of(task.criterion)
    prompts = [templates.single(task, index, form, template) for index in range(len(task.items))]
    made = exemplars(task, poles, templates[template]) if with_exemplars else []
    prompts += [templates.exemplar(task, text, form, template) for text in [*made, *texts]]
    return prompts, [*poles.low, *poles.high]


def written_prompts(task: Task, form: Form, templates: Templates) -> tuple[list[Prompt], list[str]]:
    """All prompts of `read_poles` with states and with the texts written for the criterion."""
    return pole_prompts(task, form, templates, with_exemplars=True, texts=texts_for(task))


def texts_for(task: Task) -> list[str]:
    """What was written for the criterion, texts or things as the items are; those of the high pole first."""
    if task.context:
        return []
    found = exemplars_of(task.criterion, "texts" if are_sentences(task.items) else "things")
    return [] if found is None else [*found.high, *found.low]


def are_sentences(items: Sequence[str]) -> bool:
    """Whether items are sentences or longer texts, by their mean length."""
    return are_texts(items) or sum(len(item.split()) for item in items) >= LEAST_WORDS * len(items)


def exemplars(task: Task, poles: Poles, template: Template) -> list[str]:
    """Made-up items such as "a very large country": those of the high pole first, as many of each pole."""
    return [
        template.exemplar_of(task.criterion, word)
        for words in (poles.high, poles.low)
        for word in (words * EXEMPLAR_WORDS)[:EXEMPLAR_WORDS]
    ]


def axis_scores(states: np.ndarray, count: int) -> np.ndarray:
    """Projections on mean(high exemplars) − mean(low exemplars), standardised per layer, averaged, standardised.

    states (N + 2E, L, d): the items, then the exemplars of the high and of the low pole. -> (N,)
    """
    projections = np.einsum("nld,ld->ln", states[:count].astype(float), axis_direction(states[count:]))
    return np.asarray(z_scores(z_scores(projections).mean(axis=0)))


def axis_direction(exemplar_states: np.ndarray) -> np.ndarray:
    """The unit vectors from the low to the high pole, layer by layer: (2E, L, d), the high pole first -> (L, d)"""
    made = exemplar_states.astype(float)
    half = len(made) // 2
    direction = made[:half].mean(axis=0) - made[half:].mean(axis=0)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray(direction / np.where(length > 0, length, 1.0))


def exemplar_scores(slot: np.ndarray, item: np.ndarray, count: int, made: int) -> np.ndarray:
    """Scores of a probe for each layer and position, fitted to exemplar texts; (N + …, L, d) twice -> (N,)

    Parameters
    ----------
    slot, item
        States at both positions: of the items, of other prompts, and from `made` on of the texts, high ones first.
    count
        N
    made
        Where the texts begin.
    """
    both = [z_scores(_by_texts(one[:count], one[made:])) for one in (slot, item)]
    return np.asarray(z_scores(SLOT_SHARE * both[0] + (1 - SLOT_SHARE) * both[1]))


def _by_texts(states: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Mean over layers of z(x · w), w = argmin ‖Aw − y‖² + d‖w‖² with A the Z-scored states of the texts, y = ±1."""
    weights = text_weights(texts)
    scores = [z_scores(states[:, layer].astype(float) @ weights[layer]) for layer in range(states.shape[1])]
    return np.asarray(np.mean(scores, axis=0))


def text_weights(texts: np.ndarray) -> np.ndarray:
    """w of each layer as above, for states as they are: (T, L, d), the high pole's texts first -> (L, d)"""
    half = len(texts) // 2
    target = np.repeat([1.0, -1.0], half)
    found = []
    for layer in range(texts.shape[1]):
        own = texts[:, layer].astype(float)
        scale = np.where((deviation := own.std(axis=0)) > 0, deviation, 1.0)
        table = (own - own.mean(axis=0)) / scale
        dual = np.linalg.solve(table @ table.T + table.shape[1] * np.eye(len(table)), target)
        found.append(table.T @ dual / scale)
    return np.stack(found)


def read_likelihood(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    wordings: Sequence[Wording] | None = None,
    progress: Progress | None = None,
) -> tuple[list[Mapping[str, np.ndarray]], Cost]:
    """The item as the answer: log p(item | high pole) − log p(item | low pole), which cancels how common an item is.

    With a context, the pointwise mutual information says more: (log p(item | context) − log p(item)) / tokens. All
    wordings of all tasks are one reading, so that shared prefixes are computed once. -> per task: template → (N,)
    """
    asked = [wordings_of(task) if wordings is None else wordings for task in tasks]
    prompts: list[Prompt] = []
    candidates: list[list[str]] = []
    for task, own in zip(tasks, asked, strict=True):
        both = likelihood_prompts(task, reader.form, templates, own)
        prompts += both
        candidates += [[item.strip() for item in task.items]] * len(both)
    readings = reader.read(prompts, candidates, log_probabilities=True, progress=progress)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    found: list[Mapping[str, np.ndarray]] = []
    place = 0
    for task, own in zip(tasks, asked, strict=True):
        count, scores = len(task.items), {}
        for wording in own:
            ways = 1 if wording.against == "nothing" else 2
            table = checked_logits(readings.logits[place : place + ways, :count].astype(float), task.id)
            gain = table[0] - table[1] if ways == 2 else table[0]
            length = readings.answer_tokens[place, :count]
            scores[wording.template] = gain if wording.against == "low" else gain / length
            place += ways
        found.append(scores)
    return found, readings.cost


def likelihood_prompts(
    task: Task, form: Form, templates: Templates, wordings: Sequence[Wording]
) -> list[Prompt]:
    """The prompts of each wording in turn, all of which the items answer."""
    return [prompt for wording in wordings for prompt in _both_sides(task, wording, form, templates)]


def _both_sides(task: Task, wording: Wording, form: Form, templates: Templates) -> list[Prompt]:
    """The prompt about the high pole, and the one that it is compared with, if any."""
    poles = poles_of(task.criterion)
    prompts = [templates.pole(task, poles.high[0], form, wording.template)]
    if wording.against == "low":
        prompts.append(templates.pole(task, poles.low[0], form, wording.template))
    elif wording.against == "context":
        if not task.context:
            raise CcrankError(
                "against=context compares the prompt with and without its context; this task has no context"
            )
        bare = replace(task, context=None)
        prompts.append(templates.pole(bare, poles.high[0], form, wording.template))
    return prompts
