"""The states that probes are fitted on: read once, a few tasks at a time, and stored layer by layer."""

from __future__ import annotations

import io
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from ccrank.errors import isolate_failures
from ccrank.methods.labelfree.signals import EXEMPLAR_WORDS, read_signals
from ccrank.methods.probing.scorer import check_finite, read_pair_states, read_single_states, rows_of
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import parse_layers
from ccrank.models.reading import shares_by_items
from ccrank.task import Task, check_text

MAX_BLOCK_PROMPTS = 2048
"""Prompts read at once: what a killed run may have to read again."""
MAX_BLOCK_BYTES = 128 << 20
"""States held in memory while they are read."""

Read = tuple[list[np.ndarray], list[Cost]]
"""An array and a share of the cost for each task."""


@dataclass
class TaskStates:
    """States of the tasks that could be read, in float32, in memory or in an unnamed file, which disappears with the
    process. It is not mapped, so that it takes no memory."""

    layers: tuple[int, ...]
    costs: dict[int, Cost] = field(default_factory=dict)
    """Task that has states → what reading them cost."""
    seconds: float = 0.0
    """What the reading took, all tasks together."""
    failures: dict[int, str] = field(default_factory=dict)
    """Task → why it has no states, or no anchors where those are asked for."""
    anchors: Mapping[int, np.ndarray] | None = None
    """Task → label-free scores of its items, (N,), where they choose the layer."""
    _file: IO[bytes] = field(default_factory=io.BytesIO)
    _places: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    """Task → the offset of its states, and their shape in one layer."""

    def add(self, index: int, states: np.ndarray, cost: Cost) -> None:
        """Store one task's states, (rows, layers, …, d)."""
        by_layer = np.ascontiguousarray(states.swapaxes(0, 1), np.float32)
        self._places[index] = self._file.seek(0, io.SEEK_END), by_layer.shape[1:]
        self._file.write(by_layer.tobytes())
        self.costs[index] = cost

    def of_layer(self, layer: int) -> dict[int, np.ndarray]:
        """Each task's states of one layer: (N, d), or (N(N − 1), 2, d) for pairs."""
        tables = {}
        for index, (offset, shape) in self._places.items():
            size = 4 * math.prod(shape)
            self._file.seek(offset + size * self.layers.index(layer))
            tables[index] = np.frombuffer(self._file.read(size), np.float32).reshape(shape)
        return tables


def read_states(
    tasks: Sequence[Task],
    prompter: Prompter,
    layer: str = "last",
    *,
    paired: bool = False,
    template: str | None = None,
    position: str = "slot",
    anchors: Mapping[int, np.ndarray] | None = None,
    folder: Path | None = None,
    isolate: bool = False,
) -> TaskStates:
    """Read the states of all tasks; for `layer="auto"` also the anchors that choose a layer, unless they are given."""
    start, layers = time.perf_counter(), tuple(parse_layers(layer, prompter.reader))
    file = io.BytesIO() if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    states = TaskStates(layers, anchors=anchors, _file=file)

    def read(some: Sequence[Task]) -> Read:
        for task in some:
            check_text(task)
        if paired:
            return read_pair_states(some, prompter, layers, template or "pair")
        return read_single_states(some, prompter, layers, template or "single", position)

    sizes = [rows_of(task, paired) for task in tasks]
    row_bytes = 4 * len(layers) * prompter.reader.width
    for index, table, cost in _in_blocks(tasks, range(len(tasks)), sizes, row_bytes, read, states, isolate):
        states.add(index, table, cost)
    states.seconds = time.perf_counter() - start
    if layer == "auto" and anchors is None:
        add_anchors(states, tasks, prompter, isolate=isolate)
    return states


def add_anchors(
    states: TaskStates, tasks: Sequence[Task], prompter: Prompter, *, isolate: bool = False
) -> None:
    """Read the anchors of the tasks that have states, and add their cost to the tasks. A task without anchors fails,
    since its layer cannot be chosen like the others."""
    start, anchors, members = time.perf_counter(), {}, [*states.costs]
    sizes = [len(tasks[index].items) + 2 * EXEMPLAR_WORDS for index in members]
    row_bytes = 8 * len(states.layers) * prompter.reader.width

    read = partial(read_anchors, prompter=prompter)
    for index, anchor, cost in _in_blocks(tasks, members, sizes, row_bytes, read, states, isolate):
        anchors[index] = anchor
        states.costs[index] += cost
    states.anchors = anchors
    states.seconds += time.perf_counter() - start


def read_anchors(tasks: Sequence[Task], prompter: Prompter) -> Read:
    """Each task's label-free scores (N,), the mean of `auto`'s signals, and its share of what they cost to read."""
    raws, cost = read_signals(tasks, prompter)
    anchors = [raw.signals.total() for raw in raws]
    for task, anchor in zip(tasks, anchors, strict=True):
        check_finite(anchor, task, "label-free anchors")
    return anchors, shares_by_items(cost, tasks)


def _in_blocks(
    tasks: Sequence[Task],
    members: Sequence[int],
    sizes: Sequence[int],
    row_bytes: int,
    read: Callable[[Sequence[Task]], Read],
    states: TaskStates,
    isolate: bool,
) -> Iterator[tuple[int, np.ndarray, Cost]]:
    """(index, array, cost) of each member, read a few at a time; those that fail alone are left out if `isolate`.
    Blocks are the same in every run: a run that resumes from a cache then has floating-point sums equal to the last
    bit."""

    def read_block(block: Sequence[int]) -> list[tuple[int, np.ndarray, Cost]]:
        return list(zip(block, *read([tasks[index] for index in block]), strict=True))

    most = max(1, min(MAX_BLOCK_PROMPTS, MAX_BLOCK_BYTES // row_bytes))
    for places in blocks(sizes, most):
        block = [members[place] for place in places]
        yield from isolate_failures(block, read_block, states.failures) if isolate else read_block(block)


def blocks(sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Runs of consecutive indices whose sizes add up to at most `most`, or single ones that are larger."""
    block: list[int] = []
    total = 0
    for index, size in enumerate(sizes):
        if block and total + size > most:
            yield block
            block, total = [], 0
        block.append(index)
        total += size
    if block:
        yield block
