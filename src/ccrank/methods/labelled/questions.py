"""Which label would teach most: the expected reduction of the uncertainty of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

QuestionKind = Literal["grade", "pair"]
FIRST_GRADES = 5
"""Items that are graded first, because they stand for the list: until then the model knows too little to choose."""
STATES_SHARE, PRIOR_SHARE, OWN_SHARE = 0.35, 0.1, 0.3
"""The variances of a score by which items are said to stand for others: what the states explain, what the label-free
score explains, and what is an item's own."""


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
        variances = np.diag(self.covariance)
        spread = np.maximum(variances[:, None] + variances - 2 * self.covariance, 1e-9)
        density = np.exp(-((self.mean[:, None] - self.mean) ** 2) / (2 * spread)) / np.sqrt(
            2 * np.pi * spread
        )
        np.fill_diagonal(density, 0)
        return np.asarray(density.sum(axis=1)[:, None] * self.covariance - density @ self.covariance)


def best_grade(belief: Belief, candidates: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The item whose value would teach most, and its gain: the expected reduction of the variance of all ranks."""
    explained = np.sum(belief.rank_covariance()[:, candidates] ** 2, axis=0)
    gains = explained / (np.diag(belief.covariance)[candidates] + belief.noise)
    best = int(gains.argmax())
    return (int(candidates[best]),), float(gains[best])


def best_pair(belief: Belief, allowed: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The two items whose order would teach most, among the allowed (C, C), and its gain, as of `best_grade`.

    The answer is the sign of g = f_i − f_j + ε. To the first order it tells φ(z)²/(Φ(z)Φ(−z)) of what the value of g
    would, z being its mean over its deviation: most if the order is open.
    """
    first, second = np.nonzero(np.triu(allowed, 1))
    ranks = belief.rank_covariance()
    inner = ranks.T @ ranks
    mean = belief.mean[first] - belief.mean[second]
    spread = _of_differences(belief.covariance, first, second) + 2 * belief.noise
    z = mean / np.sqrt(spread)
    information = np.exp(-(z**2)) / (2 * np.pi) / np.maximum(ndtr(z) * ndtr(-z), 1e-12)
    worth = information * _of_differences(inner, first, second) / spread
    best = int(worth.argmax())
    return (int(first[best]), int(second[best])), float(worth[best])


def _of_differences(inner: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """‖x_i − x_j‖² from inner products."""
    squares = np.diag(inner)
    return np.asarray(squares[first] + squares[second] - 2 * inner[first, second])


def representative(kernel: np.ndarray, prior: np.ndarray, known: ArrayLike, candidates: ArrayLike) -> int:
    """The candidate that tells most about all items, given the known ones; no answer is needed. (N, N), (N,) -> item"""
    size = np.sqrt(np.maximum(np.diag(kernel), 1e-12))
    covariance = STATES_SHARE * kernel / np.outer(size, size) + PRIOR_SHARE * np.outer(prior, prior)
    for item in np.asarray(known, int):
        column = covariance[:, item]
        covariance = covariance - np.outer(column, column) / (column[item] + OWN_SHARE)
    items = np.asarray(candidates, int)
    gains = np.sum(covariance[:, items] ** 2, axis=0) / (covariance[items, items] + OWN_SHARE)
    return int(items[gains.argmax()])
