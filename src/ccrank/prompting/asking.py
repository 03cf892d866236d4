"""What the three ways of asking share: reading many tasks' prompts in one go, and prompts without content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.reader import Progress
from ccrank.lm.reading import checked_logits, share_of
from ccrank.prompting.calibration import CALIBRATIONS
from ccrank.prompts import Prompt

CONTENT_FREE = ("N/A", "something", "it")
"""Stand-ins for an item that say nothing, after Zhao et al. (2021)."""


def read_groups(
    reader: ReaderLike,
    groups: Sequence[Sequence[Prompt]],
    candidates: Sequence[str],
    progress: Progress | None = None,
) -> tuple[list[np.ndarray], list[Cost]]:
    """The (prompts, candidates) logits of several groups of prompts, read together; the cost is shared by size."""
    flat = [prompt for group in groups for prompt in group]
    readings = reader.read(flat, candidates, progress=progress)
    assert readings.logits is not None
    logits, costs, start = [], [], 0
    for group in groups:
        table = readings.logits[start : start + len(group)].astype(float)
        logits.append(checked_logits(table, group[0].task))
        costs.append(share_of(readings.cost, len(group), len(flat)))
        start += len(group)
    return logits, costs


def seeded(seed: int) -> np.random.Generator:
    """A generator of random numbers for one task."""
    if seed < 0:
        raise CcrankError(f"a seed is a number from 0 on, got {seed}")
    return np.random.default_rng(seed)


def without_content(prompt: Prompt) -> list[Prompt]:
    """The prompt with content-free words for its items: for contextual calibration."""
    return [
        replace(
            prompt,
            pieces=tuple(
                replace(piece, text=word) if piece.role == "item" else piece for piece in prompt.pieces
            ),
        )
        for word in CONTENT_FREE
    ]


def bare_end(prompt: Prompt) -> list[Prompt]:
    """What of the prompt stands behind its last item: the premise of pointwise mutual information."""
    last = max(index for index, piece in enumerate(prompt.pieces) if piece.role == "item")
    pieces = prompt.pieces[last + 1 :]
    slot = next((index for index, piece in enumerate(pieces) if piece.role == "slot"), 0)
    if not "".join(piece.text for piece in pieces[:slot]).strip():
        raise CcrankError(
            f"task {prompt.task!r}: pmi calibration needs words between the last item and the slot: {prompt.text!r}"
        )
    return [replace(prompt, pieces=pieces)]


def reference_prompts(prompt: Prompt, calibration: str) -> list[Prompt]:
    """The prompts that a calibration compares with; none for those that need none."""
    if calibration not in CALIBRATIONS:
        raise CcrankError(f"no calibration {calibration!r}; there are {', '.join(CALIBRATIONS)}")
    if calibration == "contextual":
        return without_content(prompt)
    return bare_end(prompt) if calibration == "pmi" else []
