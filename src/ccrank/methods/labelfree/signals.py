"""Label-free signals of a directed ranking. Each gives raw scores of items, higher = more, without a label.

- poles: the log-odds of the high pole's words against the low pole's, said of the item;
- likelihood: the log-probability of the item where the high pole is named, less that where the low pole is;
- axis: the projection of the item's state on the direction from exemplars of the low pole to those of the high pole;
- exemplars: the item's state scored by a probe fitted to texts that were written for the criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import logsumexp

from ccrank.criteria.exemplars import exemplars_of
from ccrank.criteria.lexicon import Poles, poles_of
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.projections import Positions
from ccrank.models import Cost, ReaderLike
from ccrank.models.reading import PartialProgress, Progress, Readings, by_item, checked_logits, joined, steps
from ccrank.prompts import Form, Prompt, Template, Templates
from ccrank.task import Task
from ccrank.util.zscores import z_scores

EXEMPLAR_WORDS = 2
"""How many words of each pole are made into exemplars."""

MAX_NAME = 60
"""Items with more characters than this, on average, are treated as texts and not as names."""
MIN_WORDS = 4.5
"""Shorter items, on average, are not scored by exemplar texts: those are sentences, and states of names differ."""


@dataclass(frozen=True)
class PoleReadings:
    """What one pass over a template's prompts gives: pole scores, and states for the axis and for probes."""

    poles: list[np.ndarray]
    """Per task (N,); empty if no words were asked for, as of a model without a language-model head."""
    states: list[Positions]
    """Per task those of its items; empty if no layers were asked for."""
    made: list[Positions]
    """Per task those of the exemplars made of its pole words, of the high pole first; empty if none were read."""
    written: list[Positions | None]
    """The same of exemplars that were written for the criterion; None where there are none, or the items are names."""
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
    return sum(map(len, items)) > MAX_NAME * len(items)


def read_poles(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    template: str = "poles",
    words: bool = True,
    layers: Sequence[int] = (),
    progress: Progress | None = None,
    written: bool = False,
    made: bool = True,
) -> PoleReadings:
    """Score each item by the pole words; with `layers`, read its states and those of the exemplars as well.

    With `written`, the texts written for a criterion are read too, where there are any for such items; with `made`,
    exemplars of the pole words.

    The score is log Σ_h p(h) − log Σ_l p(l) over the adjectives h of the high pole and l of the low pole.
    """
    with_words = words and not reader.loaded.missing_head
    texts = [texts_for(task) if written and layers else [] for task in tasks]
    per_task = [
        pole_prompts(task, reader.form, templates, template, made and bool(layers), task_texts)
        for task, task_texts in zip(tasks, texts, strict=True)
    ]
    prompts = [prompt for task_prompts, _ in per_task for prompt in task_prompts]
    candidates = [pole_words for task_prompts, pole_words in per_task for _ in task_prompts]

    def read(part: slice) -> Readings:
        return reader.read(
            prompts[part],
            candidates[part] if with_words else None,
            layers,
            items=bool(layers),
            log_probabilities=True,
            progress=progress,
        )

    if isinstance(progress, PartialProgress) and with_words and len(tasks) == 1:
        readings = _read_in_steps(tasks[0], len(prompts), read, progress)
    else:
        readings = read(slice(None))
    by_task = PoleReadings([], [], [], [], readings.layers, readings.cost)
    start = 0
    for task, task_texts, (task_prompts, pole_words) in zip(tasks, texts, per_task, strict=True):
        count, stop = len(task.items), start + len(task_prompts)
        if readings.logits is not None:
            by_task.poles.append(log_odds(readings.logits[start : start + count, : len(pole_words)], task))
        if readings.item_states is not None and readings.states is not None:
            item, slot = readings.item_states[start:stop], readings.states[start:stop]
            texts_from = len(task_prompts) - len(task_texts)
            by_task.states.append((item[:count], slot[:count]))
            if made:
                by_task.made.append((item[count:texts_from], slot[count:texts_from]))
            by_task.written.append((item[texts_from:], slot[texts_from:]) if task_texts else None)
        start = stop
    return by_task


def log_odds(logits: np.ndarray, task: Task) -> np.ndarray:
    """log Σ_h p(h) − log Σ_l p(l) of each row, whose columns are the words of the low pole, then of the high pole.
    (N, words) -> (N,)"""
    table = checked_logits(logits.astype(float), task.id)
    split = len(poles_of(task.criterion).low)
    return np.asarray(logsumexp(table[:, split:], axis=1) - logsumexp(table[:, :split], axis=1))


def _read_in_steps(
    task: Task, prompts: int, read: Callable[[slice], Readings], watcher: PartialProgress
) -> Readings:
    """The readings of one list's prompts, some items at a time; the watcher is given the pole scores so far.

    The prompts after those of the items, of exemplars, are read with the last items.
    """
    readings: list[Readings] = []
    for part in steps(len(task.items)):
        readings.append(read(part if part.stop < len(task.items) else slice(part.start, prompts)))
        logits = [reading.logits for reading in readings if reading.logits is not None]
        scores = log_odds(np.concatenate(logits)[: len(task.items)], task)
        watcher.partial(by_item(task.items, z_scores(scores)))
    return joined(readings)


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


def texts_for(task: Task) -> list[str]:
    """The exemplars written for the criterion, texts or things as the items are; those of the high pole first."""
    if task.context:
        return []
    written = exemplars_of(task.criterion, "texts" if are_sentences(task.items) else "things")
    return [] if written is None else [*written.high, *written.low]


def are_sentences(items: Sequence[str]) -> bool:
    """Whether items are sentences or longer texts, by their mean length."""
    return are_texts(items) or sum(len(item.split()) for item in items) >= MIN_WORDS * len(items)


def exemplars(task: Task, poles: Poles, template: Template) -> list[str]:
    """Made-up items such as "a very large country": those of the high pole first, as many of each pole."""
    return [
        template.exemplar_of(task.criterion, word)
        for words in (poles.high, poles.low)
        for word in (words * EXEMPLAR_WORDS)[:EXEMPLAR_WORDS]
    ]


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
    per_task = [wordings_of(task) if wordings is None else wordings for task in tasks]
    prompts: list[Prompt] = []
    candidates: list[list[str]] = []
    for task, task_wordings in zip(tasks, per_task, strict=True):
        task_prompts = likelihood_prompts(task, reader.form, templates, task_wordings)
        prompts += task_prompts
        candidates += [[item.strip() for item in task.items]] * len(task_prompts)
    readings = reader.read(prompts, candidates, log_probabilities=True, progress=progress)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    scores: list[Mapping[str, np.ndarray]] = []
    row = 0
    for task, task_wordings in zip(tasks, per_task, strict=True):
        count, by_template = len(task.items), {}
        for wording in task_wordings:
            rows = 1 if wording.against == "nothing" else 2
            table = checked_logits(readings.logits[row : row + rows, :count].astype(float), task.id)
            gain = table[0] - table[1] if rows == 2 else table[0]
            length = readings.answer_tokens[row, :count]
            by_template[wording.template] = gain if wording.against == "low" else gain / length
            row += rows
        scores.append(by_template)
    return scores, readings.cost


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
        bare = task.unchecked(task.items, None)
        prompts.append(templates.pole(bare, poles.high[0], form, wording.template))
    return prompts
