"""Removing a model's prior preference for certain answers: pure functions on (prompts, candidates) logits."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, logsumexp

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
