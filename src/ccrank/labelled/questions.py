"""Which label would teach most: the expected reduction of the uncertainty of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr

Kind = Literal["grade", "pair"]
CANDIDATES = 60
"""Questions are looked for among so many items, drawn anew each time. The best of all items is often an outlier, whose
states are unlike those of any other item, and teaches less than its variance promises."""
FIRST_GRADES = 5
"""So many items are graded because they stand for the list; before that the model knows too little to choose by."""
STATES_SHARE, PRIOR_SHARE, OWN_SHARE = 0.35, 0.1, 0.3
"""The variances of a score by which items are said to stand for others: what the states explain, what the label-free
score explains, and what is an item's own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A question and what its answer is expected to be worth."""

    kind: Kind
    items: tuple[int, ...]
    """One item to grade, or two to compare."""
    gain: float
    """The expected reduction of the summed variance of all ranks."""


def best_grade(draws: np.ndarray, noise: float, candidates: np.ndarray) -> Choice:
    """The item whose value would teach most.

    Parameters
    ----------
    draws
        (N, T) joint draws of the scores.
    noise
        The variance of a label's noise.
    candidates
        (C,) items that may be asked about.

    With R the ranks of the draws, the answer y = f_i + ε is expected to reduce Σ_j var(R_j) by
    Σ_j cov(R_j, f_i)² / (var(f_i) + noise), as far as ranks are linear in scores.
    """
    gains = grade_gains(draws, noise, candidates)
    best = int(gains.argmax())
    return Choice("grade", (int(candidates[best]),), float(gains[best]))


def grade_gains(draws: np.ndarray, noise: float, candidates: np.ndarray) -> np.ndarray:
    """(C,) what the value of each candidate would teach."""
    asked = draws[candidates] - draws[candidates].mean(axis=1, keepdims=True)
    covariance = _rank_covariance(draws, asked)
    return np.asarray(np.sum(covariance**2, axis=0) / (asked.var(axis=1) + noise))


def best_pair(draws: np.ndarray, noise: float, candidates: np.ndarray) -> Choice:
    """The two items whose order would teach most; parameters as of `best_grade`.

    The answer is the sign of g = f_i − f_j + ε. To the first order it tells φ(z)²/(Φ(z)Φ(−z)) of what the value of g
    would, z being its mean over its deviation: most if the order is open.
    """
    first, second = np.triu_indices(len(candidates), 1)
    difference = draws[candidates[first]] - draws[candidates[second]]
    mean = difference.mean(axis=1)
    spread = difference.var(axis=1) + 2 * noise
    covariance = _rank_covariance(draws, difference - mean[:, None])
    z = mean / np.sqrt(spread)
    told = np.exp(-(z**2)) / (2 * np.pi) / np.maximum(ndtr(z) * ndtr(-z), 1e-12)
    worth = told * np.sum(covariance**2, axis=0) / spread
    best = int(worth.argmax())
    pair = (int(candidates[first[best]]), int(candidates[second[best]]))
    return Choice("pair", pair, float(worth[best]))


def next_question(
    draws: np.ndarray, noise: float, kind: Kind, candidates: np.ndarray, rng: np.random.Generator
) -> Choice:
    """The question of a kind that teaches most, among some candidates.

    Parameters
    ----------
    draws, noise
        As of `best_grade`.
    kind
        grade: the value of one item; pair: the order of two.
    candidates
        (C,) items that may be asked about.
    rng
        Draws `CANDIDATES` of them.
    """
    some = np.sort(rng.permutation(candidates)[:CANDIDATES])
    return (best_grade if kind == "grade" else best_pair)(draws, noise, some)


def representative(
    kernel: np.ndarray, prior: np.ndarray, known: Sequence[int], candidates: Sequence[int]
) -> int:
    """The candidate that tells most about all items, given those that are known; no answer is needed for that.

    Parameters
    ----------
    kernel
        (N, N) of the items' states. Each item's own variance is made 1, so that outliers do not stand for others.
    prior
        (N,) the label-free score.
    known
        Items that have been asked about.
    candidates
        Items that may be asked about.

    With C the covariance of all scores given the known ones, item i reduces their summed variance by
    Σ_j C_ji² / (C_ii + its own variance).
    """
    size = np.sqrt(np.maximum(np.diag(kernel), 1e-12))
    covariance = STATES_SHARE * kernel / np.outer(size, size) + PRIOR_SHARE * np.outer(prior, prior)
    for item in known:
        column = covariance[:, item]
        covariance = covariance - np.outer(column, column) / (column[item] + OWN_SHARE)
    places = np.asarray(candidates)
    gains = np.sum(covariance[:, places] ** 2, axis=0) / (covariance[places, places] + OWN_SHARE)
    return int(places[gains.argmax()])


def _rank_covariance(draws: np.ndarray, centred: np.ndarray) -> np.ndarray:
    """cov(ranks, x) over the draws, for rows x that have mean 0. (N, T), (C, T) -> (N, C)"""
    ranks = np.argsort(np.argsort(draws, axis=0), axis=0).astype(np.float32)
    ranks -= ranks.mean(axis=1, keepdims=True)
    return np.asarray(ranks @ centred.T / draws.shape[1])
