"""Label-free signals of a directed ranking. Each gives raw scores of items, higher = more, without a label.

- poles: the log-odds of the high pole's words against the low pole's, said of the item;
- likelihood: the log-probability of the item where the high pole is named, less that where the low pole is;
- axis: the projection of the item's state on the direction from exemplars of the low pole to the high pole;
- exemplars: the item's state scored by a probe fitted to texts that were written for the criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import log
from typing import Literal, get_args

import numpy as np
from scipy.special import logsumexp

from ccrank.criteria.exemplars import exemplars_of
from ccrank.criteria.lexicon import Poles, poles_of
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.combine import POLES, RawSignals
from ccrank.models import Cost, ReaderLike
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import middle_and_late
from ccrank.models.reading import Readings, checked_logits, joined, steps
from ccrank.prompts import Prompt, Template
from ccrank.task import Task
from ccrank.util.zscores import z_scores

EXEMPLAR_WORDS = 2
"""How many words of each pole are made into exemplars."""

MAX_NAME = 60
"""Items with more characters than this, on average, are treated as texts and not as names."""
MIN_WORDS = 4.5
"""Shorter items, on average, are not scored by exemplar texts: those are sentences, and states of names differ."""


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
    """The wordings for a task's kind of items. A name can follow "such as", a whole text cannot, and is expensive to
    read as an answer: one wording. With a context, what counts is how much more likely it makes an item."""
    if task.context:
        return WITH_CONTEXT
    return TEXTS if are_texts(task.items) else NAMES


def are_texts(items: Sequence[str]) -> bool:
    """Whether items are texts rather than names, by their mean length."""
    return sum(map(len, items)) > MAX_NAME * len(items)


def log_odds(logits: np.ndarray, task: Task) -> np.ndarray:
    """log Σ_h p(h) − log Σ_l p(l) of each row, whose columns are the words of the low pole, then of the high pole.
    (N, words) -> (N,)"""
    table = checked_logits(logits.astype(float), task.id)
    split = len(poles_of(task.criterion).low)
    return np.asarray(logsumexp(table[:, split:], axis=1) - logsumexp(table[:, :split], axis=1))


@dataclass(frozen=True)
class Plan:
    """Which signals are read of an item."""

    template: str = "poles"
    poles: bool = False
    layers: tuple[int, ...] = ()
    """The layers whose states are read; empty if none are."""
    wordings: tuple[Wording, ...] = ()

    @classmethod
    def of_auto(cls, task: Task, reader: ReaderLike, states: bool = False) -> Plan:
        """What `auto` reads of such items: with a context likelihoods alone, since the answer is in the context and not
        in what the model knows of the items, and states on request."""
        headless = bool(reader.loaded.missing_head)
        if task.context and not headless and not states:
            return cls(wordings=wordings_of(task))  # a server has neither layers nor states
        layers = tuple(middle_and_late(reader.depth))
        if task.context and not headless:
            return cls(layers=layers, wordings=wordings_of(task))
        return cls(poles=not headless, layers=layers, wordings=() if headless else wordings_of(task))


def texts_for(task: Task) -> list[str]:
    """The exemplars written for the criterion, texts or things as the items are; the high pole first."""
    if task.context:
        return []
    written = exemplars_of(task.criterion, "texts" if are_sentences(task.items) else "things")
    return [] if written is None else [*written.high, *written.low]


def are_sentences(items: Sequence[str]) -> bool:
    """Whether items are sentences or longer texts, by their mean length."""
    return are_texts(items) or sum(len(item.split()) for item in items) >= MIN_WORDS * len(items)


def exemplars(task: Task, poles: Poles, template: Template) -> list[str]:
    """Made-up items such as "a very large country": the high pole first, as many of each pole."""
    return [
        template.exemplar_of(task.criterion, word)
        for words in (poles.high, poles.low)
        for word in (words * EXEMPLAR_WORDS)[:EXEMPLAR_WORDS]
    ]


def likelihoods(
    task: Task, wordings: Sequence[Wording], readings: Readings, row: int = 0
) -> dict[str, np.ndarray]:
    """Template → (N,) from the readings of its `likelihood_prompts`, which start at a row.

    log p(item | high pole) − log p(item | low pole): the difference cancels how common an item is.
    With a context, the pointwise mutual information says more: (log p(item | context) − log p(item)) / tokens.
    """
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    count, by_template = len(task.items), {}
    for wording in wordings:
        rows = 1 if wording.against == "nothing" else 2
        table = checked_logits(readings.logits[row : row + rows, :count].astype(float), task.id)
        gain = table[0] - table[1] if rows == 2 else table[0]
        length = readings.answer_tokens[row, :count]
        by_template[wording.template] = gain if wording.against == "low" else gain / length
        row += rows
    return by_template


def bits_per_character(task: Task, readings: Readings, rows: slice) -> float:
    """What a model spends on the items as answers to `likelihood_prompts`; 0 where no item has a letter."""
    assert readings.logits is not None
    if not any(map(str.isalpha, "".join(task.items))):
        return 0.0
    count = len(task.items)
    nats = -float(np.mean(readings.logits[rows, :count]))
    return nats / log(2) * count / sum(len(item.strip()) for item in task.items)


def likelihood_prompts(task: Task, wordings: Sequence[Wording], prompter: Prompter) -> list[Prompt]:
    """The prompts that items answer: of each wording about the high pole, then the one that it is compared with."""
    poles, prompts = poles_of(task.criterion), []
    for wording in wordings:
        prompts.append(prompter.pole(task, poles.high[0], wording.template))
        if wording.against == "low":
            prompts.append(prompter.pole(task, poles.low[0], wording.template))
        elif wording.against == "context":
            if not task.context:
                raise CcrankError(
                    "against=context compares the prompt with and without its context; this task has no context"
                )
            prompts.append(prompter.pole(task.unchecked(task.items, None), poles.high[0], wording.template))
    return prompts


def read_signals(
    tasks: Sequence[Task], prompter: Prompter, with_states: bool = False, written: bool = True
) -> tuple[list[RawSignals], Cost]:
    """All signals that `auto` reads of each task; `written`: take the exemplars that were written for a criterion."""
    plans = [Plan.of_auto(task, prompter.reader, with_states) for task in tasks]
    return read_raw(tasks, plans, prompter, fitting=True, written=written)


def read_raw(
    tasks: Sequence[Task],
    plans: Sequence[Plan],
    prompter: Prompter,
    *,
    fitting: bool = False,
    written: bool = False,
) -> tuple[list[RawSignals], Cost]:
    """What the plan of each task reads: prompts about items, then prompts that items answer, all tasks together.
    Fitting reads exemplars of the pole words as well, and exemplars `written` for the criterion. Without it both kinds
    of prompts are one reading, so that a single item takes a single pass."""
    about_items, about_poles = [], []
    for index, (task, plan) in enumerate(zip(tasks, plans, strict=True)):
        if plan.poles or plan.layers:
            about_items.append(_ask_about_items(index, task, plan, prompter, fitting, written))
        if plan.wordings:
            about_poles.append(_ask_about_poles(index, task, plan, prompter))
    raw, cost = [RawSignals({}) for _ in tasks], Cost()
    for asked in [about_items, about_poles] if fitting else [about_items + about_poles]:
        if not asked:
            continue
        layers = () if asked is about_poles else next((plan.layers for plan in plans if plan.layers), ())
        watched = prompter.shows_scores and asked is about_items and len(tasks) == 1
        readings = _read(asked, prompter, layers, tasks[0] if watched else None)
        cost += readings.cost
        start = 0
        for one in asked:
            raw[one.index] = one.take(raw[one.index], readings, start)
            start += len(one.prompts)
        if watched and raw[0].made is not None:
            prompter.show(tasks[0].items, raw[0].signals.total())
    return raw, cost


@dataclass(frozen=True)
class _Asked:
    """Prompts about a task, and what is taken from their readings, which start at a row."""

    index: int
    """Which of the tasks it is."""
    prompts: list[Prompt]
    candidates: Sequence[str]
    take: Callable[[RawSignals, Readings, int], RawSignals]


def _ask_about_items(
    index: int, task: Task, plan: Plan, prompter: Prompter, fitting: bool, written: bool
) -> _Asked:
    """The words that the model prefers for each item, and states: of items, then of exemplars. With a context that
    makes items likely, states are for probes and labels, and there is no axis."""
    poles = poles_of(task.criterion)
    words = [*poles.low, *poles.high] if plan.poles else []
    with_axis = fitting and plan.layers and not (task.context and plan.wordings)
    made = exemplars(task, poles, prompter.templates[plan.template]) if with_axis else []
    texts = texts_for(task) if with_axis and written else []
    prompts = prompter.singles(task, plan.template)
    prompts += [prompter.exemplar(task, text, plan.template) for text in [*made, *texts]]
    edges = list(accumulate(map(len, (task.items, made, texts)), initial=0))

    def take(raw: RawSignals, readings: Readings, start: int) -> RawSignals:
        if words and readings.logits is not None:
            table = readings.logits[start : start + len(task.items), : len(words)]
            raw = replace(raw, values={POLES: log_odds(table, task)})
        if readings.states is None or readings.item_states is None:
            return raw
        both = readings.item_states[start:], readings.states[start:]
        items, high_and_low, known = (
            (item[first:last], slot[first:last]) for first, last in pairwise(edges) for item, slot in [both]
        )
        return replace(
            raw, states=items, made=high_and_low if made else None, written=known if texts else None
        )

    return _Asked(index, prompts, words, take)


def _ask_about_poles(index: int, task: Task, plan: Plan, prompter: Prompter) -> _Asked:
    """How likely the items are as answers."""

    def take(raw: RawSignals, readings: Readings, start: int) -> RawSignals:
        values = likelihoods(task, plan.wordings, readings, start)
        bits = bits_per_character(task, readings, slice(start, start + len(prompts)))
        return replace(raw, values={**raw.values, **values}, bits=bits)

    prompts = likelihood_prompts(task, plan.wordings, prompter)
    return _Asked(index, prompts, [item.strip() for item in task.items], take)


def _read(
    asked: Sequence[_Asked], prompter: Prompter, layers: Sequence[int], watched: Task | None
) -> Readings:
    """The readings of all prompts together; those of a task that is watched some items at a time, whose pole scores so
    far are shown. Exemplars are read with the last items."""
    prompts = [prompt for one in asked for prompt in one.prompts]
    candidates = [one.candidates for one in asked for _ in one.prompts]

    def read(part: slice) -> Readings:
        words = candidates[part] if any(candidates) else None
        return prompter.read(prompts[part], words, layers, items=bool(layers), log_probabilities=True)

    if watched is None or not any(candidates):
        return read(slice(None))
    count = len(watched.items)
    readings: list[Readings] = []
    for part in steps(count):
        readings.append(read(part if part.stop < count else slice(part.start, None)))
        logits = [reading.logits for reading in readings if reading.logits is not None]
        scores = log_odds(np.concatenate(logits)[:count], watched)
        prompter.show(watched.items, z_scores(scores))
    return joined(readings)
