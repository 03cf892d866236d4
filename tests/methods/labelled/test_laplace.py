"""The posterior at observations, against formulas, scikit-learn and brute-force integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from ccrank.methods.labelled.fit import laplace_posterior


def covariance_of(rng: np.random.Generator, count: int) -> np.ndarray:
    root = rng.standard_normal((count, count))
    return root @ root.T / count + 0.1 * np.eye(count)


def test_values_are_gaussian_regression():
    """Evidence, mean and variance of values are those of scikit-learn's Gaussian process."""
    rng = np.random.default_rng(0)
    places, new = rng.standard_normal((12, 2)), rng.standard_normal((5, 2))
    target = rng.standard_normal(12)
    kernel = RBF(1.3)
    twin = GaussianProcessRegressor(kernel + WhiteKernel(0.3), optimizer=None).fit(places, target)
    mean, deviation = twin.predict(new, return_std=True)
    found = laplace_posterior(np.zeros(12), kernel(places), target, np.ones(12, bool), np.full(12, 0.3))
    cross = kernel(new, places)
    assert found.log_evidence == pytest.approx(twin.log_marginal_likelihood_value_)
    assert cross @ found.dual == pytest.approx(mean)
    variance = np.diag(kernel(new)) - np.sum(cross.T * found.solve(cross.T), axis=0)
    assert np.sqrt(variance + 0.3) == pytest.approx(deviation)
    assert found.sites == pytest.approx(target)


def test_thresholds_are_close_to_brute_force():
    """Two comparisons that share an item: evidence and means as integrated over a grid, to Laplace's accuracy."""
    covariance = np.array([[0.8, 0.3], [0.3, 0.6]])
    mean, target, noise = np.array([0.2, -0.4]), np.array([0.0, 0.5]), np.array([0.5, 0.5])
    found = laplace_posterior(mean, covariance, target, np.zeros(2, bool), noise)
    prior = multivariate_normal(mean, covariance)

    def integral(weight):
        def density(second, first):
            at = np.array([first, second])
            return weight(at) * prior.pdf(at) * np.prod(norm.cdf((at - target) / np.sqrt(noise)))

        return dblquad(density, -6, 6, -6, 6, epsabs=1e-5)[0]

    evidence = integral(lambda at: 1.0)
    assert found.log_evidence == pytest.approx(np.log(evidence), abs=0.05)
    exact = [integral(lambda at, place=place: at[place]) / evidence for place in range(2)]
    assert found.mode == pytest.approx(exact, abs=0.15)


def test_mixed_observations_stand_at_the_mode():
    """The slope of log-likelihood plus log-prior is 0 at the mode."""
    rng = np.random.default_rng(1)
    covariance, mean = covariance_of(rng, 8), rng.standard_normal(8)
    is_value = np.arange(8) % 2 == 0
    target = rng.standard_normal(8)
    found = laplace_posterior(mean, covariance, target, is_value, np.full(8, 0.2))

    def log_joint(at):
        residual = (at - target) / np.sqrt(0.2)
        log_p = np.where(is_value, norm.logpdf(residual), norm.logcdf(residual)).sum()
        return log_p + multivariate_normal(mean, covariance).logpdf(at)

    for step in 1e-4 * np.eye(8):
        slope = (log_joint(found.mode + step) - log_joint(found.mode - step)) / 2e-4
        assert slope == pytest.approx(0, abs=1e-3)


def test_a_label_that_is_far_off_stays_finite():
    """A comparison against all the rest, with little noise: no overflow in the tail of the normal distribution."""
    found = laplace_posterior(np.array([-40.0]), np.eye(1), np.zeros(1), np.zeros(1, bool), np.array([1e-2]))
    assert np.isfinite([*found.mode, *found.dual, *found.precision, found.log_evidence]).all()
    assert -40 < found.mode[0] < 0.5
