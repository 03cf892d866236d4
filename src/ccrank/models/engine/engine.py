"""Running token sequences through a model and reading its outputs at given points."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.lm.backbone import Backbone, Head
from ccrank.lm.graphs import MOST_TOKENS, GraphedPasses, rounded
from ccrank.lm.layout import Batch, Layout
from ccrank.lm.points import EngineOutput, Inputs, Points, columns_of
from ccrank.lm.ragged import distinct_numbers, ranges
from ccrank.lm.transfer import to_device, to_host
from ccrank.lm.tree import Sorted
from ccrank.lm.tree_masks import TreeMasks

Progress = Callable[[int], None]
"""Called with the number of sequences just finished."""

_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
"""Reading adds hooks to a model and replaces submodules, so each model is read by one thread at a time."""


class EngineLike(Protocol):
    """What a reader needs of an engine."""

    @property
    def backbone(self) -> Backbone:
        """The model's layers."""

    @property
    def tree(self) -> bool:
        """Whether sequences are packed as prefix trees."""

    @property
    def budget(self) -> int:
        """Token positions per forward pass."""

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: Progress | None = None
    ) -> EngineOutput:
        """See `Engine.run`."""


@dataclass
class Engine:
    """Reads causal and masked models, with prefix trees where the model supports them."""

    model: Any
    backbone: Backbone
    head: Head | None
    budget: int
    """Token positions per forward pass."""
    tree: bool = False
    """Pack sequences as prefix trees; otherwise pad them on the right."""
    masks: TreeMasks | None = None
    most_rows: int | None = None
    """Maximal number of rows per batch; 1 reads one by one."""
    graphs: GraphedPasses | None = None
    """Replays small passes on a GPU."""
    halvings: int = field(default=0, init=False)

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: Progress | None = None
    ) -> EngineOutput:
        """Read every point. When memory runs out, the budget is halved permanently and the remaining points are
        read. On a GPU the results may still be on their way: call `collect` before using them."""
        with _LOCKS.setdefault(self.model, threading.RLock()):
            return self._run(inputs, points, layers, progress)

    def _run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: Progress | None
    ) -> EngineOutput:
        output = EngineOutput.empty(points)
        waiting = distinct_numbers(points.sequence)
        indices = np.arange(len(points))
        while len(waiting):
            part = inputs.take(waiting)
            place = np.zeros(len(inputs), np.int64)
            place[waiting] = np.arange(len(waiting))
            moved = points.take(indices, place[points.sequence[indices]])
            done = np.zeros(len(part), bool)
            failed = False
            try:
                self._read_all(part, moved, indices, layers, output, done, progress)
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error):
                    raise
                failed = True
            if failed:  # outside `except`: the error holds on to the tensors of the failed pass
                self._halve(int(part.lengths[~done].max()))
            indices = indices[~done[moved.sequence]]
            waiting = waiting[~done]
        return output

    def _read_all(
        self,
        inputs: Inputs,
        points: Points,
        indices: np.ndarray,
        layers: Sequence[int],
        output: EngineOutput,
        done: np.ndarray,
        progress: Progress | None,
    ) -> None:
        """Read batch by batch; `done` says which inputs are finished, `indices` where each point's output goes."""
        layout = self._layout(inputs)
        row_of = self._row_of(layout, inputs)
        rows = row_of[points.sequence]
        by_row = np.argsort(rows, kind="stable")
        edges = np.searchsorted(rows[by_row], np.arange(len(layout.tokens) + 1))
        columns = self._columns(layout, points)
        for batch in layout.batches(self.budget, self._most_rows):
            counts = edges[batch.rows + 1] - edges[batch.rows]
            chosen = by_row[ranges(edges[batch.rows], counts)]
            row = np.repeat(np.arange(len(batch.rows)), counts)
            self._read(batch, inputs, points, chosen, row, columns[chosen], indices, layers, output)
            finished = np.isin(row_of, batch.rows)
            done |= finished
            if progress is not None:
                progress(int(finished.sum()))

    @property
    def _most_rows(self) -> int | None:
        return 1 if self.tree and self.masks is not None and self.masks.one_row else self.most_rows

    def _layout(self, inputs: Inputs) -> Layout:
        if self.tree:
            return Layout.trees(inputs.ordered or Sorted(inputs.tokens), self.budget)
        return Layout.padded(inputs.tokens)

    def _row_of(self, layout: Layout, inputs: Inputs) -> np.ndarray:
        return layout.row_of(np.arange(len(inputs)))

    def _columns(self, layout: Layout, points: Points) -> np.ndarray:
        return layout.columns(points.sequence, points.position)

    def _halve(self, longest: int) -> None:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        elif torch.backends.mps.is_available():
            torch.mps.empty_cache()
        self.halvings += 1
        if self.budget <= max(longest, 16):
            if self.tree or self.most_rows != 1:
                # A row of a tree may hold twice the longest prefix, so the last fallback is reading one by one.
                self.tree, self.most_rows = False, 1
                return
            raise CcrankError(
                f"not enough memory for one sequence of {longest:,} tokens; use a smaller model, shorter texts, "
                "or another --device"
            )
        self.budget = max(self.budget // 2, 16)

    @torch.inference_mode()
    def _read(
        self,
        batch: Batch,
        inputs: Inputs,
        points: Points,
        chosen: np.ndarray,
        row: np.ndarray,
        column: np.ndarray,
        indices: np.ndarray,
        layers: Sequence[int],
        output: EngineOutput,
    ) -> None:
        """Run one batch and read the `chosen` points, which are at these rows and columns of it."""
        graphs = self.graphs if self.graphs is not None and batch.ends is not None else None
        if graphs is not None and batch.tokens.size <= MOST_TOKENS:
            batch = batch.lengthened(rounded(batch.tokens.shape[1]))
        flat = row * batch.tokens.shape[1] + column
        places, arguments, undo = self._arguments(batch, flat)
        asked = layers_needed(points, chosen, layers, self.backbone.depth)
        try:
            replayed = None if graphs is None else graphs.rows(arguments, places, asked)
            rows = self.backbone.rows(arguments, places, asked)[0] if replayed is None else replayed
        finally:
            undo()
        read_points(points, chosen, indices, rows, layers, self.head, self.backbone.depth, output)
        output.computed += int(batch.lengths.sum())

    def _arguments(self, batch: Batch, flat: np.ndarray) -> tuple[Tensor, dict[str, Any], Callable[[], None]]:
        """The places to read and the arguments of the forward pass, copied to the device at once."""
        device = self.model.device
        arguments: dict[str, Any] = {"use_cache": False} if self.backbone.takes("use_cache") else {}
        if batch.ends is None:
            seen = np.arange(batch.tokens.shape[1])[None, :] < batch.lengths[:, None]
            places, ids, mask = to_device((flat, batch.tokens, seen.astype(np.int64)), device)
            return places, arguments | {"input_ids": ids, "attention_mask": mask}, lambda: None
        assert self.masks is not None
        places, ids, positions, ends = to_device((flat, batch.tokens, batch.positions, batch.ends), device)
        arguments |= {"input_ids": ids, "position_ids": positions}
        undo = self.masks.apply(arguments, ends, self.model.dtype)
        return places, arguments, undo


def layers_needed(points: Points, chosen: np.ndarray, layers: Sequence[int], depth: int) -> list[int]:
    """The layers that must be kept for these points: the requested ones, and the last if the head is needed."""
    asked = {*layers} if points.states[chosen].any() else set()
    if (points.asked[chosen] >= 0).any() or points.normaliser[chosen].any():
        asked.add(depth)
    return sorted(asked)


def read_points(
    points: Points,
    chosen: np.ndarray,
    indices: np.ndarray,
    rows: dict[int, Tensor],
    layers: Sequence[int],
    head: Head | None,
    depth: int,
    output: EngineOutput,
) -> None:
    """Store what one batch gave at the `chosen` points, which are the rows of `rows`, in `output`."""
    with_states = points.states[chosen]
    if with_states.any():
        widths = {layer: rows[layer].shape[1] for layer in layers}
        if len(set(widths.values())) > 1:
            raise CcrankError(
                f"these layers have states of different widths, so read them in separate calls: {widths}"
            )
        stacked = torch.stack([_rows_at(rows[layer], with_states) for layer in layers], dim=1)
        target = indices[chosen[with_states]]
        to_host(stacked.float(), lambda values: output.store_states(target, values), output.waiting)
    with_tokens = points.asked[chosen] >= 0
    if with_tokens.any():
        assert head is not None
        asked = points.asked[chosen[with_tokens]]
        used = distinct_numbers(asked)
        which = np.searchsorted(used, asked)
        ids, columns = columns_of([points.token_sets[number] for number in used])
        final = _rows_at(rows[depth], with_tokens)
        logits = head.logits(final, head.token_ids(tuple(ids), final.device))
        sizes = np.array([len(one) for one in columns])[which]
        column = np.concatenate(columns)[ranges((np.cumsum([0, *map(len, columns)])[which]), sizes)]
        row = np.repeat(np.arange(len(asked)), sizes)
        goal = indices[chosen[with_tokens]]
        to_host(logits, lambda values: output.store_logits(goal, values[row, column]), output.waiting)
    with_normaliser = points.normaliser[chosen]
    if with_normaliser.any():
        assert head is not None
        values = head.log_normaliser(_rows_at(rows[depth], with_normaliser))
        places = indices[chosen[with_normaliser]]
        to_host(values, lambda values: output.normalisers.__setitem__(places, values), output.waiting)


def _rows_at(rows: Tensor, chosen: np.ndarray) -> Tensor:
    if chosen.all():
        return rows
    [places] = to_device((np.flatnonzero(chosen),), rows.device)
    return rows[places]


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    text = str(error).lower()
    reasons = ("can't allocate memory", "not enough memory", "out of memory", "cublas_status_alloc_failed")
    return any(reason in text for reason in reasons)
