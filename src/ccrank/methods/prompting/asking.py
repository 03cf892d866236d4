"""Shared by the prompting methods: reading the prompts of many tasks together, and calibration, which removes a model's
prior preference for certain answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import log_softmax, logsumexp

from ccrank.errors import CcrankError
from ccrank.models import Cost, ReaderLike
from ccrank.models.reading import Progress, checked_logits, share_of
from ccrank.prompts import Prompt

CALIBRATIONS = ("mean", "none", "contextual", "batch", "pmi")


def calibrate_mean(logits: np.ndarray) -> np.ndarray:
    """The paper's calibration: subtract from each candidate its mean logit over all prompts of the task.

    l'(x, c) = l(x, c) − mean_x' l(x', c), after Burns et al. (2023). (P, C) -> (P, C)
    """
    return np.asarray(logits - logits.mean(axis=0, keepdims=True))


def calibrate_batch(logits: np.ndarray) -> np.ndarray:
    """Batch calibration (Zhou et al. 2024): log p(c | x) − log mean_x' p(c | x'), p over the candidates.

    (P, C) -> (P, C)
    """
    log_p = log_softmax(logits, axis=1)
    return np.asarray(log_p - (logsumexp(log_p, axis=0, keepdims=True) - np.log(len(log_p))))


def calibrate_against(logits: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Calibration with content-free prompts: log p(c | x) − log mean_r p(c | r), p over the candidates.

    With content-free items as reference this is contextual calibration (Zhao et al. 2021); with the bare end of the
    prompt it is domain-conditional pointwise mutual information (Holtzman et al. 2021), up to a term that all
    candidates share. (P, C), (R, C) -> (P, C)
    """
    log_reference = logsumexp(log_softmax(reference, axis=1), axis=0) - np.log(len(reference))
    return np.asarray(log_softmax(logits, axis=1) - log_reference)


def calibrate(logits: np.ndarray, how: str, reference: np.ndarray | None = None) -> np.ndarray:
    """Calibrate by name; "contextual" and "pmi" need the logits of reference prompts."""
    if how == "none":
        return logits
    if how == "mean":
        return calibrate_mean(logits)
    if how == "batch":
        return calibrate_batch(logits)
    assert reference is not None
    return calibrate_against(logits, reference)


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
    tables = np.split(readings.logits.astype(float), np.cumsum([len(group) for group in groups])[:-1])
    return (
        [checked_logits(table, group[0].task) for table, group in zip(tables, groups, strict=True)],
        [share_of(readings.cost, len(group), len(flat)) for group in groups],
    )


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
