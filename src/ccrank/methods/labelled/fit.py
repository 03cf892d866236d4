"""Fit the model to labels: settings weighted by evidence, then means, deviations and joint draws for all items. The
posterior is exact for values; other observations have Laplace's approximation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log

import numpy as np
from scipy.special import log_ndtr

from ccrank.methods.labelled.observations import Observations
from ccrank.methods.labelled.prior import MAX_SETTINGS, Products, Setting
from ccrank.util.cancellation import check

MIN_WEIGHT = 0.01
"""Relative to the best setting's."""
EVIDENCE_ROWS = 400
"""Of more observations an even sample weighs the settings: evidence takes a factorisation for each."""
STEPS = 50
TOLERANCE = 1e-8
ROUGH = 1e-3
"""How well the mode is found where only the evidence is asked for: its error there is of the second order."""
ANNOTATOR_NOISES = {1.0: 0.6, 4.0: 0.25, 16.0: 0.1, 64.0: 0.05}
"""How much noisier the labels of one annotator may be than usual → prior probability; the evidence chooses."""


@dataclass(frozen=True)
class Posterior:
    """A Gaussian posterior of g (M,), as if `sites` = g + N(0, 1/precision) had been observed."""

    mean: np.ndarray  # (M,) of the prior
    mode: np.ndarray  # (M,)
    dual: np.ndarray
    """(M,) α, so that the posterior mean anywhere is the prior mean + cov(f, g) α."""
    precision: np.ndarray  # (M,) W, of each observation
    factor: np.ndarray  # (M, M) lower Cholesky factor of I + √W G √W
    log_evidence: float

    @property
    def sites(self) -> np.ndarray:
        """(M,) the pseudo-observations: at the mode α is the slope of the log-likelihood."""
        return np.asarray(self.mode + self.dual / self.precision)

    def solve(self, values: np.ndarray) -> np.ndarray:
        """(G + W⁻¹)⁻¹ v, which is √W (I + √W G √W)⁻¹ √W v. (M, T) -> (M, T)"""
        from scipy.linalg import cho_solve  # imported where it is used, since most rankings have no labels

        root = np.sqrt(self.precision)[:, None]
        return np.asarray(root * cho_solve((self.factor, True), root * values))

    def inverse(self) -> np.ndarray:
        """(G + W⁻¹)⁻¹. (M, M)"""
        return self.solve(np.eye(len(self.mean)))


def laplace_posterior(
    mean: np.ndarray,
    covariance: np.ndarray,
    target: np.ndarray,
    is_value: np.ndarray,
    noise: np.ndarray,
    start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
) -> Posterior:
    """Laplace's approximation of p(g | y) with the prior N(mean (M,), covariance (M, M)), by Newton's method."""
    from scipy.linalg import cho_solve

    mode = mean if start is None else start
    scale = np.sqrt(noise)

    def likelihood(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        residual = target - at
        margin = -residual / scale
        log_tail = log_ndtr(margin)
        ratio = np.exp(-0.5 * margin**2 - 0.5 * np.log(2 * np.pi) - log_tail)  # φ/Φ
        log_p = np.where(is_value, -0.5 * residual**2 / noise - 0.5 * np.log(2 * np.pi * noise), log_tail)
        slope = np.where(is_value, residual / noise, ratio / scale)
        curvature = np.where(is_value, 1 / noise, ratio * (margin + ratio) / noise)
        return log_p, slope, np.maximum(curvature, 1e-12)

    def factored(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = np.sqrt(precision)
        return root, np.linalg.cholesky(np.eye(len(mean)) + root[:, None] * covariance * root)

    for _ in range(STEPS):
        check()
        _, slope, precision = likelihood(mode)
        root, factor = factored(precision)
        right = precision * (mode - mean) + slope
        dual = right - root * cho_solve((factor, True), root * (covariance @ right), check_finite=False)
        before, mode = mode, mean + covariance @ dual
        if is_value.all() or np.abs(mode - before).max(initial=0.0) < tolerance:
            break
    log_p, _, precision = likelihood(mode)
    if not is_value.all():
        _, factor = factored(precision)
    log_evidence = -0.5 * dual @ (mode - mean) + log_p.sum() - np.log(np.diag(factor)).sum()
    return Posterior(mean, mode, dual, precision, factor, float(log_evidence))


@dataclass(frozen=True)
class Fitted:
    """The posterior of the latent scores of N items, a mixture over settings."""

    prior: np.ndarray  # (N,) the label-free score, Z-scored within each list
    products: Products  # of all items with the labelled ones
    observations: Observations
    settings: tuple[Setting, ...]
    weights: np.ndarray  # (H,) posterior probabilities of the settings
    posteriors: tuple[Posterior, ...]

    def cross(self, setting: Setting) -> np.ndarray:
        """Covariance of f between all items and the labelled ones: (N, n), in float32."""
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

    def expected(self, name: str) -> float:
        """The posterior mean of a number of the settings: prior_weight, kernel_share or noise."""
        weighted = zip(self.weights, self.settings, strict=True)
        return float(sum(weight * getattr(setting, name) for weight, setting in weighted))

    def joint(self, kernels: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(C,) posterior means and (C, C) covariance of f of some items, with kernels (G, C, C): the mean covariance in
        the most probable settings, plus the covariance of the means of all settings."""
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
        """(N, T) joint draws of f from the posterior, by Matheron's rule: a draw of the prior plus
        cov(f, g)(G + W⁻¹)⁻¹(sites − noisy observations of the draw)."""
        seen = self.observations
        total = self.products.functions.shape[2]
        # How many draws each setting gets, rounded so that they add up.
        ends = np.floor(np.cumsum(self.weights) / self.weights.sum() * total + 0.5).astype(int)
        drawn = np.empty((len(self.prior), total), np.float32)
        starts = [0, *ends[:-1]]
        for start, end, setting, posterior in zip(starts, ends, self.settings, self.posteriors, strict=True):
            check()
            if start == end:
                continue
            roots = np.sqrt(setting.kernel_share * setting.groups).astype(np.float32)
            prior = np.tensordot(roots, self.products.functions[:, :, start:end], 1)
            prior += np.sqrt(setting.particular) * rng.standard_normal(prior.shape, np.float32)
            prior += setting.prior_weight * self.prior[:, None]
            level = rng.standard_normal((int(seen.lists.max(initial=0)) + 1, end - start))[seen.lists]
            observed = seen.contrast @ prior[seen.items] + seen.is_graded[:, None] * level
            observed += rng.standard_normal(observed.shape) / np.sqrt(posterior.precision)[:, None]
            # posterior.dual is (G + W⁻¹)⁻¹(sites − mean)
            difference = posterior.dual[:, None] - posterior.solve(observed - posterior.mean[:, None])
            added = self.cross(setting) @ (seen.contrast.T @ difference).astype(np.float32)
            drawn[:, start:end] = prior + added
        return drawn


def fit(
    prior: np.ndarray,
    products: Products,
    observations: Observations,
    settings: Sequence[Setting],
    most: int = MAX_SETTINGS,
    least: float = MIN_WEIGHT,
) -> Fitted:
    """The posterior of all items' scores, with the prior mean (N,) and the products of their states."""
    products = products.at(observations.items)
    observations = weighed(prior, products, observations, settings)
    logs = _log_posteriors(settings, prior, products, observations)
    best = np.argsort(-logs, kind="stable")[:most]
    weights = np.exp(logs[best] - logs[best[0]])
    best, weights = best[weights > least], weights[weights > least]
    kept = tuple(settings[row] for row in best)
    posteriors = tuple(map(posterior_of(prior, products, observations), kept))
    return Fitted(prior, products, observations, kept, weights / weights.sum(), posteriors)


def weighed(
    prior: np.ndarray, products: Products, observations: Observations, settings: Sequence[Setting]
) -> Observations:
    """The observations with the noise of each annotator that has the highest evidence, if there are several."""
    people = np.unique(observations.people)
    if len(people) < 2:
        return observations
    few = observations.sample(EVIDENCE_ROWS)
    best = [settings[int(_log_posteriors(settings, prior, products, few).argmax())]]
    factors = np.ones(people.max() + 1)
    for person in [*people, *people]:  # twice, since the first were compared with others at the usual noise
        scores = {}
        for factor, probability in ANNOTATOR_NOISES.items():
            factors[person] = factor
            scored = replace(few, noises=few.noises * factors[few.people])
            [scores[factor]] = _log_posteriors(best, prior, products, scored) + log(probability)
        factors[person] = max(scores, key=scores.__getitem__)
    return replace(observations, noises=observations.noises * factors[observations.people])


def posterior_of(prior: np.ndarray, products: Products, seen: Observations) -> Callable[..., Posterior]:
    """The posterior of what is observed as a function of the setting, of where to look for its mode, and how well."""
    contrast, items = seen.contrast, seen.items
    columns = np.searchsorted(products.columns, items)
    gram = products.kernels[:, items][:, :, columns].astype(float)
    groups = np.array([contrast @ table @ contrast.T for table in gram])  # (G, M, M)
    particular = (contrast @ contrast.T).toarray()
    graded_together = (seen.lists[:, None] == seen.lists) & np.outer(seen.is_graded, seen.is_graded)
    level = graded_together.astype(float)  # lists have unknown levels, of unit variance
    before = contrast @ prior[items]

    def posterior(
        setting: Setting, start: np.ndarray | None = None, tolerance: float = TOLERANCE
    ) -> Posterior:
        covariance = setting.kernel_share * np.tensordot(setting.groups, groups, 1)
        covariance += setting.particular * particular + level
        noise, mean = setting.noise * seen.noises, setting.prior_weight * before
        return laplace_posterior(mean, covariance, seen.target, seen.is_value, noise, start, tolerance)

    return posterior


def _log_posteriors(
    settings: Sequence[Setting], prior: np.ndarray, products: Products, observations: Observations
) -> np.ndarray:
    """(H,) the log posterior probability of each setting, up to a constant, by an even sample of the observations."""
    posterior = posterior_of(prior, products, observations.sample(EVIDENCE_ROWS))
    logs, start = [], None
    for setting in settings:
        fitted = posterior(setting, start, ROUGH)
        start = fitted.mode  # a good start for the next one, since neighbouring settings are similar
        logs.append(setting.log_prior + fitted.log_evidence)
    return np.array(logs)


def rank_intervals(draws: np.ndarray, probability: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of each item's rank over joint draws of one list, 1 = highest. (N, T) -> (N,), (N,)"""
    ranks = np.argsort(np.argsort(-draws, axis=0), axis=0) + 1
    edge = (1 - probability) / 2
    low, high = (np.quantile(ranks, at, axis=1, method="inverted_cdf") for at in (edge, 1 - edge))
    return low.astype(int), high.astype(int)
