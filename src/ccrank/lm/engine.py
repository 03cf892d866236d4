"""Running token sequences through a model and reading its outputs at given points."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.lm.backbone import Backbone, Head
from ccrank.lm.layout import Layout, padded_layouts, tree_layouts

Progress = Callable[[int], None]
"""Called with the number of sequences just finished."""

_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
"""Reading adds hooks to a model and replaces submodules, so each model is read by one thread at a time."""


@dataclass(frozen=True, slots=True)
class Point:
    """One position of one sequence, and the outputs requested there."""

    sequence: int
    position: int
    token_ids: tuple[int, ...] = ()
    """Token ids whose logits are requested."""
    normaliser: bool = False
    """Whether the log-normaliser over the vocabulary is requested too."""
    states: bool = False
    """Whether the hidden states of the requested layers are returned."""
    encoder: bool = False
    """Read the encoder of an encoder-decoder model, not its decoder."""


@dataclass(slots=True)
class EngineOutput:
    """What was read at P points."""

    token_logits: list[np.ndarray]
    """Per point the logits of its token ids, float32."""
    normalisers: np.ndarray
    """(P,) float32, 0 where not requested."""
    states: list[np.ndarray | None]
    """Per point (layers, width) float32, or None."""
    computed: int = 0
    """Token positions that the model computed, without padding."""


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
        self,
        sequences: Sequence[Any],
        points: Sequence[Point],
        layers: Sequence[int],
        progress: Progress | None = None,
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
    """Maximal number of rows per batch for padded layouts; 1 reads one by one."""
    halvings: int = field(default=0, init=False)

    def run(
        self,
        sequences: Sequence[Any],
        points: Sequence[Point],
        layers: Sequence[int],
        progress: Progress | None = None,
    ) -> EngineOutput:
        """Read every point. When memory runs out, the budget is halved permanently and the remaining points are
        read."""
        with _LOCKS.setdefault(self.model, threading.RLock()):
            return self._run(sequences, points, layers, progress)

    def _run(
        self,
        sequences: Sequence[Any],
        points: Sequence[Point],
        layers: Sequence[int],
        progress: Progress | None,
    ) -> EngineOutput:
        output = EngineOutput(
            [np.zeros(0, np.float32)] * len(points), np.zeros(len(points), np.float32), [None] * len(points)
        )
        by_sequence: dict[int, list[int]] = {}
        for index, point in enumerate(points):
            by_sequence.setdefault(point.sequence, []).append(index)
        waiting = sorted(by_sequence)
        while waiting:
            done: set[int] = set()
            try:
                for layout in self._layouts([sequences[index] for index in waiting]):
                    members = [waiting[index] for index in layout.members]
                    self._read(layout, members, by_sequence, points, layers, output)
                    done.update(members)
                    if progress is not None:
                        progress(len(members))
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error):
                    raise
                self._halve(max(self._length(sequences[index]) for index in waiting if index not in done))
            waiting = [index for index in waiting if index not in done]
        return output

    def _length(self, sequence: Any) -> int:
        return len(sequence)

    def _layouts(self, sequences: Sequence[Any]) -> Iterator[Layout]:
        if self.tree:
            return tree_layouts(sequences, self.budget, one_row=self.masks is not None and self.masks.one_row)
        return padded_layouts(sequences, self.budget, self.most_rows)

    def _halve(self, longest: int) -> None:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
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
        layout: Layout,
        members: Sequence[int],
        by_sequence: dict[int, list[int]],
        points: Sequence[Point],
        layers: Sequence[int],
        output: EngineOutput,
    ) -> None:
        wanted = [index for member in members for index in by_sequence[member]]
        flat = [
            int(places[points[index].position])
            for member, places in zip(members, layout.places, strict=True)
            for index in by_sequence[member]
        ]
        device = self.model.device
        inputs, undo = self._inputs(layout, device)
        heads = any(points[index].token_ids or points[index].normaliser for index in wanted)
        asked = {*layers} if any(points[index].states for index in wanted) else set()
        if heads:
            asked.add(self.backbone.depth)
        try:
            rows, _ = self.backbone.rows(inputs, torch.as_tensor(flat, device=device), sorted(asked))
        finally:
            undo()
        read_points(points, wanted, rows, layers, self.head, self.backbone.depth, output)
        output.computed += int(layout.lengths.sum())

    def _inputs(self, layout: Layout, device: torch.device) -> tuple[dict[str, Any], Callable[[], None]]:
        inputs: dict[str, Any] = {
            "input_ids": torch.as_tensor(layout.tokens, device=device),
            "use_cache": False,
        }
        if not self.backbone.takes("use_cache"):
            del inputs["use_cache"]
        if layout.trees:
            assert self.masks is not None
            inputs["position_ids"] = torch.as_tensor(layout.positions, device=device)
            undo = self.masks.apply(inputs, layout, self.model.dtype, device)
            return inputs, undo
        length = layout.tokens.shape[1]
        inputs["attention_mask"] = torch.as_tensor(
            np.arange(length)[None, :] < layout.lengths[:, None], device=device
        ).long()
        return inputs, lambda: None


def read_points(
    points: Sequence[Point],
    wanted: Sequence[int],
    rows: dict[int, Tensor],
    layers: Sequence[int],
    head: Head | None,
    depth: int,
    output: EngineOutput,
) -> None:
    """Store the rows of one batch, in the order of `wanted`, in `output`."""
    with_states = [place for place, index in enumerate(wanted) if points[index].states]
    if with_states:
        if len({rows[layer].shape[1] for layer in layers}) > 1:
            widths = {layer: rows[layer].shape[1] for layer in layers}
            raise CcrankError(
                f"these layers have states of different widths, so read them in separate calls: {widths}"
            )
        stacked = torch.stack([rows[layer] for layer in layers], dim=1)[with_states].float().cpu().numpy()
        for place, states in zip(with_states, stacked, strict=True):
            output.states[wanted[place]] = states
    with_tokens = [place for place, index in enumerate(wanted) if points[index].token_ids]
    if with_tokens:
        assert head is not None
        token_ids = sorted(
            {token_id for place in with_tokens for token_id in points[wanted[place]].token_ids}
        )
        column = {token_id: number for number, token_id in enumerate(token_ids)}
        final = rows[depth]
        logits = (
            head.logits(final[with_tokens], torch.as_tensor(token_ids, device=final.device)).cpu().numpy()
        )
        for row, place in enumerate(with_tokens):
            asked = points[wanted[place]].token_ids
            output.token_logits[wanted[place]] = logits[row, [column[token_id] for token_id in asked]]
    with_normaliser = [place for place, index in enumerate(wanted) if points[index].normaliser]
    if with_normaliser:
        assert head is not None
        values = head.log_normaliser(rows[depth][with_normaliser]).cpu().numpy()
        for place, value in zip(with_normaliser, values, strict=True):
            output.normalisers[wanted[place]] = value


@dataclass(frozen=True)
class TreeMasks:
    """How a model family receives the attention mask of a packed row."""

    windows: dict[str, int | None]
    """Layer type → size of its attention window (None: unlimited); one entry "" for models with one type of layer."""
    alibi: Any = None
    """The module whose position bias must use depths instead of row indices (MPT); None for the others."""

    @property
    def one_row(self) -> bool:
        """Whether batches are limited to one row, because the bias is shared by the whole batch."""
        return self.alibi is not None

    def apply(
        self, inputs: dict[str, Any], layout: Layout, dtype: torch.dtype, device: torch.device
    ) -> Callable[[], None]:
        """Add the masks to the inputs; returns a function that undoes any change to the model."""
        seen = layout.visible()
        distance = layout.positions[:, :, None] - layout.positions[:, None, :]
        masks = {
            kind: _additive(seen if window is None else seen & (distance < window), dtype, device)
            for kind, window in self.windows.items()
        }
        inputs["attention_mask"] = masks[""] if set(masks) == {""} else masks
        if self.alibi is None:
            return lambda: None
        del inputs["position_ids"]
        return self._bias_by_depth(layout, device)

    def _bias_by_depth(self, layout: Layout, device: torch.device) -> Callable[[], None]:
        """ALiBi's bias is slope × key position, up to a constant that softmax ignores; the key position is replaced by
        its depth."""
        depths = torch.as_tensor(layout.positions[0], device=device)
        build = type(self.alibi).build_mpt_alibi_tensor

        def by_depth(heads: int, length: int, *args: Any, **kwargs: Any) -> Tensor:
            full: Tensor = build(
                self.alibi, heads, length, *args, **kwargs
            )  # (heads, 1, length), 0 at the last position
            return full[:, :, (full.shape[-1] - 1 - depths.max()) + depths]

        self.alibi.build_mpt_alibi_tensor = by_depth
        return lambda: self.alibi.__dict__.pop("build_mpt_alibi_tensor")


def _additive(seen: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(B, T, T) booleans to the (B, 1, T, T) mask that is added to attention scores."""
    allowed = torch.as_tensor(seen, device=device)[:, None]
    return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill_(
        ~allowed, torch.finfo(dtype).min
    )


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return "can't allocate memory" in text or "not enough memory" in text or "out of memory" in text
