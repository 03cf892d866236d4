"""Holm's correction and the power of paired tests, against brute force and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ccrank.errors import CcrankError
from ccrank.metrics.tasks import detectable_difference, holm, paired_test


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
            test = paired_test(differences, np.zeros(n_tasks), generator, resamples=400, flips=400)
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


def test_what_makes_no_sense_is_refused() -> None:
    """p-values outside 0 … 1, one task and no power are errors."""
    for call in (
        lambda: holm([0.5, 1.5]),
        lambda: holm([float("nan")]),
        lambda: detectable_difference(0.3, 1),
        lambda: detectable_difference(0.3, 10, power=1.0),
    ):
        with pytest.raises(CcrankError):
            call()
