"""Reading the states that probes score: those of single items, or of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import ordered_pairs
from ccrank.models import Cost, ReaderLike
from ccrank.models.reading import Progress, share_of
from ccrank.prompts import Templates
from ccrank.task import Task

POSITIONS = ("slot", "item")


def read_single_states(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    layers: Sequence[int],
    template: str = "single",
    position: str = "slot",
    progress: Progress | None = None,
) -> tuple[list[np.ndarray], list[Cost]]:
    """ItemSingle states of each task, (N, L, d), at the answer slot or at the item's last token."""
    if position not in POSITIONS:
        raise CcrankError(f"position must be slot or item, not {position!r}")
    templates[template].check_fields(reader.form, "item")
    prompts = [
        templates.single(task, index, reader.form, template)
        for task in tasks
        for index in range(len(task.items))
    ]
    readings = reader.read(prompts, layers=layers, items=position == "item", progress=progress)
    states = readings.item_states if position == "item" else readings.states
    assert states is not None
    return _split(states, [len(task.items) for task in tasks], readings.cost)


def read_pair_states(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    layers: Sequence[int],
    template: str = "pair",
    progress: Progress | None = None,
) -> tuple[list[np.ndarray], list[Cost]]:
    """ItemPair states of each task, (N(N − 1), L, 2, d): all ordered pairs, at "Yes" and at "No" in the slot."""
    yes, no = templates[template].yes_and_no()
    prompts = [
        templates.pair(task, int(first), int(second), reader.form, template).filled(answer)
        for task in tasks
        for first, second in ordered_pairs(len(task.items))
        for answer in (yes, no)
    ]
    readings = reader.read(prompts, layers=layers, progress=progress)
    assert readings.states is not None
    parts, costs = _split(readings.states, [rows_of(task, paired=True) for task in tasks], readings.cost)
    return [part.reshape(-1, 2, *part.shape[1:]).swapaxes(1, 2) for part in parts], costs


def rows_of(task: Task, paired: bool) -> int:
    """Prompts of a task: N, or 2N(N − 1) for all ordered pairs with both answers."""
    count = len(task.items)
    return 2 * count * (count - 1) if paired else count


def _split(states: np.ndarray, sizes: Sequence[int], cost: Cost) -> tuple[list[np.ndarray], list[Cost]]:
    return np.split(states, np.cumsum(sizes)[:-1]), [share_of(cost, size, len(states)) for size in sizes]
