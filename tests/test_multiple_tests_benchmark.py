"""Corrections, power and common directions, against brute force and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ccrank.errors import CcrankError
from ccrank.metrics import common_direction, detectable_difference, holm, paired_test


def test_holm_is_closed_testing_with_bonferroni() -> None:
    """A hypothesis is rejected if Bonferroni rejects every intersection of hypotheses that contains it."""
    generator = np.random.default_rng(0)
    for count in (1, 2, 5, 7):
        p_values = generator.uniform(size=count) ** 3
        p_values[-1] = p_values[0]  # ties
        wanted = [
            max(
                min(1.0, len(group) * min(p_values[list(group)]))
                for size in range(1, count + 1)
                for group in itertools.combinations(range(count), size)
                if index in group
            )
            for index in range(count)
        ]
        np.testing.assert_allclose(holm(p_values), wanted)


@pytest.mark.parametrize("n_tasks", [39, 143])
def test_a_detectable_difference_is_detected_in_four_of_five_samples(n_tasks: int) -> None:
    """Differences of that mean, drawn with that deviation, are significant at 0.05 in about 80 % of samples, and
    differences of mean 0 in about 5 %: the paired test's power is what the normal approximation says."""
    generator = np.random.default_rng(n_tasks)
    mean = detectable_difference(0.3, n_tasks)
    runs = 400
    found = {0.0: 0, mean: 0}
    for shift in found:
        for _ in range(runs):
            # Differences of |τ| are bounded and lumpy: uniform ones are further from normal than the real ones.
            differences = shift + 0.3 * np.sqrt(3) * generator.uniform(-1, 1, size=n_tasks)
            test = paired_test(differences, np.zeros(n_tasks), generator, resamples=400)
            found[shift] += test.p_value < 0.05
    assert found[mean] / runs == pytest.approx(0.8, abs=0.07)
    assert found[0.0] / runs == pytest.approx(0.05, abs=0.035)


def test_a_detectable_difference_shrinks_with_tasks() -> None:
    """Four times the tasks halve it; twice the deviation doubles it; a stricter level or more power raise it."""
    plain = detectable_difference(0.3, 40)
    assert detectable_difference(0.3, 160) == pytest.approx(plain / 2)
    assert detectable_difference(0.6, 40) == pytest.approx(2 * plain)
    assert detectable_difference(0.3, 40, level=0.001) > plain
    assert detectable_difference(0.3, 40, power=0.95) > plain


def test_the_statistic_is_that_of_a_loop_and_p_that_of_enumeration() -> None:
    """Value, expectation and p agree with loops over folds, seeds and all 2ⁿ sign flips of a few tasks."""
    generator = np.random.default_rng(5)
    tau, fold = generator.uniform(-0.4, 1, size=(2, 8)), np.array([0, 1, 2, 0, 1, 2, 0, 1])

    def statistic(values: np.ndarray) -> float:
        return float(
            np.mean([abs(np.mean(values[seed, fold == one])) for seed in range(2) for one in range(3)])
        )

    found = common_direction(tau, fold, np.random.default_rng(0), resamples=40_000)
    assert found.value == pytest.approx(statistic(tau))
    assert np.mean(found.seeds) == pytest.approx(found.value)
    flips = [statistic(tau * np.array(signs)) for signs in itertools.product([1, -1], repeat=8)]
    assert found.expected == pytest.approx(np.mean(flips), abs=0.005)
    wanted = np.mean([one >= found.value - 1e-12 for one in flips])
    assert found.p_value == pytest.approx(wanted, abs=0.01)


def test_a_common_direction_is_found_whatever_its_sign_in_each_fold() -> None:
    """Tasks of a fold that share a direction are significant, though folds and seeds disagree about its sign;
    without a common direction the value is its expectation."""
    generator = np.random.default_rng(1)
    fold = np.arange(40) % 4
    sign = np.where(generator.integers(2, size=(3, 4)) > 0, 1, -1)[:, fold]
    shared = sign * (0.25 + generator.normal(0, 0.3, size=(3, 40)))
    found = common_direction(shared, fold, generator)
    assert abs(shared.mean()) < 0.2
    assert found.value > 0.2
    assert found.p_value < 0.01
    noise = [
        common_direction(generator.normal(0, 0.4, size=(3, 40)), fold, generator, resamples=300)
        for _ in range(60)
    ]
    assert np.mean([one.value - one.expected for one in noise]) == pytest.approx(0, abs=0.01)
    assert np.mean([one.p_value for one in noise]) == pytest.approx(0.5, abs=0.12)


def test_what_makes_no_sense_is_refused() -> None:
    """p-values outside 0 … 1, one task, no power, and τ without folds are errors."""
    generator = np.random.default_rng(0)
    for call in (
        lambda: holm([0.5, 1.5]),
        lambda: holm([float("nan")]),
        lambda: detectable_difference(0.3, 1),
        lambda: detectable_difference(0.3, 10, power=1.0),
        lambda: common_direction([[0.1, 0.2]], [0], generator),
        lambda: common_direction([[0.1, float("nan")]], [0, 1], generator),
    ):
        with pytest.raises(CcrankError):
            call()
