"""Reading the hidden states that probes need: from tasks to arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.reader import Progress
from ccrank.lm.reading import share_of
from ccrank.probing.batch import ordered_pairs
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
    sizes = [len(task.items) for task in tasks]
    return _split(states, sizes), [share_of(readings.cost, size, len(prompts)) for size in sizes]


def read_pair_states(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    layers: Sequence[int],
    template: str = "pair",
    progress: Progress | None = None,
) -> tuple[list[np.ndarray], list[Cost]]:
    """ItemPair states of each task, (N(N − 1), L, 2, d): all ordered pairs, at "Yes" and at "No" in the slot."""
    answers = templates[template].candidates
    if len(answers) != 2:
        raise CcrankError(
            f"template {template!r} needs two candidates, for yes and for no, got {list(answers)}"
        )
    prompts = [
        templates.pair(task, int(first), int(second), reader.form, template).filled(answer)
        for task in tasks
        for first, second in ordered_pairs(len(task.items))
        for answer in answers
    ]
    readings = reader.read(prompts, layers=layers, progress=progress)
    assert readings.states is not None
    sizes = [2 * len(task.items) * (len(task.items) - 1) for task in tasks]
    parts = _split(readings.states, sizes)
    return (
        [part.reshape(-1, 2, *part.shape[1:]).swapaxes(1, 2) for part in parts],
        [share_of(readings.cost, size, len(prompts)) for size in sizes],
    )


def _split(states: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    return np.split(states, np.cumsum(sizes)[:-1])
