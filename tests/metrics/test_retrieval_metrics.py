"""Metrics of retrieval against values computed by hand and against random orders."""

from __future__ import annotations

import math
import sys
from itertools import permutations

import numpy as np
import pytest

from ccrank.errors import CcrankError
from ccrank.metrics.retrieval import (
    NAMES,
    chance_relevance,
    evaluate_relevance,
    have_measures,
    mean_relevance,
)


def test_values_by_hand():
    """Relevant documents at ranks 2 and 4 of 5, nDCG and recall cut at 3; and grades of 2."""
    found = evaluate_relevance([5, 4, 3, 2, 1], [0, 1, 0, 1, 0], k=3)
    assert found.mrr == pytest.approx(1 / 2)
    assert found.map == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert found.recall == pytest.approx(1 / 2)
    assert found.ndcg == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))
    graded = evaluate_relevance([1, 3, 2], [2, 1, 0])
    best = 2 + 1 / math.log2(3)
    assert graded.ndcg == pytest.approx((1 + 2 / math.log2(4)) / best)
    assert graded.mrr == 1.0


def test_the_best_and_the_worst_order():
    """All metrics are 1 for the best order; for the worst, nDCG and recall of the first are 0."""
    best = evaluate_relevance([3, 2, 1, 0], [1, 1, 0, 0], k=2)
    assert [getattr(best, name) for name in NAMES] == [1, 1, 1, 1]
    worst = evaluate_relevance([0, 1, 2, 3], [1, 1, 0, 0], k=2)
    assert (worst.ndcg, worst.recall) == (0, 0)
    assert worst.mrr == pytest.approx(1 / 3)


def test_ties_are_in_the_order_given():
    """Not in that of document names: document 10 must not precede document 2."""
    grades = [0] * 12
    grades[1] = 1
    assert evaluate_relevance([1.0] * 12, grades).mrr == pytest.approx(1 / 2)


@pytest.mark.parametrize("grades", [[1, 0, 0, 0], [1, 1, 0, 0, 0], [2, 1, 0, 0], [1, 2], [1, 1, 1]])
@pytest.mark.parametrize("k", [1, 2, 10])
def test_chance_is_the_mean_over_all_orders(grades, k):
    """The expected metrics of a random order, by enumerating all of them."""
    found = mean_relevance(
        [evaluate_relevance(order, grades, k) for order in permutations(range(len(grades)))]
    )
    chance = chance_relevance(grades, k)
    for name in NAMES:
        assert getattr(chance, name) == pytest.approx(getattr(found, name)), name


def test_queries_without_a_relevant_document_count_in_no_metric():
    """They are NaN, and left out of means."""
    nothing = evaluate_relevance([1, 2], [0, 0])
    assert math.isnan(nothing.ndcg)
    assert math.isnan(chance_relevance([0, 0]).map)
    assert mean_relevance([nothing, evaluate_relevance([2, 1], [1, 0])]).ndcg == 1.0
    assert math.isnan(mean_relevance([nothing]).mrr)


@pytest.mark.parametrize(
    ("scores", "grades", "message"),
    [
        ([1, 2], [0.5, 1], "whole numbers, at least 0"),
        ([1, 2], [-1, 1], "whole numbers, at least 0"),
        ([1, 2, 3], [0, 1], "2 grades need as many finite scores"),
        ([1, np.nan], [0, 1], "2 grades need as many finite scores"),
    ],
)
def test_wrong_values_are_refused(scores, grades, message):
    """The message has what is wrong."""
    with pytest.raises(CcrankError, match=message):
        evaluate_relevance(scores, grades)


def test_without_the_package_the_extra_is_named(monkeypatch):
    """ir-measures is optional; the error says how to install it."""
    assert have_measures()
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(CcrankError, match=r"pip install '\.\[relevance\]'"):
        evaluate_relevance([1, 2], [0, 1])
