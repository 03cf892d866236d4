"""Copying a list of words: how many bits it takes the second time, also if the first is some hundred positions back.

A base of rotary embeddings that is too small for the weights hardly changes how short texts are read, but tokens that
are far apart no longer find each other. A gap in the positions shows it with a few tokens. Whether the base is to blame
is tried out: with a larger one, copying must work again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccrank.lm.rotary import is_rotary, scaled_base, with_gap
from ccrank.prompts import Piece, Prompt

if TYPE_CHECKING:
    from ccrank.lm.reader import Reader

FAR_POSITIONS, LEAST_FAR_POSITIONS = 512, 128
"""The gap between the two readings; a model that allows less than the second number is not read with a gap."""
CLEAR_DISTANT = 0.1
"""Up to here distant copying works, and no other base of rotary embeddings is tried."""
LARGER_BASES = (10.0, 100.0, 1000.0)
BASE_HELPS = 0.5
"""A base is reported if distant copying takes less than this share of the bits with a larger one."""


def list_bits(reader: Reader, words: str, times: Sequence[int]) -> list[float]:
    """The bits of a list of words, without its first one, when it is read the first or the second time.

    Parameters
    ----------
    reader
        An open causal model.
    words
        Unrelated words.
    times
        1 or 2 for each number to return.
    """
    first, _, rest = words.partition(" ")
    starts = [f"{words}. {first} " if time == 2 else f"{first} " for time in times]
    prompts = [Prompt((Piece(start), Piece("", "slot"))) for start in starts]
    logits = reader.read(prompts, [[rest]] * len(times), log_probabilities=True).logits
    assert logits is not None
    return [-float(one) / math.log(2) for one in logits[:, 0]]


def distant_copying(reader: Reader, words: str, first: float) -> tuple[float | None, tuple[str, str] | None]:
    """The bits of a second reading with a gap before it, of those of the first (None if it cannot be measured); and
    what shows that the base of rotary embeddings is too small, with the cause (None if nothing does).

    Parameters
    ----------
    reader
        An open causal model.
    words
        Unrelated words.
    first
        The bits of their first reading.
    """
    model = reader.loaded.model
    start = len(reader.prompt_tokenizer.bos) + reader.count_tokens([f"{words}."])[0]
    # Layers with an attention window must still see the first reading.
    narrow = getattr(model.config, "sliding_window", None) or 2 * FAR_POSITIONS
    gap = min(FAR_POSITIONS, narrow // 2, (reader.window or 2 * FAR_POSITIONS) - 2 * start - 8)
    if gap < LEAST_FAR_POSITIONS or not is_rotary(reader):
        return None, None
    apart = with_gap(reader, start, gap)
    distant = list_bits(apart, words, (2,))[0] / first
    if not distant > CLEAR_DISTANT:
        return distant, None
    best, bits = 1.0, math.inf
    for factor in LARGER_BASES:
        with scaled_base(model, factor):
            found = list_bits(apart, words, (2,))[0] / first
        if found < bits:
            best, bits = factor, found
        if bits <= CLEAR_DISTANT:
            break
    if not bits < BASE_HELPS * distant:
        return distant, None
    return distant, (
        f"words that were read {gap} positions before take {distant:.0%} of the bits of new ones, and "
        f"{bits:.0%} with a rotary base {best:g} times as large",
        f"the base of the rotary embeddings is too small by a factor of about {best:g} (rope_theta in config.json)",
    )
