"""Reading with a gap in the positions, and with another base of rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ccrank.lm.engine import Engine
from ccrank.lm.layout import Batch
from ccrank.lm.light.llama import LightCausalLM

if TYPE_CHECKING:
    from ccrank.lm.reader import Reader


@dataclass
class GappedEngine(Engine):
    """Reads as prefix trees, with a gap in the positions."""

    start: int = 0
    """The first position after the gap."""
    gap: int = 0
    """By how much positions from `start` on are increased."""

    def _arguments(self, batch: Batch, flat: np.ndarray) -> tuple[Tensor, dict[str, Any], Callable[[], None]]:
        positions = batch.positions + self.gap * (batch.positions >= self.start)
        return super()._arguments(replace(batch, positions=positions), flat)


def with_gap(reader: Reader, start: int, gap: int) -> Reader:
    """The same reader with a gap in its positions.

    Parameters
    ----------
    reader
        An open model that is read by prefix trees.
    start
        The first position after the gap.
    gap
        By how much positions from `start` on are increased.
    """
    own = reader.engine
    assert isinstance(own, Engine)
    return reader.with_engine(
        GappedEngine(
            own.model, own.backbone, own.head, own.budget, tree=True, masks=own.masks, start=start, gap=gap
        )
    )


def is_rotary(reader: Reader) -> bool:
    """Whether a model has rotary embeddings and takes positions, so that both can be changed.

    Parameters
    ----------
    reader
        An open model.
    """
    model, engine = reader.loaded.model, reader.engine
    takes = isinstance(engine, Engine) and engine.tree and engine.masks is not None
    return takes and (isinstance(model, LightCausalLM) or any(True for _ in _frequencies(model)))


@contextmanager
def scaled_base(model: Any, factor: float) -> Iterator[None]:
    """Multiply the base of a model's rotary embeddings, and restore it in the end.

    Parameters
    ----------
    model
        A model for which `is_rotary` holds.
    factor
        The factor of the base.
    """
    if isinstance(model, LightCausalLM):
        before = model.model.theta
        model.model.theta = before * factor
        try:
            yield
        finally:
            model.model.theta = before
        return
    kept = [(values, values.clone()) for values in _frequencies(model)]
    try:
        for values, own in kept:  # base^(−i / n), i = 0 … n − 1
            steps = torch.arange(len(own), device=own.device) / len(own)
            values.copy_(own * factor**-steps)
        yield
    finally:
        for values, own in kept:
            values.copy_(own)


def _frequencies(model: Any) -> Iterator[Tensor]:
    """The buffers of `transformers` with the frequencies of rotary embeddings; one for each type of layer."""
    for name, values in model.named_buffers():
        if name.endswith("inv_freq") and not name.endswith("original_inv_freq") and values.dim() == 1:
            yield values
