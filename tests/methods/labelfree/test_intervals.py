"""Intervals without labels: what they hold under their own model, and that signals apart make them wider."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny import tiny_reader

import ccrank
from ccrank.confidence import Features
from ccrank.methods.labelfree.intervals import label_free_uncertainty, middle_ranks

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Peru", "Monaco")


def features(count: int) -> Features:
    return Features(count, 0.5, 0.01, "name", "name", True)


@pytest.mark.parametrize(("count", "most"), [(4, 0.92), (5, 0.89), (8, 0.85), (20, 0.83), (200, 0.83)])
def test_ranks_are_held_as_often_as_promised(count, most):
    """Of true scores that are drawn as the model says, four in five ranks are inside, and in short lists few more."""
    rng = np.random.default_rng(count)
    held = []
    for _ in range(max(10, 4000 // count)):
        scores = rng.standard_normal(count)
        low, high = middle_ranks(scores[:, None] + 1.2 * rng.standard_normal((count, 512)), rng)
        true = np.argsort(np.argsort(-(scores + 1.2 * rng.standard_normal(count)))) + 1
        held.append(np.mean((low <= true) & (true <= high)))
    assert 0.77 < np.mean(held) < most


def test_signals_that_are_apart_are_less_certain():
    """An item on which the signals differ has a larger deviation and no narrower an interval; its rank is inside."""
    base = np.linspace(2, -2, 9)
    offsets = np.zeros((2, 9))
    offsets[:, 4] = 1.5, -1.5
    found = label_free_uncertainty([*(base + offsets)], base, features(9))
    assert found is not None
    assert found.deviation[4] > found.deviation[3] == found.deviation[5]
    width = found.rank_high - found.rank_low
    assert width[4] >= max(width[3], width[5])
    assert ((found.rank_low <= np.arange(1, 10)) & (np.arange(1, 10) <= found.rank_high)).all()


def test_units_of_the_scores_do_not_matter():
    """Scores ten times as large have deviations ten times as large and the same ranks; equal scores have none."""
    rows = np.random.default_rng(0).standard_normal((3, 12))
    scores = rows.mean(axis=0)
    one, ten = (label_free_uncertainty([*rows], factor * scores, features(12)) for factor in (1, 10))
    assert one is not None
    assert ten is not None
    np.testing.assert_allclose(ten.deviation, 10 * one.deviation)
    assert np.array_equal(one.rank_low, ten.rank_low)
    assert label_free_uncertainty([*rows], np.ones(12), features(12)) is None


def test_rankings_without_labels_have_intervals():
    """Of every item, the same in any order of the items."""
    one, other = (ccrank.rank(items, by="size", model=tiny_reader()) for items in (ITEMS, ITEMS[::-1]))
    assert one.uncertainty is not None
    assert other.uncertainty is not None
    assert (one.uncertainty.deviation > 0).all()
    for name in ("deviation", "rank_low", "rank_high"):
        assert np.array_equal(getattr(one.uncertainty, name), getattr(other.uncertainty, name)[::-1])


def test_where_intervals_are_shown():
    """In JSON always; in tables where there is no confidence, which says more in fewer columns."""
    ranking = ccrank.rank(ITEMS, by="size", model=tiny_reader())
    assert all(row["rank_low"] <= row["rank"] <= row["rank_high"] for row in ranking.to_json()["items"])
    assert list(ranking.to_frame().columns) == ["rank", "item", "score"]
    told = replace(ranking, confidence=None).to_frame()
    assert list(told.columns) == ["rank", "item", "score", "deviation", "rank_low", "rank_high"]
