"""The fit of the confidence of `auto`, and the stored report on lists that took no part in it."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ccrank.confidence import MAX_BITS, MAX_UNKNOWN, confidence_of
from ccrank.methods.labelfree.rankers import MIN_TASKS
from studies.confidence import confidence as script
from studies.confidence import languages

TABLE = Path(__file__).parents[1] / "report.csv"
LANGUAGES = TABLE.with_name("languages.csv")


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
    """Of lists marked high at least 85 % have τ > 0.3, of those marked low at most 45 %; neither level is rare."""
    rows = script.rows_of(TABLE)
    levels = np.array([confidence_of(row.features).level for row in rows])
    right = np.array([row.tau > 0.3 for row in rows])
    assert right[levels == "high"].mean() >= script.PROMISED["high"]
    assert right[levels == "low"].mean() <= script.PROMISED["low"]
    for level in ("low", "high"):
        assert (levels == level).mean() > 0.15


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


def test_the_thresholds_hold_where_they_are_chosen():
    """Beyond them the shares of right orders are the wanted ones, and a little nearer to the middle they are not."""
    generator = np.random.default_rng(0)
    probabilities = 0.3 + 0.7 * generator.random(4000)
    right = generator.random(4000) < probabilities
    low, high = script.thresholds(probabilities, right)
    assert low < high
    assert right[probabilities >= high].mean() >= script.HIGH > right[probabilities >= high - 0.02].mean()
    assert right[probabilities < low].mean() <= script.LOW < right[probabilities < low + 0.02].mean()


def test_the_limit_of_bits_tells_languages_apart():
    """On lists of names that took no part in its choice: most in other languages are over it, and none in English; the
    probability of such a list is the share of right orders of those that did."""
    with LANGUAGES.open(encoding="utf-8") as file:
        names = [row for row in csv.DictReader(file) if row["kind"] == "name"]
    assert len({row["number"] for row in names}) > 30

    def over(half, known):
        own = [
            row for row in names if int(row["number"]) % 2 == half and (row["language"] == "English") == known
        ]
        return [float(row["bits"]) > MAX_BITS for row in own if row["language"] != languages.TERMS]

    assert np.mean(over(1, known=False)) > 0.85
    assert not any(over(1, known=True))
    right = [
        float(row["tau"]) > 0.3
        for row in names
        if float(row["bits"]) > MAX_BITS
        and row["language"] not in languages.KNOWN
        and int(row["number"]) % 2 == 0
    ]
    assert round(np.mean(right), 2) == MAX_UNKNOWN


def test_lists_of_a_call_are_not_pooled():
    """Fewer lists of one criterion are read together than are ranked by what they have in common."""
    for (language, _), members in languages.tasks().items():
        counts = Counter(task.criterion for task in members)
        assert max(counts.values()) < MIN_TASKS, language
