"""The posterior of latent scores at observations: exact for values, Laplace's approximation for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from ccrank.util.cancellation import check

STEPS = 50
TOLERANCE = 1e-8


@dataclass(frozen=True)
class Posterior:
    """A Gaussian posterior of g (M,): that of pseudo-observations `sites` = g + N(0, 1/precision)."""

    mean: np.ndarray
    """(M,) of the prior."""
    mode: np.ndarray
    """(M,)"""
    dual: np.ndarray
    """(M,) α, so that the posterior mean anywhere is the prior mean + cov(f, g) α."""
    precision: np.ndarray
    """(M,) W, of each observation."""
    factor: np.ndarray
    """(M, M) lower Cholesky factor of I + √W G √W."""
    log_evidence: float

    @property
    def sites(self) -> np.ndarray:
        """(M,) the pseudo-observations: at the mode α is the slope of the log-likelihood."""
        return np.asarray(self.mode + self.dual / self.precision)

    def solve(self, values: np.ndarray) -> np.ndarray:
        """(G + W⁻¹)⁻¹ v, which is √W (I + √W G √W)⁻¹ √W v. (M,) or (M, T)"""
        from scipy.linalg import cho_solve  # imported where it is used, since most rankings have no labels

        root = np.sqrt(self.precision).reshape(-1, *[1] * (values.ndim - 1))
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
    identity = np.eye(len(mean))
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

    for _ in range(STEPS):
        check()
        _, slope, precision = likelihood(mode)
        root = np.sqrt(precision)
        factor = np.linalg.cholesky(identity + root[:, None] * covariance * root)
        right = precision * (mode - mean) + slope
        dual = right - root * cho_solve((factor, True), root * (covariance @ right), check_finite=False)
        moved = mean + covariance @ dual
        change = np.abs(moved - mode).max(initial=0.0)
        mode = moved
        if change < tolerance or is_value.all():
            break
    log_p, _, precision = likelihood(mode)
    if not is_value.all():
        root = np.sqrt(precision)
        factor = np.linalg.cholesky(identity + root[:, None] * covariance * root)
    log_evidence = -0.5 * dual @ (mode - mean) + log_p.sum() - np.log(np.diag(factor)).sum()
    return Posterior(mean, mode, dual, precision, factor, float(log_evidence))
