"""The data types that a reader returns, and how its progress is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from ccrank.errors import CcrankError
from ccrank.task import Task


@dataclass(frozen=True, slots=True)
class Cost:
    """The number of prompts and tokens of a reading."""

    prompts: int = 0
    prompt_tokens: int = 0
    """Tokens in the prompts and candidate answers, counted with repetition: the cost of reading one by one."""
    distinct_tokens: int = 0
    """Tokens after sharing common prefixes (causal) or equal inputs (others): the tokens that must be computed."""
    computed_tokens: int = 0
    """Tokens that were computed, including repeated prefixes, excluding cached ones."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.prompts + other.prompts,
            self.prompt_tokens + other.prompt_tokens,
            self.distinct_tokens + other.distinct_tokens,
            self.computed_tokens + other.computed_tokens,
        )


@dataclass(frozen=True, slots=True)
class Readings:
    """A model's candidate scores and hidden states at the slots of P prompts."""

    logits: np.ndarray | None
    """(P, C) score of each candidate: its logit, or see `ccrank.models.answers` for candidates of several tokens; NaN
    where a prompt has fewer candidates than others."""
    states: np.ndarray | None
    """(P, L, d) hidden states at the slot, for the L requested layers."""
    item_states: np.ndarray | None
    """(P, L, d) hidden states at the last token of the (last) item; NaN for prompts without an item."""
    layers: tuple[int, ...]
    cost: Cost
    answer_tokens: np.ndarray | None = None
    """(P, C) how many tokens each candidate has in its slot; 0 where a prompt has fewer candidates than others."""


def joined(parts: Sequence[Readings]) -> Readings:
    """The readings of consecutive prompts that were read in several steps, as one."""
    if len(parts) == 1:
        return parts[0]

    def column(name: str, filler: float = 0.0) -> np.ndarray | None:
        tables = [table for part in parts if (table := getattr(part, name)) is not None]
        width = max((table.shape[1] for table in tables), default=0)
        for index, table in enumerate(tables):
            if table.shape[1] < width:
                missing = ((0, 0), (0, width - table.shape[1]))
                tables[index] = np.pad(table, missing, constant_values=filler)
        return np.concatenate(tables) if tables else None

    return Readings(
        column("logits", np.nan),
        column("states"),
        column("item_states"),
        parts[0].layers,
        sum((part.cost for part in parts), Cost()),
        column("answer_tokens"),
    )


def share_of(cost: Cost, part: int, whole: int) -> Cost:
    """The proportional share of a common cost, `part` of `whole`."""
    share = part / max(1, whole)
    return Cost(
        part,
        round(cost.prompt_tokens * share),
        round(cost.distinct_tokens * share),
        round(cost.computed_tokens * share),
    )


def shares_by_items(cost: Cost, tasks: Sequence[Task]) -> list[Cost]:
    """Each task's share of a common cost, in proportion to its number of items."""
    total = max(1, sum(len(task.items) for task in tasks))
    return [
        replace(share_of(cost, len(task.items), total), prompts=round(cost.prompts * len(task.items) / total))
        for task in tasks
    ]


def checked_logits(logits: np.ndarray, task: str) -> np.ndarray:
    """The logits unchanged; raises an error unless all are finite, since NaN cannot be ordered."""
    if not np.isfinite(logits).all():
        raise CcrankError(
            f"task {task!r}: the model's logits are not all finite numbers; use another precision, such as "
            "--dtype float32"
        )
    return logits


MIN_STEP, MAX_STEPS = 4, 6
"""A list is read in up to `MAX_STEPS` steps of at least `MIN_STEP` prompts: each costs a pass over the weights."""


@dataclass(frozen=True)
class PartialProgress:
    """A progress callback that also takes scores as items are read; some methods report tokens only."""

    progress: Progress
    """Called with the number of distinct tokens just read."""
    partial: Callable[[Mapping[str, float]], None]
    """Called with the scores of the items read so far: Z-scores among them, from the signals read so far."""

    def __call__(self, tokens: int) -> None:
        self.progress(tokens)


def steps(count: int) -> Iterator[slice]:
    """The slices in which `count` prompts are read."""
    size = max(MIN_STEP, ceil(count / MAX_STEPS))
    starts = [*range(0, count, size)]
    if len(starts) > 1 and count - starts[-1] < MIN_STEP:
        starts.pop()
    return (slice(start, stop) for start, stop in zip(starts, [*starts[1:], count], strict=True))


def by_item(items: Sequence[str], scores: Iterable[float]) -> dict[str, float]:
    """Scores by the items' texts, as JSON shows them."""
    return {item: round(float(score), 4) for item, score in zip(items, scores, strict=False)}


Progress = Callable[[int], None]
"""Called with the number of distinct tokens just read, those found in the cache included."""
