"""Label-free routes to a directed ranking. Each gives raw scores of items, higher = more, from words alone.

- poles: which end's word the model would say of the item;
- likelihood: whether the item comes to the model's mind rather at the high end than at the low one;
- axis: how far the item's state lies from made-up items of the low end towards those of the high end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.special import logsumexp

from ccrank.errors import CcrankError
from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.prompting.asking import checked_logits
from ccrank.prompts import Form, Prompt, Templates
from ccrank.task import Task
from ccrank.words import Ends, ends_of

EXEMPLAR_WORDS = 2
"""How many words of each end become made-up items."""

LONGEST_NAME = 60
"""Items with more characters than this, on average, are texts and not names."""


@dataclass(frozen=True)
class Looks:
    """What one pass over a template's prompts gives: the poles' scores, and states for the axis and for probes."""

    poles: list[np.ndarray]
    """Per task (N,); empty where no words were asked for, as of a model without a language-model head."""
    axis: list[np.ndarray]
    """Per task (N,)."""
    states: list[np.ndarray]
    """Per task (N, L, d), at the slot."""
    item_states: list[np.ndarray]
    """Per task (N, L, d), at the item's last token."""
    layers: tuple[int, ...]
    cost: Cost


Against = Literal["low", "context", "nothing"]


@dataclass(frozen=True)
class Wording:
    """A way to ask for items of the high end, and what their log-probability is set against."""

    template: str
    against: Against = "low"
    """The same asked of the low end; the same without the context, per token; or nothing, per token."""

    def __post_init__(self) -> None:
        if self.against not in get_args(Against):
            raise CcrankError(f"against={self.against!r}: it is one of {', '.join(get_args(Against))}")


NAMES = (Wording("such-as"), Wording("considered"))
TEXTS = (Wording("list-of"),)
TOLD = (Wording("that-are"), Wording("this-is", "context"))


def wordings_of(task: Task) -> tuple[Wording, ...]:
    """How the items of a task are asked for.

    A name follows "such as", a whole text does not; and each reading of texts costs as much as all else together.
    Where a context speaks of the items, it is what makes them likely that matters.
    """
    if task.context:
        return TOLD
    texts = sum(map(len, task.items)) > LONGEST_NAME * len(task.items)
    return TEXTS if texts else NAMES


def middle_and_late(depth: int) -> list[int]:
    """Every other layer from a third of the depth on: where meaning is kept, at half the memory."""
    return list(range(depth, depth // 3 - 1, -2))[::-1]


def read_poles(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    template: str = "poles",
    words: bool = True,
    layers: Sequence[int] = (),
    progress: Progress | None = None,
) -> Looks:
    """Ask which end an item belongs to; with `layers`, read the item's states and those of made-up items as well.

    The score is log Σ_h p(h) − log Σ_l p(l) over the adjectives h of the high and l of the low end.
    """
    asked = words and not reader.loaded.missing_head
    per_task = [pole_prompts(task, reader.form, templates, template, bool(layers)) for task in tasks]
    prompts = [prompt for own, _ in per_task for prompt in own]
    candidates = [pole_words for own, pole_words in per_task for _ in own]
    readings = reader.read(
        prompts,
        candidates if asked else None,
        layers,
        items=bool(layers),
        log_probabilities=True,
        progress=progress,
    )
    poles, axis, states, item_states = [], [], [], []
    start = 0
    for task, (own, pole_words) in zip(tasks, per_task, strict=True):
        count, size = len(task.items), len(own)
        if readings.logits is not None:
            split, stop = len(ends_of(task.criterion).low), len(pole_words)
            table = checked_logits(readings.logits[start : start + count, :stop].astype(float), task.id)
            poles.append(logsumexp(table[:, split:], axis=1) - logsumexp(table[:, :split], axis=1))
        if readings.item_states is not None and readings.states is not None:
            both = [one[start : start + size] for one in (readings.item_states, readings.states)]
            axis.append(sum((axis_scores(one, count) for one in both), np.zeros(count)))
            item_states.append(both[0][:count])
            states.append(both[1][:count])
        start += size
    return Looks(poles, axis, states, item_states, readings.layers, readings.cost)


def pole_prompts(
    task: Task, form: Form, templates: Templates, template: str = "poles", made_up: bool = False
) -> tuple[list[Prompt], list[str]]:
    """A prompt for each item and, if asked for, each made-up one; and the words for the low and the high end."""
    ends = ends_of(task.criterion)
    prompts = [templates.single(task, index, form, template) for index in range(len(task.items))]
    if made_up:
        prompts += [templates.exemplar(task, text, form, template) for text in exemplars(task, ends)]
    return prompts, [*ends.low, *ends.high]


def exemplars(task: Task, ends: Ends) -> list[str]:
    """Made-up items, those of the high end first, as many of each."""
    kind = task.criterion.kind
    return [
        f"a very {word} {kind}"
        for words in (ends.high, ends.low)
        for word in (words * EXEMPLAR_WORDS)[:EXEMPLAR_WORDS]
    ]


def axis_scores(states: np.ndarray, count: int) -> np.ndarray:
    """Projections on mean(high exemplars) − mean(low exemplars), standardised per layer, averaged, standardised.

    states (N + 2E, L, d): the items, then the exemplars of the high and of the low end. -> (N,)
    """
    items, made_up = states[:count].astype(float), states[count:].astype(float)
    half = len(made_up) // 2
    direction = made_up[:half].mean(axis=0) - made_up[half:].mean(axis=0)  # (L, d)
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    direction /= np.where(length > 0, length, 1.0)
    return standard(standard(np.einsum("nld,ld->ln", items, direction)).mean(axis=0))


def read_likelihood(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    wordings: Sequence[Wording] | None = None,
    progress: Progress | None = None,
) -> tuple[list[Mapping[str, np.ndarray]], Cost]:
    """The item as the answer: log p(item | high end) − log p(item | low end), which cancels how common an item is.

    Where a context speaks of the items, how much it adds says more: (log p(item | context) − log p(item)) / tokens. All
    wordings of all tasks are one reading: what they share is read once. -> per task: template → (N,)
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
    """The prompt about the high end, and that of what it is set against, if anything."""
    end = ends_of(task.criterion)
    prompts = [templates.end(task, end.high[0], form, wording.template)]
    if wording.against == "low":
        prompts.append(templates.end(task, end.low[0], form, wording.template))
    elif wording.against == "context":
        if not task.context:
            raise CcrankError("against=context sets a context against none; this task has no context")
        bare = replace(task, context=None)
        prompts.append(templates.end(bare, end.high[0], form, wording.template))
    return prompts


def standard(scores: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1 along the last axis; 0 where all are equal."""
    centred = scores - scores.mean(axis=-1, keepdims=True)
    spread = centred.std(axis=-1, keepdims=True)
    some = spread > 1e-9
    return np.asarray(np.where(some, centred / np.where(some, spread, 1.0), 0.0))
