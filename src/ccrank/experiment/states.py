"""The states that a group of probes shares: read once, a few tasks at a time, and kept on disk layer by layer."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.experiment.trouble import TROUBLE, reason_of
from ccrank.labelfree.routes import EXEMPLAR_WORDS
from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.probing.reading import read_pair_states, read_single_states
from ccrank.probing.selection import read_anchors
from ccrank.prompts import Templates
from ccrank.task import Task, check_text

BLOCK_PROMPTS = 2048
"""Prompts read at once: what a killed run may have to read again."""
BLOCK_BYTES = 128 << 20
"""States held in memory while they are read."""


@dataclass
class SharedStates:
    """States of the tasks that could be read, in a file without a name that dies with the process.

    The file is (layers, rows, …, d) in float32. It is read and written, not mapped, so that it takes no memory.
    """

    layers: list[int]
    tasks: list[int]
    """Which of the tasks given have states."""
    costs: list[Cost]
    seconds: float
    """What the reading took, all tasks together."""
    failures: dict[int, str] = field(default_factory=dict)
    """Why the other tasks have none, or no anchors where those are asked for."""
    anchors: dict[int, np.ndarray] | None = None
    """Task → label-free scores of its items, (N,), where they choose the layer."""
    _file: Any = None
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
        table = np.fromfile(self._file, np.float32, size * self._ends[-1])
        return list(np.split(table.reshape(-1, *self._row), self._ends[:-1]))

    def add(self, index: int, states: np.ndarray, cost: Cost) -> None:
        """Keep one task's states, (rows, layers, …, d)."""
        end = self._ends[-1] if self._ends else 0
        for column in range(len(self.layers)):
            self._file.seek(4 * math.prod(self._row) * (self._rows * column + end))
            self._file.write(np.ascontiguousarray(states[:, column], np.float32).tobytes())
        self._ends.append(end + len(states))
        self.tasks.append(index)
        self.costs.append(cost)

    def close(self) -> None:
        """Give the disk back."""
        self._file.close()


def read_shared(
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    kind: str,
    layers: Sequence[int],
    folder: Path,
    progress: Progress | None = None,
) -> SharedStates:
    """Read the states of all tasks for probes of one kind: single, pair or embeddings.

    Blocks of tasks are the same in every run, so that a run which goes on from a cache computes what it lacks in the
    very company in which it was first computed: floating-point sums then come out the same to the last bit.
    """

    def read(some: Sequence[Task]) -> tuple[list[np.ndarray], list[Cost]]:
        for task in some:
            check_text(task)
        if kind == "pair":
            found, costs = read_pair_states(some, reader, templates, layers, progress=progress)
        else:
            position = "item" if kind == "embeddings" else "slot"
            found, costs = read_single_states(
                some, reader, templates, layers, position=position, progress=progress
            )
        for task, one in zip(some, found, strict=True):
            if not np.isfinite(one).all():
                raise CcrankError(
                    f"task {task.id!r}: the model's states are not all finite numbers; try --dtype float32"
                )
        return found, costs

    paired = kind == "pair"
    most = max(1, min(BLOCK_PROMPTS, BLOCK_BYTES // (4 * len(layers) * reader.width)))
    sizes = [prompt_count(task, paired) for task in tasks]
    start = time.perf_counter()
    shared = SharedStates(
        list(layers),
        [],
        [],
        0.0,
        # Without a name the file is gone as soon as the process is, however that ends.
        _file=tempfile.TemporaryFile(dir=folder),  # noqa: SIM115 - closed by its owner
        _row=(2, reader.width) if paired else (reader.width,),
        _rows=sum(size // 2 if paired else size for size in sizes),
    )
    for block in blocks(sizes, most):
        for index, (states, cost) in _each(block, tasks, read, shared.failures):
            shared.add(index, states, cost)
    shared.seconds = time.perf_counter() - start
    return shared


def read_shared_anchors(
    shared: SharedStates,
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    progress: Progress | None = None,
) -> None:
    """Read the anchors that choose among the layers of these states, and charge the tasks for them.

    A task without anchors fails: its layer could not be chosen as those of others are. Blocks are as in `read_shared`.
    """

    def read(some: Sequence[Task]) -> tuple[list[np.ndarray], list[Cost]]:
        return read_anchors(some, reader, templates, progress)

    start = time.perf_counter()
    own = [tasks[index] for index in shared.tasks]
    most = max(1, min(BLOCK_PROMPTS, BLOCK_BYTES // (8 * len(shared.layers) * reader.width)))
    failures: dict[int, str] = {}
    shared.anchors = {}
    for block in blocks([len(task.items) + 2 * EXEMPLAR_WORDS for task in own], most):
        for place, (anchor, cost) in _each(block, own, read, failures):
            shared.anchors[shared.tasks[place]] = anchor
            shared.costs[place] += cost
    shared.failures |= {shared.tasks[place]: reason for place, reason in failures.items()}
    shared.seconds += time.perf_counter() - start


def _each(
    block: Sequence[int],
    tasks: Sequence[Task],
    read: Callable[[Sequence[Task]], tuple[list[np.ndarray], list[Cost]]],
    failures: dict[int, str],
) -> Iterator[tuple[int, tuple[np.ndarray, Cost]]]:
    """What a block of tasks gives; where it fails, each task alone, to find the one to blame."""
    try:
        yield from zip(block, zip(*read([tasks[index] for index in block]), strict=True), strict=True)
        return
    except TROUBLE as error:
        if len(block) == 1:
            failures[block[0]] = reason_of(error)
            return
    for index in block:
        yield from _each([index], tasks, read, failures)


def prompt_count(task: Task, paired: bool) -> int:
    """Prompts of a task: N, or 2N(N − 1) for all ordered pairs with both answers."""
    count = len(task.items)
    return 2 * count * (count - 1) if paired else count


def blocks(sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Runs of neighbours whose sizes add up to at most `most`, or single ones that are larger."""
    block: list[int] = []
    for index, size in enumerate(sizes):
        if block and sum(sizes[one] for one in block) + size > most:
            yield block
            block = []
        block.append(index)
    if block:
        yield block
