"""The anchored probe: held out where it says so, and better than its anchors where they share a direction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from ccrank.methods.labelfree.anchored import (
    LEAST_SMOOTHED,
    OWN_ANCHOR,
    SMOOTHING,
    _fit_pool,
    _left_out,
    anchored_scores,
    smoothed,
)
from ccrank.methods.probing.fits import task_folds
from ccrank.metrics.order import kendall_tau
from ccrank.util.zscores import z_scores

PLACES = (("slot", 3), ("item", 5))


def planted(seed, tasks=24, items=8, layers=2, width=20, noise=1.0):
    """Tasks whose items lie along one common direction, and anchors that see their places through noise."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(layers, width))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    states, anchors, places = [], [], []
    for _ in range(tasks):
        place = rng.permutation(np.linspace(-1.5, 1.5, items))
        state = place[:, None, None] * direction + 0.25 * rng.normal(size=(items, layers, width))
        states.append((state + 3 * rng.normal(size=(1, layers, width))).astype(np.float32))
        anchors.append(place + noise * rng.normal(size=items))
        places.append(place)
    return states, anchors, places


def mean_tau(scores, places):
    return float(np.mean([kendall_tau(one, place) for one, place in zip(scores, places, strict=True)]))


@given(st.integers(0, 500), st.integers(2, 30), st.integers(2, 30), st.floats(0.01, 10))
@settings(max_examples=40)
def test_both_systems_give_scikit_learns_ridge(seed, rows, width, ridge):
    """Fewer rows than columns or more, the primal and the dual solution are the one that minimises the loss."""
    rng = np.random.default_rng(seed)
    table, aim = rng.normal(size=(rows, width)), rng.normal(size=rows)
    half = rows // 2
    found = _fit_pool([table[:half], table[half:]], [aim[:half], aim[half:]], ridge)
    twin = Ridge(alpha=ridge * rows, fit_intercept=False).fit(table, aim)
    assert found == pytest.approx(twin.coef_, abs=1e-8)


def test_a_direction_is_found_and_the_noise_is_taken_out():
    """Held-out probes follow the places better than the very anchors that they were fitted to."""
    for seed in range(3):
        states, anchors, places = planted(seed)
        found = anchored_scores(states, anchors, PLACES)
        probes = [own.mean(axis=0) for own in found.by_place]
        assert mean_tau(probes, places) > mean_tau(anchors, places) + 0.1
        assert mean_tau(found.scores, places) > mean_tau(anchors, places) + 0.1


def test_tasks_are_held_out():
    """A task's probe score does not hang on its own anchors, however wild; its score is that plus half of them."""
    states, anchors, _ = planted(0, tasks=9)
    before = anchored_scores(states, anchors, PLACES)
    for index in (0, 4, 8):
        wild = list(anchors)
        wild[index] = np.random.default_rng(index).normal(size=8) * 100
        after = anchored_scores(states, wild, PLACES)
        assert np.array_equal(after.by_place[index], before.by_place[index])
        chosen = after.by_place[index][after.best]
        assert after.scores[index] == pytest.approx(chosen + OWN_ANCHOR * z_scores(wild[index]))
        fold = task_folds(9, 4)
        others = [other for other in range(9) if fold[other] != fold[index]]
        assert not any(np.allclose(after.by_place[other], before.by_place[other]) for other in others)


def test_tasks_are_standardised_within():
    """Shifting and stretching a task's states or anchors changes nothing: tasks are never compared."""
    states, anchors, _ = planted(1, tasks=6)
    rng = np.random.default_rng(0)
    moved = [one * rng.uniform(0.5, 5) + rng.normal(size=(1, *one.shape[1:])) for one in states]
    scaled = [one * rng.uniform(0.1, 9) + rng.normal() for one in anchors]
    first, second = (anchored_scores(*given, PLACES) for given in ((states, anchors), (moved, scaled)))
    for one, other in zip(first.scores, second.scores, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_features_that_only_rounding_moves_are_left_out():
    """A constant feature with noise in its last bits must not be blown up to the size of the others."""
    states, anchors, _ = planted(2)
    rng = np.random.default_rng(0)
    noisy = [
        np.concatenate(
            [one, (1000 * (1 + 6e-8 * rng.integers(-1, 2, size=(*one.shape[:2], 5)))).astype(np.float32)],
            axis=2,
        )
        for one in states
    ]
    found = anchored_scores(noisy, anchors, PLACES)
    assert not found.weights[:, 20:].any()
    assert found.weights[:, :20] == pytest.approx(anchored_scores(states, anchors, PLACES).weights)


def test_anchors_may_tie():
    """Flat anchors, as a model of half precision may give, teach nothing and break nothing."""
    states, anchors, _ = planted(3, tasks=5)
    anchors[0] = np.zeros(8)
    anchors[1] = anchors[1].round()
    found = anchored_scores(states, anchors, PLACES)
    assert all(np.isfinite(one).all() for one in found.scores)
    assert np.isfinite(found.agreement).all()


def test_the_layers_and_the_position_that_agree_make_the_scores():
    """Half the layers of one position know the direction: they alone are taken, and of none that knows nothing."""
    states, anchors, _ = planted(5)
    rng = np.random.default_rng(2)
    blind = [rng.normal(size=(len(one), 6, one.shape[2])) for one in states]
    more = [
        np.concatenate([own[:, :3], one, own[:, 3:]], axis=1) for own, one in zip(blind, states, strict=True)
    ]
    places = [
        ("slot", 1),
        ("slot", 2),
        ("slot", 3),
        ("item", 1),
        ("item", 2),
        ("item", 3),
        ("item", 4),
        ("slot", 4),
    ]
    found = anchored_scores(more, anchors, places)
    assert found.places[found.best] in (("item", 1), ("item", 2))
    for own, anchor, score in zip(found.by_place, anchors, found.scores, strict=True):
        expected = z_scores(own[3:5].mean(axis=0)) + OWN_ANCHOR * z_scores(anchor)
        assert score == pytest.approx(expected)


def test_the_best_layer_is_the_one_with_the_direction():
    """Agreement with held-out anchors, no label, tells a layer that knows from one that does not; its probe serves
    new tasks, and more = higher."""
    states, anchors, _ = planted(4)
    rng = np.random.default_rng(1)
    half = [np.stack([rng.normal(size=one[:, 0].shape), one[:, 1]], axis=1) for one in states]
    found = anchored_scores(half[:18], anchors[:18], PLACES)
    assert found.best == 1
    probe = found.probe(model="m")
    assert probe.about == {
        "method": "anchored",
        "layer": 5,
        "position": "item",
        "agreement": found.agreement[1],
        "model": "m",
    }
    _, _, places = planted(4)
    assert mean_tau([probe(one[:, 1]) for one in half[18:]], places[18:]) > 0.5


@pytest.mark.parametrize("shape", [(9, 20), (30, 6)], ids=["fewer items than dimensions", "more"])
def test_left_out_predictions_are_those_of_fits_without_the_item(shape):
    """The shortcut by the hat matrix against N fits, each by scikit-learn without the item."""
    rng = np.random.default_rng(1)
    rows, target = rng.normal(size=shape), rng.normal(size=shape[0])
    found = _left_out(rows, target, 2.5)
    for place in range(len(rows)):
        keep = np.arange(len(rows)) != place
        model = Ridge(alpha=2.5, fit_intercept=False).fit(rows[keep], target[keep])
        assert found[place] == pytest.approx(model.predict(rows[[place]])[0])


def test_neighbours_even_out_noise():
    """States that carry the truth and anchors that are noisy: what neighbours lend is nearer to the truth."""
    rng = np.random.default_rng(0)
    gain = []
    for _ in range(40):
        truth = rng.normal(size=16)
        states = truth[:, None, None] * rng.normal(size=(1, 3, 24)) + 0.5 * rng.normal(size=(16, 3, 24))
        anchor = truth + rng.normal(size=16)
        found = smoothed(states, anchor)
        gain.append(np.corrcoef(found, truth)[0, 1] - np.corrcoef(anchor, truth)[0, 1])
    assert np.mean(gain) > 0.05


def test_neighbours_turn_with_the_anchor_and_know_no_unit():
    """−a gives −scores; they keep the unit of the anchor and see none of the states; short lists stay as they are."""
    rng = np.random.default_rng(2)
    states, anchor = rng.normal(size=(12, 3, 20)), rng.normal(size=12)
    found = smoothed(states, anchor)
    assert smoothed(states, -anchor) == pytest.approx(-found)
    assert smoothed(5 * states + 3, 7 * anchor - 2) == pytest.approx(7 * found - 2)
    lent = (found - anchor) / anchor.std()
    assert np.abs(lent).max() > 0.05
    assert lent.std() <= SMOOTHING + 1e-9
    few = LEAST_SMOOTHED - 1
    assert (smoothed(states[:few], anchor[:few]) == anchor[:few]).all()
