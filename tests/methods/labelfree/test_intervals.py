"""Intervals without labels: what they hold under their own model, and that signals apart make them wider."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny import tiny_reader

import ccrank
from ccrank.cli.commands.rank_output import rendered
from ccrank.confidence import Features
from ccrank.methods.labelfree.intervals import ScoreError, middle_ranks, uncertainty_of

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
    error = ScoreError.fit(base, features(9))
    assert error is not None
    found = uncertainty_of(base, error([*(base + offsets)]))
    assert found.deviation[4] > found.deviation[3] == found.deviation[5]
    width = found.rank_high - found.rank_low
    assert width[4] >= max(width[3], width[5])
    assert ((found.rank_low <= np.arange(1, 10)) & (np.arange(1, 10) <= found.rank_high)).all()


def test_units_of_the_scores_do_not_matter():
    """Scores ten times as large have deviations ten times as large and the same ranks; equal scores have none."""
    rows = np.random.default_rng(0).standard_normal((3, 12))
    scores = rows.mean(axis=0)
    errors = [ScoreError.fit(factor * scores, features(12)) for factor in (1, 10)]
    one, ten = (uncertainty_of(f * scores, error([*rows])) for f, error in zip((1, 10), errors, strict=True))
    np.testing.assert_allclose(ten.deviation, 10 * one.deviation)
    assert np.array_equal(one.rank_low, ten.rank_low)
    assert ScoreError.fit(np.ones(12), features(12)) is None


def test_rankings_without_labels_have_intervals():
    """Of every item, the same in any order of the items."""
    one, other = (ccrank.rank(items, by="size", model=tiny_reader()) for items in (ITEMS, ITEMS[::-1]))
    assert one.uncertainty is not None
    assert other.uncertainty is not None
    assert (one.uncertainty.deviation > 0).all()
    for name in ("deviation", "rank_low", "rank_high"):
        assert np.array_equal(getattr(one.uncertainty, name), getattr(other.uncertainty, name)[::-1])


def test_where_intervals_are_shown():
    """In JSON and in the columns of frames and files."""
    ranking = ccrank.rank(ITEMS, by="size", model=tiny_reader())
    rows, frame = ranking.to_json()["items"], ranking.to_frame()
    assert all(row["rank_low"] <= row["rank"] <= row["rank_high"] for row in rows)
    assert list(frame.columns) == ["rank", "item", "score", "deviation", "rank_low", "rank_high"]
    assert frame["rank_high"].tolist() == [row["rank_high"] for row in rows]


def test_a_table_of_tasks_without_intervals():
    """Rows of a task that has none leave their columns empty, whichever task comes first."""
    known = ccrank.rank(ITEMS, by="size", model=tiny_reader())
    bare = replace(known, uncertainty=None)
    for rankings in ([known, bare], [bare, known]):
        header, *rows = rendered("csv", rankings, None, False, False).decode().splitlines()
        assert header == "task,rank,item,score,deviation,rank_low,rank_high"
        assert {row.count(",") for row in rows} == {6}
        assert sum(row.endswith(",,,") for row in rows) == len(ITEMS)


def test_a_scale_gives_new_items_intervals():
    """Each new item has a deviation that does not depend on what else is scored; a list of them has ranks inside its
    intervals, and an item whose signals are wildly apart has a finite deviation."""
    scale = ccrank.fit(ITEMS, by="size", model=tiny_reader())
    new = ("Spain", "Malta", "a stone", "Kenya")
    found, ranking = scale.score(new), scale.rank(new)
    assert found.deviation is not None
    np.testing.assert_allclose(scale.score(new[2:3]).deviation, found.deviation[2:3], rtol=1e-3)
    known = ranking.uncertainty
    assert known is not None
    assert np.array_equal(known.deviation, found.deviation)
    assert all(row["rank_low"] <= row["rank"] <= row["rank_high"] for row in ranking.to_json()["items"])
    far = scale.scorer.model.error([np.array([1e9]), np.array([-1e9])])
    assert 0 < far[0] < 1e3
    plain = ccrank.fit(ITEMS, by="size", model=tiny_reader(), method="poles")
    assert plain.score(new).deviation is None


@pytest.mark.parametrize("level", [np.nan, 1e6, -1e6])
def test_deviations_beyond_all_numbers_are_refused(level):
    """They would come from a damaged file."""
    with pytest.raises(ValueError, match="deviation"):
        ScoreError(level, 0.2)
