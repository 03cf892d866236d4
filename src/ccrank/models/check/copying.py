"""Copying a list of words: how many bits it takes the second time, also if the first is some hundred positions back.

Distant copying shows a base of rotary embeddings that is too small. With a larger one it must work again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ccrank.models.engine.engine import Engine
from ccrank.models.engine.layout import Batch
from ccrank.models.load.light_llama import LightCausalLM
from ccrank.prompts import Piece, Prompt

if TYPE_CHECKING:
    from ccrank.models.reader import Reader


FAR_POSITIONS, MIN_FAR_POSITIONS = 512, 128
"""The gap between the two readings; a model that allows less than the second number is not read with a gap."""
CLEAR_DISTANT = 0.1  # up to here distant copying works, and no other base of rotary embeddings is tried
LARGER_BASES = (10.0, 100.0, 1000.0)
BASE_HELPS = 0.5
"""A base is reported if distant copying takes less than this share of the bits with a larger one."""


def open_prompt(text: str) -> Prompt:
    """A prompt whose slot is after a text."""
    return Prompt((Piece(text), Piece("", "slot")))


def list_bits(reader: Reader, words: str, times: Sequence[int]) -> list[float]:
    """The bits of a list of words, without its first one, when it is read the first or the second time."""
    first, _, rest = words.partition(" ")
    starts = [f"{words}. {first} " if time == 2 else f"{first} " for time in times]
    prompts = [open_prompt(start) for start in starts]
    logits = reader.read(prompts, [[rest]] * len(times), log_probabilities=True).logits
    assert logits is not None
    return [-float(logit) / math.log(2) for logit in logits[:, 0]]


def distant_copying(reader: Reader, words: str, first: float) -> tuple[float | None, tuple[str, str] | None]:
    """The bits of a second reading with a gap before it, relative to the first (None if it cannot be measured); and
    what shows that the base of rotary embeddings is too small, with the cause (None if nothing does).
    """
    model = reader.loaded.model
    start = len(reader.prompt_tokenizer.bos) + reader.count_tokens([f"{words}."])[0]
    # Layers with an attention window must still see the first reading.
    narrow = getattr(model.config, "sliding_window", None) or 2 * FAR_POSITIONS
    gap = min(FAR_POSITIONS, narrow // 2, (reader.window or 2 * FAR_POSITIONS) - 2 * start - 8)
    if gap < MIN_FAR_POSITIONS or not is_rotary(reader):
        return None, None
    apart = with_gap(reader, start, gap)
    distant = list_bits(apart, words, (2,))[0] / first
    if not distant > CLEAR_DISTANT:
        return distant, None
    best, bits = 1.0, math.inf
    for factor in LARGER_BASES:
        with scaled_base(model, factor):
            copied = list_bits(apart, words, (2,))[0] / first
        if copied < bits:
            best, bits = factor, copied
        if bits <= CLEAR_DISTANT:
            break
    if not bits < BASE_HELPS * distant:
        return distant, None
    return distant, (
        f"words that were read {gap} positions before take {distant:.0%} of the bits of new ones, and "
        f"{bits:.0%} with a rotary base {best:g} times as large",
        f"the base of the rotary embeddings is too small by a factor of about {best:g} (rope_theta in config.json)",
    )


@dataclass
class GappedEngine(Engine):
    """Reads as prefix trees, with a gap in the positions."""

    start: int = 0  # the first position after the gap
    gap: int = 0  # by how much positions from `start` on are increased

    def _arguments(self, batch: Batch, flat: np.ndarray) -> tuple[Tensor, dict[str, Any], Callable[[], None]]:
        positions = batch.positions + self.gap * (batch.positions >= self.start)
        return super()._arguments(replace(batch, positions=positions), flat)


def with_gap(reader: Reader, start: int, gap: int) -> Reader:
    """The same reader with a gap in its positions."""
    plain = reader.engine
    assert isinstance(plain, Engine)
    parts = (plain.model, plain.backbone, plain.head, plain.budget)
    return reader.with_engine(GappedEngine(*parts, tree=True, masks=plain.masks, start=start, gap=gap))


def is_rotary(reader: Reader) -> bool:
    """Whether a model has rotary embeddings and takes positions, so that both can be changed."""
    model, engine = reader.loaded.model, reader.engine
    takes = isinstance(engine, Engine) and engine.tree and engine.masks is not None
    return takes and bool(_frequencies(model))


@contextmanager
def scaled_base(model: Any, factor: float) -> Iterator[None]:
    """Multiply the base of a model's rotary embeddings, and restore it in the end."""
    originals = [(values, values.clone()) for values in _frequencies(model)]
    try:
        for values, original in originals:  # base^(−i / n), i = 0 … n − 1
            steps = torch.arange(len(original), device=original.device) / len(original)
            values.copy_(original * factor**-steps)
        yield
    finally:
        for values, original in originals:
            values.copy_(original)


def _frequencies(model: Any) -> list[Tensor]:
    """The frequencies of rotary embeddings, which `transformers` keeps in a buffer for each type of layer."""
    if isinstance(model, LightCausalLM):
        return [model.model.frequencies]
    return [
        values
        for name, values in model.named_buffers()
        if name.endswith("inv_freq") and not name.endswith("original_inv_freq") and values.dim() == 1
    ]
