"""Attention over prefix trees by a kernel that skips blocks in which no query sees a key (flex attention).

The additive mask of a row of T nodes has T² entries; this kernel computes visibility from the nodes' `ends` and keeps a
list of the blocks that are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ccrank.errors import CcrankError

NAME = "ccrank_tree"
"""The name under which `transformers` knows this attention."""


def block_mask(ends: Tensor, depths: Tensor, window: int | None) -> Any:
    """Which blocks of queries and keys are needed, and which of their entries.

    Parameters
    ----------
    ends
        (B, T) one past each node's last descendant.
    depths
        (B, T) each node's position.
    window
        How many tokens a layer looks back; None: all.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        visible = (key <= query) & (query < ends[batch, key])
        if window is None:
            return visible
        return visible & (depths[batch, query] - depths[batch, key] < window)

    rows, length = ends.shape
    return create_block_mask(seen, rows, None, length, length, device=ends.device)


@contextmanager
def using_blocks(model: Any) -> Iterator[None]:
    """Have a model attend by this kernel.

    Parameters
    ----------
    model
        A model of `transformers` whose attention can be replaced.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(NAME)
    except (AttributeError, ValueError) as error:
        raise CcrankError(f"{model.config.model_type} models cannot attend by blocks: {error}") from None
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """(B, heads, T, d) queries, keys and values to (B, T, heads, d), as `transformers` calls it."""
    output = _kernel(query.device.type)(
        query,
        key,
        value,
        block_mask=attention_mask,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return output.transpose(1, 2).contiguous(), None


@cache
def _kernel(device: str) -> Any:
    """Flex attention; compiled on a GPU, where it is slow otherwise."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if device == "cuda" else flex_attention
