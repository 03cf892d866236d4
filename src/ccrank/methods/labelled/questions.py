"""Which label would teach most: the expected reduction of the uncertainty of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr

Kind = Literal["grade", "pair"]
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


@dataclass(frozen=True)
class Belief:
    """What is known of the scores of C items: a normal distribution."""

    mean: np.ndarray
    """(C,)"""
    covariance: np.ndarray
    """(C, C)"""
    noise: float
    """The variance of a label's noise."""

    def rank_covariance(self) -> np.ndarray:
        """(C, C) covariance of the items' ranks (rows) with their scores.

        A rank is Σ_k [f_j > f_k]. For a normal distribution cov(g(f), f) = E[∇g] cov(f), and the mean gradient of a
        step is the density of f_j − f_k at 0.
        """
        own = np.diag(self.covariance)
        spread = np.maximum(own[:, None] + own - 2 * self.covariance, 1e-9)
        density = np.exp(-((self.mean[:, None] - self.mean) ** 2) / (2 * spread)) / np.sqrt(
            2 * np.pi * spread
        )
        np.fill_diagonal(density, 0)
        return np.asarray(density.sum(axis=1)[:, None] * self.covariance - density @ self.covariance)


def best_grade(belief: Belief, candidates: np.ndarray) -> Choice:
    """The item whose value would teach most.

    Parameters
    ----------
    belief
        The distribution of the scores.
    candidates
        Places of the items that may be asked about.

    With R the ranks, the answer y = f_i + ε is expected to reduce Σ_j var(R_j) by
    Σ_j cov(R_j, f_i)² / (var(f_i) + noise), as far as ranks are linear in scores.
    """
    told = np.sum(belief.rank_covariance()[:, candidates] ** 2, axis=0)
    gains = told / (np.diag(belief.covariance)[candidates] + belief.noise)
    best = int(gains.argmax())
    return Choice("grade", (int(candidates[best]),), float(gains[best]))


def best_pair(belief: Belief, candidates: np.ndarray) -> Choice:
    """The two items whose order would teach most; parameters as of `best_grade`.

    The answer is the sign of g = f_i − f_j + ε. To the first order it tells φ(z)²/(Φ(z)Φ(−z)) of what the value of g
    would, z being its mean over its deviation: most if the order is open.
    """
    first, second = np.triu_indices(len(candidates), 1)
    ranks = belief.rank_covariance()[:, candidates]
    inner, own = ranks.T @ ranks, belief.covariance[np.ix_(candidates, candidates)]
    mean = belief.mean[candidates[first]] - belief.mean[candidates[second]]
    spread = _of_differences(own, first, second) + 2 * belief.noise
    z = mean / np.sqrt(spread)
    told = np.exp(-(z**2)) / (2 * np.pi) / np.maximum(ndtr(z) * ndtr(-z), 1e-12)
    worth = told * _of_differences(inner, first, second) / spread
    best = int(worth.argmax())
    pair = (int(candidates[first[best]]), int(candidates[second[best]]))
    return Choice("pair", pair, float(worth[best]))


def _of_differences(inner: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """‖x_i − x_j‖² from inner products."""
    own = np.diag(inner)
    return np.asarray(own[first] + own[second] - 2 * inner[first, second])


def next_question(belief: Belief, kind: Kind, candidates: np.ndarray) -> Choice:
    """The question of a kind that teaches most.

    Parameters
    ----------
    belief
        The distribution of the scores.
    kind
        grade: the value of one item; pair: the order of two.
    candidates
        Places of the items that may be asked about.
    """
    return (best_grade if kind == "grade" else best_pair)(belief, candidates)


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
