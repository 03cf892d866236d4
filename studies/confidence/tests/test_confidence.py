"""The fit of the confidence of `auto`, and the stored report on lists that took no part in it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from ccrank.confidence import confidence_of
from studies.confidence import confidence as script

TABLE = Path(__file__).parents[1] / "report.csv"


def test_the_shipped_coefficients_give_the_stored_predictions():
    """Coefficients, thresholds and features are those that the reported table was made with."""
    with TABLE.open(encoding="utf-8") as file:
        stored = list(csv.DictReader(file))
    rows = script.rows_of(TABLE)
    assert len(rows) == len(stored) > 300
    for row, own in zip(rows, stored, strict=True):
        found = confidence_of(row.features)
        assert found.probability == pytest.approx(float(own["probability"]), abs=1e-4)
        assert found.level == own["level"]


def test_what_is_promised_holds_on_lists_that_took_no_part():
    """Of lists marked high at least 85 % have τ > 0.3, of those marked low at most 50 %; neither level is rare."""
    rows = script.rows_of(TABLE)
    levels = np.array([confidence_of(row.features).level for row in rows])
    right = np.array([row.tau > 0.3 for row in rows])
    assert right[levels == "high"].mean() >= 0.85
    assert right[levels == "low"].mean() <= 0.5
    for level in ("low", "high"):
        assert (levels == level).mean() > 0.1


def test_the_fit_finds_the_minimum():
    """The logistic regression is scikit-learn's, and bounds hold."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    values = generator.normal(size=(300, 3))
    values /= values.std(axis=0)
    right = generator.random(300) < 1 / (1 + np.exp(-(values @ [1.0, -2.0, 0.0] + 0.5)))
    weights = generator.random(300) + 0.5
    found = script.logistic(values, right, weights, 2.0)
    twin = linear_model.LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(
        values, right, sample_weight=weights
    )
    assert found == pytest.approx([*twin.intercept_, *twin.coef_[0]], abs=1e-4)
    bounded = script.logistic(values, right, weights, 2.0, [(None, 0), (0, None), (None, None)])
    assert bounded[1:3] == pytest.approx([0, 0], abs=1e-9)
    assert abs(bounded[3]) > 1e-3


def test_the_threshold_holds_where_it_is_chosen():
    """Above it the share of right orders is the wanted one, and a little below it is not."""
    generator = np.random.default_rng(0)
    probabilities = generator.random(4000)
    right = generator.random(4000) < probabilities
    high = script.high_threshold(probabilities, right)
    assert high > script.LOW
    assert right[probabilities >= high].mean() >= script.HIGH
    assert right[probabilities >= high - 0.02].mean() < script.HIGH
