"""Shared by the prompting methods: reading the prompts of many tasks together, and content-free prompts."""

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
"""Content-free replacements for an item, after Zhao et al. (2021)."""


def read_groups(
    reader: ReaderLike,
    groups: Sequence[Sequence[Prompt]],
    candidates: Sequence[str],
    progress: Progress | None = None,
) -> tuple[list[np.ndarray], list[Cost]]:
    """The (prompts, candidates) logits of several groups of prompts, read together; the cost is split in proportion to
    group size."""
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
    """A random number generator for one task."""
    if seed < 0:
        raise CcrankError(f"a seed must be at least 0, got {seed}")
    return np.random.default_rng(seed)


def without_content(prompt: Prompt) -> list[Prompt]:
    """The prompt with content-free words in place of its items, for contextual calibration."""
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
    """The part of the prompt after its last item: the premise of pointwise mutual information."""
    last = max(index for index, piece in enumerate(prompt.pieces) if piece.role == "item")
    pieces = prompt.pieces[last + 1 :]
    slot = next((index for index, piece in enumerate(pieces) if piece.role == "slot"), 0)
    if not "".join(piece.text for piece in pieces[:slot]).strip():
        raise CcrankError(
            f"task {prompt.task!r}: pmi calibration needs text between the last item and the slot: {prompt.text!r}"
        )
    return [replace(prompt, pieces=pieces)]


def reference_prompts(prompt: Prompt, calibration: str) -> list[Prompt]:
    """The reference prompts of a calibration; empty for calibrations that need none."""
    if calibration not in CALIBRATIONS:
        raise CcrankError(f"unknown calibration {calibration!r}; choose one of {', '.join(CALIBRATIONS)}")
    if calibration == "contextual":
        return without_content(prompt)
    return bare_end(prompt) if calibration == "pmi" else []
