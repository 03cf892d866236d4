"""The states that probes are fitted on: read once, a few tasks at a time, and stored layer by layer."""

from __future__ import annotations

import io
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from ccrank.errors import CcrankError
from ccrank.labelfree.signals import EXEMPLAR_WORDS
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.reader import Progress
from ccrank.probe_pipeline.selection import read_anchors
from ccrank.probing.reading import read_pair_states, read_single_states
from ccrank.prompts import Templates
from ccrank.recoverable import RECOVERABLE_ERRORS, reason_of
from ccrank.task import Task, check_text

BLOCK_PROMPTS = 2048
"""Prompts read at once: what a killed run may have to read again."""
BLOCK_BYTES = 128 << 20
"""States held in memory while they are read."""

ReadTasks = Callable[[Sequence[Task]], tuple[list[np.ndarray], list[Cost]]]


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Which states to read."""

    layers: tuple[int, ...]
    template: str = "single"
    """The prompt: ItemSingle, or ItemPair if `paired`."""
    paired: bool = False
    """Read all ordered pairs of items, each with both answers in the slot."""
    position: str = "slot"
    """Of single items: at the answer slot, or at the item's last token ("item")."""

    def prompt_count(self, task: Task) -> int:
        """Prompts of a task: N, or 2N(N − 1) for all ordered pairs with both answers."""
        count = len(task.items)
        return 2 * count * (count - 1) if self.paired else count

    def read(
        self,
        tasks: Sequence[Task],
        reader: ReaderLike,
        templates: Templates,
        progress: Progress | None = None,
    ) -> tuple[list[np.ndarray], list[Cost]]:
        """Each task's states, (N, L, d) or (N(N − 1), L, 2, d), and its share of the cost."""
        for task in tasks:
            check_text(task)
        if self.paired:
            states, costs = read_pair_states(tasks, reader, templates, self.layers, self.template, progress)
        else:
            states, costs = read_single_states(
                tasks, reader, templates, self.layers, self.template, self.position, progress
            )
        for task, own in zip(tasks, states, strict=True):
            if not np.isfinite(own).all():
                raise CcrankError(
                    f"task {task.id!r}: the model's states are not all finite numbers; try --dtype float32"
                )
        return states, costs


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
    anchors: dict[int, np.ndarray] | None = None
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
    reader: ReaderLike,
    templates: Templates,
    request: StateRequest,
    *,
    folder: Path | None = None,
    isolate: bool = False,
    progress: Progress | None = None,
) -> TaskStates:
    """Read the states of all tasks.

    Blocks of tasks are the same in every run, so that a run which resumes from a cache computes what is missing in the
    same batches as before: floating-point sums are then equal to the last bit.

    Parameters
    ----------
    tasks, reader, templates
        What is read, and how.
    request
        Which states.
    folder
        Where the states are stored, in an unnamed file; None keeps them in memory.
    isolate
        Record a task that cannot be read under `failures` and continue, instead of raising its error.
    progress
        Called with the number of distinct tokens just read.
    """
    most = max(1, min(BLOCK_PROMPTS, BLOCK_BYTES // (4 * len(request.layers) * reader.width)))
    sizes = [request.prompt_count(task) for task in tasks]
    start = time.perf_counter()
    states = TaskStates(
        request.layers,
        _file=io.BytesIO() if folder is None else tempfile.TemporaryFile(dir=folder),  # noqa: SIM115
        _row=(2, reader.width) if request.paired else (reader.width,),
        _rows=sum(size // 2 if request.paired else size for size in sizes),
    )
    read = _bound(request, reader, templates, progress)
    for block in blocks(sizes, most):
        for index, (own, cost) in _each(block, tasks, read, states.failures, isolate):
            states.add(index, own, cost)
    states.seconds = time.perf_counter() - start
    return states


def _bound(
    request: StateRequest, reader: ReaderLike, templates: Templates, progress: Progress | None
) -> ReadTasks:
    return lambda some: request.read(some, reader, templates, progress)


def add_anchors(
    states: TaskStates,
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    isolate: bool = False,
    progress: Progress | None = None,
) -> None:
    """Read the anchors that choose among the layers of these states, and add their cost to the tasks.

    A task without anchors fails, since its layer cannot be chosen as those of others are. Blocks are as in
    `read_states`.
    """
    start = time.perf_counter()
    own = [tasks[index] for index in states.tasks]
    most = max(1, min(BLOCK_PROMPTS, BLOCK_BYTES // (8 * len(states.layers) * reader.width)))
    failures: dict[int, str] = {}
    states.anchors = {}

    def read(some: Sequence[Task]) -> tuple[list[np.ndarray], list[Cost]]:
        return read_anchors(some, reader, templates, progress)

    for block in blocks([len(task.items) + 2 * EXEMPLAR_WORDS for task in own], most):
        for place, (anchor, cost) in _each(block, own, read, failures, isolate):
            states.anchors[states.tasks[place]] = anchor
            states.costs[place] += cost
    states.failures |= {states.tasks[place]: reason for place, reason in failures.items()}
    states.seconds += time.perf_counter() - start


def _each(
    block: Sequence[int],
    tasks: Sequence[Task],
    read: ReadTasks,
    failures: dict[int, str],
    isolate: bool,
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
    for index, size in enumerate(sizes):
        if block and sum(sizes[one] for one in block) + size > most:
            yield block
            block = []
        block.append(index)
    if block:
        yield block
