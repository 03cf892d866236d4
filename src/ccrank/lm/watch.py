"""Scores of items while a list is still being read, for those who watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from ccrank.lm.reader import Progress

FEWEST, MOST_STEPS = 4, 6
"""A list is read in up to `MOST_STEPS` steps of at least `FEWEST` prompts: every step costs a pass over the weights."""


@dataclass(frozen=True)
class Watcher:
    """A progress callback that is also given scores as items are read; some methods report tokens only."""

    progress: Progress
    """Called with the number of distinct tokens just read."""
    partial: Callable[[Mapping[str, float]], None]
    """Called with the scores of the items read so far: Z-scores among them, from the signals read so far."""

    def __call__(self, tokens: int) -> None:
        self.progress(tokens)


def steps(count: int) -> Iterator[slice]:
    """The slices in which so many prompts are read.

    Parameters
    ----------
    count
        The number of prompts.

    >>> list(steps(9))
    [slice(0, 4, None), slice(4, 9, None)]
    """
    size = max(FEWEST, ceil(count / MOST_STEPS))
    starts = [*range(0, count, size)]
    if len(starts) > 1 and count - starts[-1] < FEWEST:
        starts.pop()
    return (slice(start, stop) for start, stop in zip(starts, [*starts[1:], count], strict=True))


def by_item(items: Sequence[str], scores: Iterable[float]) -> dict[str, float]:
    """Scores by the items' texts, as JSON shows them.

    Parameters
    ----------
    items
        The items.
    scores
        Theirs; there may be fewer.
    """
    return {item: round(float(score), 4) for item, score in zip(items, scores, strict=False)}
