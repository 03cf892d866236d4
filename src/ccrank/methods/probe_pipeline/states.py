"""The states that probes are fitted on: read once, a few tasks at a time, and stored layer by layer."""

from __future__ import annotations

import io
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from ccrank.errors import RECOVERABLE_ERRORS, CcrankError, reason_of
from ccrank.methods.labelfree.combine import read_signals
from ccrank.methods.labelfree.signals import EXEMPLAR_WORDS
from ccrank.methods.probing.states import read_pair_states, read_single_states, rows_of
from ccrank.models import Cost, Reader, ReaderLike
from ccrank.models.reader_like import parse_layers
from ccrank.models.reading import Progress, shares_by_items
from ccrank.prompts import Templates
from ccrank.task import Task, check_text

MAX_BLOCK_PROMPTS = 2048
"""Prompts read at once: what a killed run may have to read again."""
MAX_BLOCK_BYTES = 128 << 20
"""States held in memory while they are read."""

ReadTasks = Callable[[Sequence[Task]], tuple[list[np.ndarray], list[Cost]]]
"""Tasks → an array and a share of the cost for each."""


def read_anchors(
    tasks: Sequence[Task], reader: ReaderLike, templates: Templates, progress: Progress | None = None
) -> tuple[list[np.ndarray], list[Cost]]:
    """Each task's label-free scores (N,), the mean of `auto`'s signals, and its share of what they cost to read."""
    read = read_signals(tasks, reader, templates, progress)
    anchors = [signals.total() for signals in read.signals]
    for task, anchor in zip(tasks, anchors, strict=True):
        if not np.isfinite(anchor).all():
            raise CcrankError(
                f"task {task.id!r}: the label-free anchors are not all finite numbers; try --dtype float32"
            )
    return anchors, shares_by_items(read.cost, tasks)


@dataclass
class TaskStates:
    """States of the tasks that could be read: (layers, rows, …, d) in float32, in memory or in an unnamed file.

    The file is read and written, not mapped, so that it takes no memory; it disappears with the process.
    """

    layers: tuple[int, ...]
    tasks: list[int] = field(default_factory=list)
    """Which of the tasks given have states."""
    costs: list[Cost] = field(default_factory=list)
    seconds: float = 0.0
    """What the reading took, all tasks together."""
    failures: dict[int, str] = field(default_factory=dict)
    """Task → why it has no states, or no anchors where those are asked for."""
    anchors: Mapping[int, np.ndarray] | None = None
    """Task → label-free scores of its items, (N,), where they choose the layer."""
    _file: IO[bytes] = field(default_factory=io.BytesIO)
    _row: tuple[int, ...] = ()
    """Shape of one row: (d,), or (2, d) for pairs."""
    _rows: int = 0
    """Rows that the file has room for, in each layer."""
    _ends: list[int] = field(default_factory=list)

    def of_layer(self, column: int) -> list[np.ndarray]:
        """Each task's states of one layer: (N, d), or (N(N − 1), 2, d) for pairs."""
        if not self.tasks:
            return []
        size = math.prod(self._row)
        self._file.seek(4 * size * self._rows * column)
        content = self._file.read(4 * size * self._ends[-1])
        table = np.frombuffer(content, np.float32).reshape(-1, *self._row)
        return list(np.split(table, self._ends[:-1]))

    def add(self, index: int, states: np.ndarray, cost: Cost) -> None:
        """Store one task's states, (rows, layers, …, d)."""
        end = self._ends[-1] if self._ends else 0
        for column in range(len(self.layers)):
            self._file.seek(4 * math.prod(self._row) * (self._rows * column + end))
            self._file.write(np.ascontiguousarray(states[:, column], np.float32).tobytes())
        self._ends.append(end + len(states))
        self.tasks.append(index)
        self.costs.append(cost)

    def close(self) -> None:
        """Release the memory or the disk space."""
        self._file.close()


def read_states(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    layer: str = "last",
    *,
    paired: bool = False,
    template: str | None = None,
    position: str = "slot",
    anchors: Mapping[int, np.ndarray] | None = None,
    folder: Path | None = None,
    isolate: bool = False,
    progress: Progress | None = None,
) -> TaskStates:
    """Read the states of all tasks; for `layer="auto"` also the anchors that choose a layer, unless they are given.

    Blocks of tasks are the same in every run, so that a run which resumes from a cache computes what is missing in the
    same batches as before: floating-point sums are then equal to the last bit.
    """
    layers = tuple(parse_layers(layer, reader))
    most = max(1, min(MAX_BLOCK_PROMPTS, MAX_BLOCK_BYTES // (4 * len(layers) * reader.width)))
    sizes = [rows_of(task, paired) for task in tasks]
    start = time.perf_counter()
    states = TaskStates(
        layers,
        anchors=anchors,
        _file=io.BytesIO() if folder is None else tempfile.TemporaryFile(dir=folder),  # noqa: SIM115
        _row=(2, reader.width) if paired else (reader.width,),
        _rows=sum(size // 2 if paired else size for size in sizes),
    )

    def read(some: Sequence[Task]) -> tuple[list[np.ndarray], list[Cost]]:
        for task in some:
            check_text(task)
        if paired:
            states_of_tasks, costs = read_pair_states(
                some, reader, templates, layers, template or "pair", progress
            )
        else:
            states_of_tasks, costs = read_single_states(
                some, reader, templates, layers, template or "single", position, progress
            )
        for task, task_states in zip(some, states_of_tasks, strict=True):
            if not np.isfinite(task_states).all():
                raise CcrankError(
                    f"task {task.id!r}: the model's states are not all finite numbers; try --dtype float32"
                )
        return states_of_tasks, costs

    for block in blocks(sizes, most):
        for index, (task_states, cost) in _each(block, tasks, read, states.failures, isolate):
            states.add(index, task_states, cost)
    states.seconds = time.perf_counter() - start
    if layer == "auto" and anchors is None:
        add_anchors(states, tasks, reader, templates, isolate=isolate, progress=progress)
    return states


def add_anchors(
    states: TaskStates,
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    isolate: bool = False,
    progress: Progress | None = None,
) -> None:
    """Read the anchors of the tasks that have states, and add their cost to the tasks.

    A task without anchors fails, since its layer cannot be chosen like the others. Blocks are as in
    `read_states`.
    """
    start = time.perf_counter()
    with_states = [tasks[index] for index in states.tasks]
    most = max(1, min(MAX_BLOCK_PROMPTS, MAX_BLOCK_BYTES // (8 * len(states.layers) * reader.width)))
    sizes = [len(task.items) + 2 * EXEMPLAR_WORDS for task in with_states]
    failures: dict[int, str] = {}
    anchors: dict[int, np.ndarray] = {}

    def read(some: Sequence[Task]) -> tuple[list[np.ndarray], list[Cost]]:
        return read_anchors(some, reader, templates, progress)

    for block in blocks(sizes, most):
        for position, (anchor, cost) in _each(block, with_states, read, failures, isolate):
            anchors[states.tasks[position]] = anchor
            states.costs[position] += cost
    states.anchors = anchors
    states.failures |= {states.tasks[position]: reason for position, reason in failures.items()}
    states.seconds += time.perf_counter() - start


def _each(
    block: Sequence[int], tasks: Sequence[Task], read: ReadTasks, failures: dict[int, str], isolate: bool
) -> Iterator[tuple[int, tuple[np.ndarray, Cost]]]:
    """What a block of tasks gives; if it fails and failures are isolated, each task alone."""
    try:
        yield from zip(block, zip(*read([tasks[index] for index in block]), strict=True), strict=True)
        return
    except RECOVERABLE_ERRORS as error:
        if not isolate:
            raise
        if len(block) == 1:
            failures[block[0]] = reason_of(error)
            return
    for index in block:
        yield from _each([index], tasks, read, failures, isolate)


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
