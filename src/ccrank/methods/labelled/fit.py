"""Fit the model to labels: settings weighted by evidence, then means, deviations and joint draws for all items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ccrank.labelled.kernel import Kernel, Products
from ccrank.labelled.laplace import TOLERANCE, Posterior, posterior
from ccrank.labelled.observations import Observations
from ccrank.labelled.settings import Setting, grid

MOST_SETTINGS = 8
"""Settings that are kept: those of the highest posterior probability."""
LEAST_WEIGHT = 0.01
"""Relative to the best setting's."""
EVIDENCE_ROWS = 400
"""Of more observations an even sample weighs the settings: evidence takes a factorisation for each."""
ROUGH = 1e-3
"""How well the mode is found where only the evidence is asked for: its error there is of the second order."""
DRAWS = 128


@dataclass(frozen=True)
class Fitted:
    """The posterior of the latent scores of N items, a mixture over settings."""

    prior: np.ndarray
    """(N,) the label-free score, Z-scored within each list."""
    products: Products
    """Of all items with the labelled ones."""
    observations: Observations
    settings: tuple[Setting, ...]
    weights: np.ndarray
    """(H,) posterior probabilities of the settings."""
    posteriors: tuple[Posterior, ...]

    def cross(self, setting: Setting) -> np.ndarray:
        """Covariance of f with that of the labelled items: (N, n), in float32."""
        items = self.observations.items
        weights = (setting.kernel_share * setting.groups).astype(np.float32)
        table = np.tensordot(weights, self.products.kernels, 1)
        table[items, np.arange(len(items))] += np.float32(setting.particular)
        return np.asarray(table)

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """(N,) posterior means and (N,) standard deviations of f."""
        contrast = self.observations.contrast
        means, variances = [], []
        for setting, found in zip(self.settings, self.posteriors, strict=True):
            cross = self.cross(setting)
            means.append(setting.prior_weight * self.prior + cross @ (contrast.T @ found.dual))
            before = setting.kernel_share * setting.groups @ self.products.variances + setting.particular
            inner = (contrast.T @ found.inverse() @ contrast).astype(np.float32)
            variances.append(np.maximum(before - np.einsum("nm,nm->n", cross @ inner, cross), 1e-9))
        mean = self.weights @ np.array(means)
        spread = self.weights @ (np.array(variances) + (np.array(means) - mean) ** 2)
        return np.asarray(mean), np.asarray(np.sqrt(spread))

    @property
    def mean(self) -> np.ndarray:
        """(N,) the score."""
        return self.moments[0]

    @property
    def deviation(self) -> np.ndarray:
        """(N,) its standard deviation."""
        return self.moments[1]

    @property
    def prior_weight(self) -> float:
        """The posterior mean of β, the weight of the label-free score."""
        return float(sum(w * one.prior_weight for w, one in zip(self.weights, self.settings, strict=True)))

    @property
    def kernel_share(self) -> float:
        """The posterior mean of s."""
        return float(sum(w * one.kernel_share for w, one in zip(self.weights, self.settings, strict=True)))

    @property
    def noise(self) -> float:
        """The posterior mean of the variance of a label's noise."""
        return float(sum(w * one.noise for w, one in zip(self.weights, self.settings, strict=True)))

    def joint(self, kernels: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(C,) posterior means and (C, C) covariance of f of some items.

        The covariance is that within settings, of the most probable ones, and that of the means of all settings.

        Parameters
        ----------
        kernels
            (G, C, C) between those items, for each group of states.
        some
            (C,) their numbers.
        """
        contrast = self.observations.contrast
        means, covariance = [], np.zeros(kernels.shape[1:])
        share = self.weights[:MOST_SETTINGS].sum()
        for place, (setting, found) in enumerate(zip(self.settings, self.posteriors, strict=True)):
            cross = self.cross(setting)[some].astype(float)
            means.append(setting.prior_weight * self.prior[some] + cross @ (contrast.T @ found.dual))
            if place >= MOST_SETTINGS:  # a matrix of all items for each of them would take long
                continue
            before = np.tensordot(setting.kernel_share * setting.groups, kernels, 1)
            before += setting.particular * np.eye(len(some))
            inner = contrast.T @ found.inverse() @ contrast
            covariance += self.weights[place] / share * (before - cross @ inner @ cross.T)
        mean = self.weights @ np.array(means)
        apart = np.array(means) - mean
        return np.asarray(mean), covariance + (apart.T * self.weights) @ apart

    def draws(self, rng: np.random.Generator) -> np.ndarray:
        """Joint draws of f from the posterior: (N, T).

        By Matheron's rule: a draw of the prior plus cov(f, g)(G + W⁻¹)⁻¹(sites − its own noisy observations).
        """
        seen = self.observations
        total = self.products.functions.shape[2]
        owner = np.repeat(np.arange(len(self.settings)), _shares(self.weights, total))
        found = np.empty((len(self.prior), total), np.float32)
        for place, (setting, own) in enumerate(zip(self.settings, self.posteriors, strict=True)):
            columns = np.flatnonzero(owner == place)
            if not len(columns):
                continue
            roots = np.sqrt(setting.kernel_share * setting.groups).astype(np.float32)
            prior = np.tensordot(roots, self.products.functions[:, :, columns], 1)
            prior += np.sqrt(setting.particular) * rng.standard_normal(prior.shape, np.float32)
            prior += setting.prior_weight * self.prior[:, None]
            level = rng.standard_normal((int(seen.lists.max(initial=0)) + 1, len(columns)))[seen.lists]
            observed = seen.contrast @ prior[seen.items] + seen.is_value[:, None] * level
            observed += rng.standard_normal(observed.shape) / np.sqrt(own.precision)[:, None]
            # own.dual is (G + W⁻¹)⁻¹(sites − mean)
            difference = own.dual[:, None] - own.solve(observed - own.mean[:, None])
            found[:, columns] = prior + self.cross(setting) @ (seen.contrast.T @ difference).astype(
                np.float32
            )
        return found


def fit(
    prior: np.ndarray,
    kernel: Kernel,
    observations: Observations,
    settings: Sequence[Setting] | None = None,
    seed: int = 0,
    draws: int = DRAWS,
) -> Fitted:
    """The posterior of all items' scores.

    Parameters
    ----------
    prior
        (N,) the label-free score, Z-scored within each list.
    kernel
        The states of the same items.
    observations
        The labels.
    settings
        The hyper-parameters to weigh by evidence; `grid()` if None.
    seed, draws
        For joint draws of the posterior.
    """
    products = kernel.products(observations.items, draws, np.random.default_rng(seed))
    return fit_products(prior, products, observations, settings)


def fit_products(
    prior: np.ndarray,
    products: Products,
    observations: Observations,
    settings: Sequence[Setting] | None = None,
    most: int = MOST_SETTINGS,
    least: float = LEAST_WEIGHT,
) -> Fitted:
    """As `fit`, from the products of the states.

    Parameters
    ----------
    prior, products, observations, settings
        As of `fit`.
    most
        How many settings are kept.
    least
        The least weight of a setting that is kept, relative to that of the best.
    """
    chosen = tuple(grid() if settings is None else settings)
    few = observations.sample(EVIDENCE_ROWS)
    logs = np.array([one.log_prior for one in chosen]) + _evidence(chosen, prior, products, few)
    best = np.argsort(-logs, kind="stable")[:most]
    weights = np.exp(logs[best] - logs[best[0]])
    kept = [chosen[place] for place in best[weights > least]]
    weights = weights[weights > least]
    whole = Observed(prior, products, observations)
    return Fitted(
        prior,
        products,
        observations,
        tuple(kept),
        weights / weights.sum(),
        tuple(whole.posterior(setting) for setting in kept),
    )


class Observed:
    """The prior of what is observed, under any setting."""

    def __init__(self, prior: np.ndarray, products: Products, observations: Observations) -> None:
        contrast, items = observations.contrast, observations.items
        place = np.searchsorted(products.columns, items)
        gram = products.kernels[:, items][:, :, place].astype(float)
        self.seen = observations
        self.groups = np.array([contrast @ one @ contrast.T for one in gram])
        """(G, M, M)"""
        self.particular = contrast @ contrast.T
        self.prior = contrast @ prior[items]

    def posterior(
        self, setting: Setting, start: np.ndarray | None = None, tolerance: float = TOLERANCE
    ) -> Posterior:
        """The posterior under one setting; `start` is where to look for its mode."""
        seen = self.seen
        covariance = setting.kernel_share * np.tensordot(setting.groups, self.groups, 1)
        covariance += setting.particular * self.particular + seen.level
        noise = setting.noise * np.where(seen.is_pair, 2.0, 1.0)
        mean = setting.prior_weight * self.prior
        return posterior(mean, covariance, seen.target, seen.is_value, noise, start, tolerance)


def _evidence(
    settings: Sequence[Setting], prior: np.ndarray, products: Products, observations: Observations
) -> np.ndarray:
    """The log evidence of each setting; neighbours are similar, so that each starts from the mode of the last."""
    own = Observed(prior, products, observations)
    found, start = [], None
    for setting in settings:
        one = own.posterior(setting, start, ROUGH)
        start = one.mode
        found.append(one.log_evidence)
    return np.array(found)


def _shares(weights: np.ndarray, total: int) -> np.ndarray:
    """How many of `total` draws each weight gets, rounded so that they add up."""
    ends = np.floor(np.cumsum(weights) / weights.sum() * total + 0.5).astype(int)
    return np.diff(np.concatenate([[0], ends]))


def rank_intervals(draws: np.ndarray, probability: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of each item's rank over joint draws of one list, 1 = highest. (N, T) -> (N,), (N,)

    Parameters
    ----------
    draws
        (N, T) joint draws of the scores.
    probability
        What the interval should hold.
    """
    ranks = np.argsort(np.argsort(-draws, axis=0), axis=0) + 1
    edge = (1 - probability) / 2
    low = np.quantile(ranks, edge, axis=1, method="inverted_cdf")
    high = np.quantile(ranks, 1 - edge, axis=1, method="inverted_cdf")
    return low.astype(int), high.astype(int)
