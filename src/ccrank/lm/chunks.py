"""Prompts in chunks: what is requested, what a chunk needs, and the readings collected from all chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ccrank.lm.plan import Plan
from ccrank.lm.points import EngineOutput
from ccrank.lm.reading import Cost, Readings
from ccrank.prompts import Prompt

CHUNK = 4096
"""Prompts that are tokenized and packed together: bounds memory, and is far more than a prefix tree benefits from."""

Progress = Callable[[int], None]
"""Called with the number of distinct tokens just read, those found in the cache included."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is requested of every prompt."""

    layers: tuple[int, ...]
    scores: bool
    items: bool
    log_probabilities: bool
    per_token: bool = False


@dataclass(slots=True, eq=False)
class Chunk:
    """Prompts that are planned and read together."""

    start: int
    """The index of the first prompt."""
    plan: Plan
    distinct: int
    missing: np.ndarray
    """The points that are not in the cache."""
    keys: list[list[bytes]] = field(default_factory=list)
    known: dict[bytes, np.ndarray] = field(default_factory=dict)
    output: EngineOutput | None = None


class Collected:
    """The readings of all prompts, filled chunk by chunk.

    Parameters
    ----------
    count
        The number of prompts.
    wish
        What is requested of each.
    """

    def __init__(self, count: int, wish: Wish) -> None:
        self.count, self.wish = count, wish
        self.cost = Cost()
        self.scores: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.states: list[np.ndarray] = []
        self.items: list[np.ndarray] = []

    def add(self, chunk: Chunk, output: EngineOutput) -> None:
        """Take over the results of one chunk."""
        plan, wish = chunk.plan, self.wish
        prompts = len(plan.encoded)
        self.cost += Cost(prompts, plan.naive_tokens, chunk.distinct, output.computed)
        if wish.scores:
            for group in plan.groups:
                lengths = np.array([len(tail) for tail in group.tails], np.int64)
                self.scores.append((chunk.start + group.prompts, group.scores(output), lengths))
        if wish.layers and prompts:
            self.states.append(output.states_at(plan.slot_points))
        if wish.items and prompts:
            self.items.append(output.states_at(plan.item_points))

    def finished(self, width: int) -> Readings:
        """All readings; `width` is the length of a state where there is none."""
        wish = self.wish
        most = max((len(lengths) for _, _, lengths in self.scores), default=0)
        widest = max((scores.shape[1] for _, scores, _ in self.scores), default=0)
        logits = np.full((self.count, widest), np.nan, np.float32)
        tokens = np.zeros((self.count, most), int)
        for prompts, scores, lengths in self.scores:
            logits[prompts, : scores.shape[1]] = scores
            tokens[prompts, : len(lengths)] = lengths
        nothing = np.zeros((0, len(wish.layers), width), np.float32)
        return Readings(
            logits=logits if wish.scores else None,
            states=np.concatenate(self.states or [nothing]) if wish.layers else None,
            item_states=np.concatenate(self.items or [nothing]) if wish.items else None,
            layers=wish.layers,
            cost=self.cost,
            answer_tokens=tokens if wish.scores else None,
        )


def chunk_ranges(prompts: Sequence[Prompt]) -> Iterator[tuple[int, int]]:
    """Ranges of at most `CHUNK` prompts. A chunk ends where a task does, if possible: its prompts share a prefix.

    The first of several is shorter, so that the device starts early.

    Parameters
    ----------
    prompts
        All prompts, those of a task one after another.
    """
    start, size = 0, CHUNK // 4 if len(prompts) > CHUNK else CHUNK
    while start < len(prompts):
        end = min(start + size, len(prompts))
        if end < len(prompts):
            task = prompts[end].task
            same = next(
                (place for place in range(end - 1, start + size // 2, -1) if prompts[place].task != task),
                None,
            )
            end = end if same is None else same + 1
        yield start, end
        start, size = end, CHUNK


def in_tokens(progress: Progress | None, total: int) -> Callable[[float], None]:
    """Turns shares of a chunk that is read, from 0 to 1, into tokens for `progress`.

    Parameters
    ----------
    progress
        Called with the number of tokens just read.
    total
        The chunk's tokens.
    """
    reported = [0]

    def report(share: float) -> None:
        if progress is not None and (tokens := int(share * total) - reported[0]) > 0:
            reported[0] += tokens
            progress(tokens)

    return report
