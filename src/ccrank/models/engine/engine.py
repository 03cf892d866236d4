"""Running token sequences through a model and reading its outputs at given points.

Of an encoder-decoder model each distinct input goes through the encoder once, its answers through the decoder.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.models.engine.backbone import Backbone, Head
from ccrank.models.engine.graphs import MAX_TOKENS, GraphedPasses, rounded
from ccrank.models.engine.layout import ROW_TOKENS, Batch, Layout, pack
from ccrank.models.engine.read_targets import EngineOutput, Inputs, Points, columns_of
from ccrank.models.engine.tree_masks import TreeMasks
from ccrank.models.tokenize.ragged import Ragged, distinct_numbers, ranges

InputProgress = Callable[[int, EngineOutput], None]
"""Called with the number of sequences just finished, and with all that was read so far."""


_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
"""Reading adds hooks to a model and replaces submodules, so each model is read by one thread at a time."""


class EngineLike(Protocol):
    """What a reader needs of an engine; see `Engine`."""

    @property
    def backbone(self) -> Backbone: ...

    @property
    def tree(self) -> bool: ...

    @property
    def budget(self) -> int: ...

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: InputProgress | None = None
    ) -> EngineOutput:
        """See `Engine.run`."""


@dataclass(frozen=True)
class Targets:
    """What is read, and where the outputs go."""

    inputs: Inputs
    points: Points
    indices: np.ndarray  # (N,) each point's index in `output`
    layers: Sequence[int]
    output: EngineOutput

    def layers_needed(self, chosen: np.ndarray, depth: int) -> list[int]:
        """The layers that must be kept for these points: the requested ones, and the last if the head is needed."""
        needed = {*self.layers} if self.points.states[chosen].any() else set()
        if (self.points.asked[chosen] >= 0).any() or self.points.normaliser[chosen].any():
            needed.add(depth)
        return sorted(needed)

    def store(self, chosen: np.ndarray, rows: dict[int, Tensor], head: Head | None, depth: int) -> None:
        """Store what one batch gave at the `chosen` points, which are the rows of `rows`."""
        points, output = self.points, self.output
        with_states = points.states[chosen]
        if with_states.any():
            widths = {layer: rows[layer].shape[1] for layer in self.layers}
            if len(set(widths.values())) > 1:
                raise CcrankError(
                    f"these layers have states of different widths, so read them in separate calls: {widths}"
                )
            stacked = torch.stack([_rows_at(rows[layer], with_states) for layer in self.layers], dim=1)
            to_host(stacked.float(), partial(output.store_states, self.indices[chosen[with_states]]), output)
        with_tokens = points.asked[chosen] >= 0
        if with_tokens.any():
            assert head is not None
            asked = points.asked[chosen[with_tokens]]
            used = distinct_numbers(asked)
            which = np.searchsorted(used, asked)
            ids, columns = columns_of([points.token_sets[number] for number in used])
            final = _rows_at(rows[depth], with_tokens)
            logits = head.logits(final, head.token_ids(tuple(ids), final.device))
            all_columns = Ragged.of(columns).take(which)
            row = np.repeat(np.arange(len(asked)), all_columns.lengths)
            indices = self.indices[chosen[with_tokens]]
            to_host(
                logits, lambda values: output.store_logits(indices, values[row, all_columns.flat]), output
            )
        with_normaliser = points.normaliser[chosen]
        if with_normaliser.any():
            assert head is not None
            normalisers = head.log_normaliser(_rows_at(rows[depth], with_normaliser))
            store = partial(output.normalisers.__setitem__, self.indices[chosen[with_normaliser]])
            to_host(normalisers, store, output)


@dataclass
class Engine:
    """Reads causal and masked models, with prefix trees where the model supports them."""

    model: Any
    backbone: Backbone
    head: Head | None
    budget: int  # token positions per forward pass
    tree: bool = False  # pack sequences as prefix trees; otherwise pad them on the right
    masks: TreeMasks | None = None
    most_rows: int | None = None  # maximal number of rows per batch; 1 reads one by one
    graphs: GraphedPasses | None = None  # replays small passes on a GPU
    halvings: int = field(default=0, init=False)

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: InputProgress | None = None
    ) -> EngineOutput:
        """Read every point. When memory runs out, the budget is halved permanently and the remaining points are
        read. On a GPU the results may still be on their way: call `collect` before using them."""
        output = EngineOutput.empty(points)
        waiting = distinct_numbers(points.sequence)
        indices = np.arange(len(points))
        with _LOCKS.setdefault(self.model, threading.RLock()):
            while len(waiting):
                part = inputs.take(waiting)
                moved = points.take(indices, np.searchsorted(waiting, points.sequence[indices]))
                done = np.zeros(len(part), bool)
                try:
                    self._read_all(Targets(part, moved, indices, layers, output), done, progress)
                except (RuntimeError, MemoryError) as error:
                    if not _out_of_memory(error):
                        raise
                if not done.all():  # outside `except`: the error holds on to the tensors of the failed pass
                    self._halve(int(part.lengths[~done].max()))
                indices = indices[~done[moved.sequence]]
                waiting = waiting[~done]
        return output

    def _read_all(self, targets: Targets, done: np.ndarray, progress: InputProgress | None) -> None:
        """Read batch by batch; `done` says which inputs are finished."""
        points = targets.points
        layout = self._layout(targets.inputs)
        rows = layout.row_of[points.sequence]
        by_row = np.argsort(rows, kind="stable")
        edges = np.searchsorted(rows[by_row], np.arange(len(layout.tokens) + 1))
        columns = layout.columns(points.sequence, points.position)
        # The position bias of ALiBi is shared by a whole batch.
        one_row = self.tree and self.masks is not None and self.masks.alibi is not None
        for batch in layout.batches(self.budget, 1 if one_row else self.most_rows):
            counts = edges[batch.rows + 1] - edges[batch.rows]
            chosen = by_row[ranges(edges[batch.rows], counts)]
            row = np.repeat(np.arange(len(batch.rows)), counts)
            self._read(batch, targets, chosen, row, columns[chosen])
            targets.output.done[targets.indices[chosen]] = True
            finished = np.isin(layout.row_of, batch.rows)
            done |= finished
            if progress is not None:
                progress(int(finished.sum()), targets.output)

    def _layout(self, inputs: Inputs) -> Layout:
        if self.tree:
            return pack(inputs.ordered, min(ROW_TOKENS, self.budget), self.budget)
        return Layout(inputs.tokens, np.arange(len(inputs)))

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
        self, batch: Batch, targets: Targets, chosen: np.ndarray, row: np.ndarray, column: np.ndarray
    ) -> None:
        """Run one batch and read the `chosen` points, which are at these rows and columns of it."""
        graphs = self.graphs if self.graphs is not None and batch.ends is not None else None
        if graphs is not None and batch.tokens.size <= MAX_TOKENS:
            batch = batch.lengthened(rounded(batch.tokens.shape[1]))
        flat = row * batch.tokens.shape[1] + column
        read_at, arguments, undo = self._arguments(batch, flat)
        needed = targets.layers_needed(chosen, self.backbone.depth)
        try:
            replayed = None if graphs is None else graphs.rows(arguments, read_at, needed)
            rows = self.backbone.rows(arguments, read_at, needed)[0] if replayed is None else replayed
        finally:
            undo()
        targets.store(chosen, rows, self.head, self.backbone.depth)
        targets.output.computed += int(batch.lengths.sum())

    def _arguments(self, batch: Batch, flat: np.ndarray) -> tuple[Tensor, dict[str, Any], Callable[[], None]]:
        """The flat positions to read and the arguments of the forward pass, copied to the device at once."""
        device = self.model.device
        if batch.ends is None:
            seen = np.arange(batch.tokens.shape[1])[None, :] < batch.lengths[:, None]
            read_at, ids, mask = to_device((flat, batch.tokens, seen.astype(np.int64)), device)
            return read_at, {"input_ids": ids, "attention_mask": mask}, lambda: None
        assert self.masks is not None
        read_at, ids, positions, ends = to_device((flat, batch.tokens, batch.positions, batch.ends), device)
        arguments = {"input_ids": ids, "position_ids": positions}
        undo = self.masks.apply(arguments, ends, self.model.dtype)
        return read_at, arguments, undo


@dataclass
class Seq2SeqEngine(Engine):
    """Reads encoder-decoder models: rows are inputs of the encoder, `backbone` is the decoder."""

    encoder: Backbone | None = None

    def _layout(self, inputs: Inputs) -> Layout:
        assert inputs.sources is not None
        assert inputs.source_of is not None
        return Layout(inputs.sources, inputs.source_of)

    @torch.inference_mode()
    def _read(
        self, batch: Batch, targets: Targets, chosen: np.ndarray, row: np.ndarray, column: np.ndarray
    ) -> None:
        assert self.encoder is not None
        at_encoder = targets.points.encoder[chosen]
        flat = (row * batch.tokens.shape[1] + column)[at_encoder]
        read_at, arguments, _ = self._arguments(batch, flat)
        # The decoder needs the encoder's last layer; encoder states alone need only the requested layers.
        top = [] if at_encoder.all() else [self.encoder.depth]
        needed = sorted({*(targets.layers if at_encoder.any() else ()), *top})
        rows, encoded = self.encoder.rows(arguments, read_at, needed)
        targets.output.computed += int(batch.lengths.sum())
        if at_encoder.any():
            targets.store(chosen[at_encoder], rows, None, self.encoder.depth)
        if not at_encoder.all():
            states, mask = encoded.last_hidden_state, arguments["attention_mask"]
            decoded, rows_of = chosen[~at_encoder], row[~at_encoder]
            per_pass = max(1, self.budget // states.shape[1])
            for start in range(0, len(decoded), per_pass):
                part = slice(start, start + per_pass)
                self._decode(states, mask, targets, decoded[part], rows_of[part])

    def _decode(
        self, states: Tensor, mask: Tensor, targets: Targets, chosen: np.ndarray, row: np.ndarray
    ) -> None:
        """Run the decoder for some points, each with its own encoder output."""
        points = targets.points
        decoders = targets.inputs.tokens.take(points.sequence[chosen])
        tokens = decoders.padded()
        flat = np.arange(len(tokens)) * tokens.shape[1] + points.position[chosen]
        ids, sources, read_at = to_device((tokens, row, flat), states.device)
        arguments = {
            "input_ids": ids,
            "encoder_hidden_states": states[sources],
            "encoder_attention_mask": mask[sources],
        }
        rows, _ = self.backbone.rows(arguments, read_at, targets.layers_needed(chosen, self.backbone.depth))
        targets.store(chosen, rows, self.head, self.backbone.depth)
        targets.output.computed += len(decoders.flat)


def _rows_at(rows: Tensor, chosen: np.ndarray) -> Tensor:
    if chosen.all():
        return rows
    [read_at] = to_device((np.flatnonzero(chosen),), rows.device)
    return rows[read_at]


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    text = str(error).lower()
    reasons = ("can't allocate memory", "not enough memory", "out of memory", "cublas_status_alloc_failed")
    return any(reason in text for reason in reasons)


def to_device(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Integer arrays as int64 tensors on the device, in one copy that does not wait for a GPU."""
    if device.type != "cuda":
        return [torch.as_tensor(np.ascontiguousarray(array), device=device) for array in arrays]
    packed = torch.from_numpy(np.concatenate([array.ravel() for array in arrays])).pin_memory()
    moved = packed.to(device, non_blocking=True)
    parts = moved.split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def to_host(values: Tensor, store: Callable[[np.ndarray], object], output: EngineOutput) -> None:
    """Store a result: at once from a CPU; from a GPU when `output` is collected, after a copy that starts now."""
    if values.device.type != "cuda":
        store(values.cpu().numpy())
        return
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(values.device))

    def finish() -> None:
        copied.synchronize()
        store(host.numpy())

    output.waiting.append(finish)
