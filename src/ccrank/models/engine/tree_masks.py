"""The attention masks of prefix trees, made on the model's device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TreeMasks:
    """How a model family receives the attention mask of a packed row."""

    windows: dict[str, int | None]
    """Layer type → size of its attention window (None: unlimited); one entry "" for models with one type of layer."""
    alibi: Any = None
    """The module whose position bias must use depths instead of row indices (MPT); None for the others."""

    def apply(self, inputs: dict[str, Any], ends: Tensor, dtype: torch.dtype) -> Callable[[], None]:
        """Add the masks of `ends` (B, T) to the arguments of a pass; returns what undoes changes to the model."""
        depths = inputs["position_ids"]
        distance = depths[:, :, None] - depths[:, None, :]  # (B, T, T) from each query back to each key
        seen = visible(ends)
        masks = {
            kind: _additive(seen if window is None else seen & (distance < window), dtype)
            for kind, window in self.windows.items()
        }
        inputs["attention_mask"] = masks[""] if set(masks) == {""} else masks
        if self.alibi is None:
            return lambda: None
        del inputs["position_ids"]
        return self._bias_by_depth(depths[0])

    def _bias_by_depth(self, depths: Tensor) -> Callable[[], None]:
        """Use depths as key positions: ALiBi's bias is slope × key position, up to a constant that softmax ignores."""
        build = type(self.alibi).build_mpt_alibi_tensor

        def by_depth(heads: int, length: int, *args: Any, **kwargs: Any) -> Tensor:
            full: Tensor = build(
                self.alibi, heads, length, *args, **kwargs
            )  # (heads, 1, length), 0 at the last position
            return full[:, :, (full.shape[-1] - 1 - depths.max()) + depths]

        self.alibi.build_mpt_alibi_tensor = by_depth
        return lambda: self.alibi.__dict__.pop("build_mpt_alibi_tensor")


def visible(ends: Tensor) -> Tensor:
    """(B, T, T) whether each query attends to each key (last axis), itself or an ancestor, from `ends` (B, T)."""
    index = torch.arange(ends.shape[1], device=ends.device)
    return (index[None, :] <= index[:, None]) & (index[:, None] < ends[:, None, :])


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, T, T) booleans to the (B, 1, T, T) mask that is added to attention scores."""
    visible, hidden = (
        torch.full((), value, dtype=dtype, device=seen.device) for value in (0.0, torch.finfo(dtype).min)
    )
    return torch.where(seen, visible, hidden)[:, None]
