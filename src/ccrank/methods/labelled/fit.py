"""Fit the model to labels: settings weighted by evidence, then means, deviations and joint draws for all items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log

import numpy as np

from ccrank.methods.labelled.laplace import TOLERANCE, Posterior, laplace_posterior
from ccrank.methods.labelled.observations import Observations
from ccrank.methods.labelled.prior import Kernel, Products, Setting, grid
from ccrank.util.cancellation import check

MAX_SETTINGS = 8
"""Settings that are kept: those of the highest posterior probability."""
MIN_WEIGHT = 0.01
"""Relative to the best setting's."""
EVIDENCE_ROWS = 400
"""Of more observations an even sample weighs the settings: evidence takes a factorisation for each."""
ROUGH = 1e-3
"""How well the mode is found where only the evidence is asked for: its error there is of the second order."""
DRAWS = 128
ANNOTATOR_NOISES = {1.0: 0.6, 4.0: 0.25, 16.0: 0.1, 64.0: 0.05}
"""How much noisier the labels of one annotator may be than usual → prior probability; the evidence chooses."""


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
        for setting, posterior in zip(self.settings, self.posteriors, strict=True):
            check()
            cross = self.cross(setting)
            means.append(setting.prior_weight * self.prior + cross @ (contrast.T @ posterior.dual))
            before = setting.kernel_share * setting.groups @ self.products.variances + setting.particular
            inner = (contrast.T @ posterior.inverse() @ contrast).astype(np.float32)
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
        return self._expected(setting.prior_weight for setting in self.settings)

    @property
    def kernel_share(self) -> float:
        """The posterior mean of s."""
        return self._expected(setting.kernel_share for setting in self.settings)

    @property
    def noise(self) -> float:
        """The posterior mean of the variance of a label's noise."""
        return self._expected(setting.noise for setting in self.settings)

    def _expected(self, values: Iterable[float]) -> float:
        return float(sum(weight * value for weight, value in zip(self.weights, values, strict=True)))

    def joint(self, kernels: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(C,) posterior means and (C, C) covariance of f of some items.

        The covariance within the most probable settings, plus that of the means of all settings. kernels is (G, C, C).
        """
        contrast = self.observations.contrast
        means, covariance = [], np.zeros(kernels.shape[1:])
        share = self.weights[:MAX_SETTINGS].sum()
        for rank, (setting, posterior) in enumerate(zip(self.settings, self.posteriors, strict=True)):
            check()
            cross = self.cross(setting)[some].astype(float)
            means.append(setting.prior_weight * self.prior[some] + cross @ (contrast.T @ posterior.dual))
            if rank >= MAX_SETTINGS:  # a matrix of all items for each of them would take long
                continue
            before = np.tensordot(setting.kernel_share * setting.groups, kernels, 1)
            before += setting.particular * np.eye(len(some))
            inner = contrast.T @ posterior.inverse() @ contrast
            covariance += self.weights[rank] / share * (before - cross @ inner @ cross.T)
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
        drawn = np.empty((len(self.prior), total), np.float32)
        for number, (setting, posterior) in enumerate(zip(self.settings, self.posteriors, strict=True)):
            check()
            columns = np.flatnonzero(owner == number)
            if not len(columns):
                continue
            roots = np.sqrt(setting.kernel_share * setting.groups).astype(np.float32)
            prior = np.tensordot(roots, self.products.functions[:, :, columns], 1)
            prior += np.sqrt(setting.particular) * rng.standard_normal(prior.shape, np.float32)
            prior += setting.prior_weight * self.prior[:, None]
            level = rng.standard_normal((int(seen.lists.max(initial=0)) + 1, len(columns)))[seen.lists]
            observed = seen.contrast @ prior[seen.items] + seen.is_graded[:, None] * level
            observed += rng.standard_normal(observed.shape) / np.sqrt(posterior.precision)[:, None]
            # own.dual is (G + W⁻¹)⁻¹(sites − mean)
            difference = posterior.dual[:, None] - posterior.solve(observed - posterior.mean[:, None])
            drawn[:, columns] = prior + self.cross(setting) @ (seen.contrast.T @ difference).astype(
                np.float32
            )
        return drawn


def fit(
    prior: np.ndarray,
    kernel: Kernel,
    observations: Observations,
    settings: Sequence[Setting] | None = None,
    seed: int = 0,
    draws: int = DRAWS,
) -> Fitted:
    """The posterior of all items' scores, with the prior mean (N,)."""
    products = kernel.products(observations.items, draws, np.random.default_rng(seed))
    return fit_products(prior, products, observations, settings)


def fit_products(
    prior: np.ndarray,
    products: Products,
    observations: Observations,
    settings: Sequence[Setting] | None = None,
    most: int = MAX_SETTINGS,
    least: float = MIN_WEIGHT,
) -> Fitted:
    """As `fit`, from the products of the states."""
    chosen = tuple(grid() if settings is None else settings)
    observations = weighed(prior, products, observations, chosen)
    few = observations.sample(EVIDENCE_ROWS)
    logs = np.array([setting.log_prior for setting in chosen]) + _evidence(chosen, prior, products, few)
    best = np.argsort(-logs, kind="stable")[:most]
    weights = np.exp(logs[best] - logs[best[0]])
    kept = [chosen[row] for row in best[weights > least]]
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


def weighed(
    prior: np.ndarray, products: Products, observations: Observations, settings: Sequence[Setting]
) -> Observations:
    """The observations with the noise of each annotator, where there are several: that of the highest evidence."""
    people = np.unique(observations.people)
    if len(people) < 2:
        return observations
    few = observations.sample(EVIDENCE_ROWS)
    logs = np.array([setting.log_prior for setting in settings]) + _evidence(settings, prior, products, few)
    best = [settings[int(logs.argmax())]]
    factors = np.ones(people.max() + 1)
    for person in [*people, *people]:  # twice, since the first were compared with others at the usual noise
        scores = {}
        for factor, probability in ANNOTATOR_NOISES.items():
            factors[person] = factor
            scored = replace(few, noises=few.noises * factors[few.people])
            scores[factor] = float(_evidence(best, prior, products, scored)[0]) + log(probability)
        factors[person] = max(scores, key=scores.__getitem__)
    return replace(observations, noises=observations.noises * factors[observations.people])


class Observed:
    """The prior of what is observed, under any setting."""

    def __init__(self, prior: np.ndarray, products: Products, observations: Observations) -> None:
        contrast, items = observations.contrast, observations.items
        columns = np.searchsorted(products.columns, items)
        gram = products.kernels[:, items][:, :, columns].astype(float)
        self.seen = observations
        self.groups = np.array([contrast @ table @ contrast.T for table in gram])
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
        noise = setting.noise * seen.noises
        mean = setting.prior_weight * self.prior
        return laplace_posterior(mean, covariance, seen.target, seen.is_value, noise, start, tolerance)


def _evidence(
    settings: Sequence[Setting], prior: np.ndarray, products: Products, observations: Observations
) -> np.ndarray:
    """The log evidence of each setting; neighbours are similar, so that each starts from the mode of the last."""
    observed = Observed(prior, products, observations)
    logs, start = [], None
    for setting in settings:
        fitted = observed.posterior(setting, start, ROUGH)
        start = fitted.mode
        logs.append(fitted.log_evidence)
    return np.array(logs)


def _shares(weights: np.ndarray, total: int) -> np.ndarray:
    """How many of `total` draws each weight gets, rounded so that they add up."""
    ends = np.floor(np.cumsum(weights) / weights.sum() * total + 0.5).astype(int)
    return np.diff(np.concatenate([[0], ends]))


def rank_intervals(draws: np.ndarray, probability: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of each item's rank over joint draws of one list, 1 = highest. (N, T) -> (N,), (N,)"""
    ranks = np.argsort(np.argsort(-draws, axis=0), axis=0) + 1
    edge = (1 - probability) / 2
    low = np.quantile(ranks, edge, axis=1, method="inverted_cdf")
    high = np.quantile(ranks, 1 - edge, axis=1, method="inverted_cdf")
    return low.astype(int), high.astype(int)
