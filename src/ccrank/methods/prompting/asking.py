"""Shared by the prompting methods: reading the prompts of many tasks together, calibration, which removes a model's
prior preference for certain answers, and phrases that say how far answers agree."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp

from ccrank.errors import CcrankError
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.models.reading import checked_logits, share_of
from ccrank.prompts import Prompt

CALIBRATIONS = ("mean", "none", "contextual", "batch", "pmi")
CONTENT_FREE = ("N/A", "something", "it")
"""Content-free replacements for an item, after Zhao et al. (2021)."""
PHRASES = {
    "both_orders_agree": "both orders agree on {both_orders_agree:.0%} of pairs (50% by chance)",
    "circular_triads_by_chance": "{circular_triads:g} circular triads ({circular_triads_by_chance:g} by chance)",
    "first_wins": "first item wins {first_wins:.0%}",
    "seeds_agree": "|τ| between seeds {seeds_agree:.2f}",
    "distinct_ratings": "{distinct_ratings:.0%} of ratings in use",
    "shuffles_agree": "τ between shuffles {shuffles_agree:+.2f} (0 by chance)",
    "label_order": "τ with the labels' order {label_order:+.2f} (0 by chance)",
}
"""An entry of an answer's consistency → the phrase that describes it."""


def calibrate(logits: np.ndarray, how: str, reference: np.ndarray) -> np.ndarray:
    """Calibrate by name; reference (R, C) are the logits of `reference_prompts`. (P, C) -> (P, C)"""
    if how == "none":
        return logits
    if how == "mean":
        return calibrate_mean(logits)
    return calibrate_against(logits, logits if how == "batch" else reference)


def calibrate_mean(logits: np.ndarray) -> np.ndarray:
    """The paper's calibration, after Burns et al. (2023): subtract from each candidate its mean logit over all prompts
    of the task. (P, C) -> (P, C)"""
    return np.asarray(logits - logits.mean(axis=0, keepdims=True))


def calibrate_against(logits: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """log p(c | x) − log mean_r p(c | r), p over the candidates. (P, C), (R, C) -> (P, C)

    With all prompts of the task as reference this is batch calibration (Zhou et al. 2024), with content-free items
    contextual calibration (Zhao et al. 2021), with the bare end of the prompt domain-conditional pointwise mutual
    information (Holtzman et al. 2021), up to a term that all candidates share.
    """
    log_reference = logsumexp(log_softmax(reference, axis=1), axis=0) - np.log(len(reference))
    return np.asarray(log_softmax(logits, axis=1) - log_reference)


def reference_prompts(prompt: Prompt, calibration: str) -> list[Prompt]:
    """The reference prompts of a calibration; empty for calibrations that need none."""
    check_choice("calibration", calibration, CALIBRATIONS)
    if calibration == "contextual":

        def with_item(word: str) -> Prompt:
            pieces = (replace(piece, text=word) if piece.role == "item" else piece for piece in prompt.pieces)
            return replace(prompt, pieces=tuple(pieces))

        return [with_item(word) for word in CONTENT_FREE]
    return [bare_end(prompt)] if calibration == "pmi" else []


def bare_end(prompt: Prompt) -> Prompt:
    """The part of the prompt after its last item: the premise of pointwise mutual information."""
    roles = [piece.role for piece in prompt.pieces]
    start = len(roles) - roles[::-1].index("item")
    if not "".join(piece.text for piece in prompt.pieces[start : roles.index("slot")]).strip():
        raise CcrankError(
            f"task {prompt.task!r}: pmi calibration needs text between the last item and the slot: {prompt.text!r}"
        )
    return replace(prompt, pieces=prompt.pieces[start:])


def read_groups(
    prompter: Prompter, groups: Sequence[Sequence[Prompt]], candidates: Sequence[str]
) -> tuple[list[np.ndarray], list[Cost]]:
    """The (prompts, candidates) logits of several groups of prompts, read together; the cost is split in proportion to
    group size."""
    flat = [prompt for group in groups for prompt in group]
    logits, cost = prompter.logits(flat, candidates)
    tables = np.split(logits.astype(float), np.cumsum([*map(len, groups)])[:-1])
    return (
        [checked_logits(table, group[0].task) for table, group in zip(tables, groups, strict=True)],
        [share_of(cost, len(group), len(flat)) for group in groups],
    )


def seeded(seed: int) -> np.random.Generator:
    """A random number generator for one task."""
    if seed < 0:
        raise CcrankError(f"a seed must be at least 0, got {seed}")
    return np.random.default_rng(seed)


def check_choice(name: str, value: str, known: Collection[str]) -> None:
    """Raise an error for an option that is none of the known ones."""
    if value not in known:
        raise CcrankError(f"unknown {name} {value!r}; choose one of {', '.join(known)}")


def describe_consistency(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """How far a method's answers agree with each other, as phrases."""
    # With few opponents, pairs are compared in one order only, and there are no complete triads.
    known = {
        key
        for key, value in consistency.items()
        if math.isfinite(value) and (value or key != "circular_triads_by_chance")
    }
    phrases = [phrase.format(**consistency) for key, phrase in PHRASES.items() if key in known]
    return phrases + ([f"{details['comparisons']:,} comparisons"] if "comparisons" in details else [])
