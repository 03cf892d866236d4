"""What the probes find: a planted order, nothing where there is nothing, gold where it is shown."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from literal_probes import chance_tau
from scipy.stats import kendalltau

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import Bucket, PackedTasks, ordered_pairs
from ccrank.methods.probing.fits import (
    cross_validate,
    fit_each,
    fit_pool,
    held_out_scores,
    leave_one_item_out,
    points_of_pairs,
    task_folds,
    train_sets,
)
from ccrank.methods.probing.objectives import OBJECTIVES, ProbeSpec, Settings
from ccrank.methods.probing.trainer import train
from ccrank.util.zscores import z_scores

SIZE, TASKS, WIDTH = 10, 30, 64
ITEM_PROBES = ["ccs", "margin", "triplet", "ordreg", "random", "pca"]
TWINS = [name for name, entry in OBJECTIVES.items() if entry.supervised]


def planted(strength, seed=0, tasks=TASKS, size=SIZE, width=WIDTH):
    """Tasks whose items are arranged along one common direction in gold order, plus noise of size 1: states and
    gold."""
    generator = np.random.default_rng(seed)
    direction = generator.normal(size=width)
    gold = [generator.permutation(size).astype(float) for _ in range(tasks)]
    noise = generator.normal(size=(tasks, size, width))
    return [
        strength * np.outer(order - order.mean(), direction) + noise[t] for t, order in enumerate(gold)
    ], gold


def planted_pairs(strength, tasks=8, size=5, width=WIDTH, seed=0):
    """Pair states that tell x⁺ of a true statement from x⁺ of a false one, and x⁻ the other way round."""
    generator = np.random.default_rng(seed)
    direction = generator.normal(size=width)
    states, gold = [], []
    for _ in range(tasks):
        order = generator.permutation(size).astype(float)
        first, second = ordered_pairs(size).T
        above = np.sign(order[first] - order[second])
        signal = np.stack([above, -above], -1)[..., None] * direction
        states.append(strength * signal + generator.normal(size=(len(above), 2, width)))
        gold.append(order)
    return states, gold


def taus(scores, gold):
    """Signed τ of each task and seed: (T, S)."""
    return np.array(
        [[kendalltau(row, order).statistic for row in task] for task, order in zip(scores, gold, strict=True)]
    )


def test_chance_is_what_enumeration_says():
    """The exact mean |τ| of two random orders equals brute force for small N and 0.20 at N = 10."""
    for size in (3, 4, 6):
        brute = [
            abs(kendalltau(range(size), order).statistic) for order in itertools.permutations(range(size))
        ]
        assert chance_tau(size)[0] == pytest.approx(np.mean(brute))
        assert chance_tau(size)[1] == pytest.approx(np.std(brute))
    assert chance_tau(10)[0] == pytest.approx(0.20, abs=0.005)


@pytest.mark.parametrize("method", ["margin", "triplet", "ordreg", "pca"])
def test_a_dominant_order_is_found(method):
    """Where the order is by far the largest variation, the probe's order is the planted one, up to reflection."""
    states, gold = planted(strength=3.0)
    assert np.abs(taus(fit_each(states, method).scores(states), gold)).mean() >= 0.9


@pytest.mark.parametrize("method", ITEM_PROBES)
def test_without_an_order_probes_are_at_chance(method):
    """On noise |τ| is that of random orders, within four standard errors, and signed τ is 0."""
    states, gold = planted(strength=0.0)
    found = taus(fit_each(states, method).scores(states), gold)
    mean, spread = chance_tau(SIZE)
    error = 4 * spread / np.sqrt(TASKS)  # seeds of a task may agree: count each task once
    assert abs(np.abs(found).mean() - mean) < error
    assert abs(found.mean()) < 4 * np.hypot(mean, spread) / np.sqrt(TASKS)


def test_pairs_with_a_dominant_answer_are_found():
    """ccs-pair, and points summed from its predictions, recover the order behind clear Yes and No states."""
    states, gold = planted_pairs(strength=3.0)
    predictions = fit_each(states, "ccs-pair").scores(states)
    scores = [points_of_pairs(task, 5) for task in predictions]
    assert np.abs(taus(scores, gold)).mean() >= 0.9


def test_points_count_wins_then_break_ties():
    """More wins always rank above fewer; equal wins go by the sum of predictions."""
    beats = {(0, 1): 0.9, (0, 2): 0.4, (1, 2): 0.8}  # a circle: one win each
    predictions = np.array(
        [beats[(a, b)] if (a, b) in beats else 1 - beats[(b, a)] for a, b in ordered_pairs(3)]
    )
    points = points_of_pairs(predictions, 3)
    sums = [0.9 + 0.4, 0.1 + 0.8, 0.6 + 0.2]
    assert points.argsort().tolist() == np.argsort(sums).tolist()
    assert (points.astype(int) == 2).all()
    clear = points_of_pairs(np.array([0.51, 0.51, 0.49, 0.99, 0.49, 0.01]), 3)
    assert clear.argsort()[::-1].tolist() == [0, 1, 2]
    with pytest.raises(CcrankError, match="6 ordered pairs"):
        points_of_pairs(np.zeros(5), 3)


@pytest.mark.parametrize("method", [name for name in TWINS if name != "sup-triplet"])
def test_twins_fit_gold_on_the_same_task(method):
    """Trained and tested on the same task of pure noise, each supervised probe fits the gold order: an upper bound."""
    if OBJECTIVES[method].prompt == "pair":
        states, gold = planted_pairs(strength=0.0, width=128)
        scores = [points_of_pairs(task, 5) for task in fit_each(states, method, gold=gold).scores(states)]
    else:
        states, gold = planted(strength=0.0, width=128, tasks=8)
        scores = fit_each(states, method, gold=gold).scores(states)
    assert taus(scores, gold).mean() >= 0.9


def test_a_supervised_triplet_may_fold_the_order():
    """sup-triplet depends on distances only, so some seeds fold the scale; the seed with the lowest loss fits gold."""
    states, gold = planted(strength=0.0, width=128, tasks=8)
    fits = fit_each(states, "sup-triplet", gold=gold)
    scores = fits.scores(states)
    lowest = [own[[seed]] for own, seed in zip(scores, fits.loss.argmin(-1), strict=True)]
    every, best = taus(scores, gold), taus(lowest, gold)
    assert best.mean() >= 0.9
    assert best.mean() > every.mean() >= 0.6


@pytest.mark.parametrize("method", TWINS)
def test_twins_carry_over_to_items_held_out(method):
    """Left-out items fall into place where there is a direction, and nowhere in particular where there is none."""
    place = {}
    for strength in (0.0, 2.0):
        if OBJECTIVES[method].prompt == "pair":
            states, gold = planted_pairs(strength, tasks=6)
            scores = leave_one_item_out(states, method, gold, seeds=(0,), settings=Settings(epochs=60))
            assert [task.shape for task in scores] == [(1, 5, 20)] * 6
            points = [np.stack([points_of_pairs(row, 5) for row in task[0]])[None] for task in scores]
        else:
            states, gold = planted(strength, tasks=6)
            points = leave_one_item_out(states, method, gold, seeds=(0,), settings=Settings(epochs=60))
            assert [task.shape for task in points] == [(1, SIZE, SIZE)] * 6
        place[strength] = taus([held_out_scores(task) for task in points], gold).mean()
    assert place[2.0] >= 0.8
    assert place[0.0] < 0.35


@pytest.mark.parametrize("method", ["sup-margin", "sup-ccs-pair", "sup-triplet"])
def test_a_left_out_item_is_not_seen(method):
    """Another gold place for the left-out item changes nothing in the probe trained without it."""
    if OBJECTIVES[method].prompt == "pair":
        states, gold = planted_pairs(1.0, tasks=1)
    else:
        states, gold = planted(1.0, tasks=1)
    lowest = int(np.argmin(gold[0]))
    moved = gold[0].copy()
    moved[lowest] = gold[0].max() + 1
    settings = Settings(epochs=10)
    before, after = (
        leave_one_item_out(states, method, [g], seeds=(0,), settings=settings)[0] for g in (gold[0], moved)
    )
    np.testing.assert_array_equal(before[:, lowest], after[:, lowest])
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("method", ["sup-margin", "sup-ordreg", "sup-triplet", "triplet"])
def test_leaving_out_equals_dropping(method):
    """The probe without item 2 is that of a task that never had it, given the same Z-scores."""
    states, gold = planted(1.0, tasks=1, size=6)
    rows, settings = z_scores(torch.from_numpy(states[0]), axis=0), Settings(epochs=50)
    found = leave_one_item_out(states, method, gold, seeds=(0,), settings=settings, dtype=torch.float64)[0][
        0, 2
    ]
    kept = [0, 1, 3, 4, 5]
    mask = torch.ones(1, 1, 1, 5, dtype=torch.bool)
    ranks = torch.from_numpy(gold[0][kept].argsort().argsort()).double().expand(mask.shape)
    place = torch.arange(5)
    batch = PackedTasks(rows[None, kept], (Bucket(place[None], place, mask, ranks),))
    weights, bias, *_ = train(batch, ProbeSpec(method, (0,), settings))
    own = (rows @ weights[0, 0, 0] + bias[0, 0, 0]).sigmoid()
    np.testing.assert_allclose(found, own, atol=1e-9)


@pytest.mark.parametrize("method", ["triplet", "ordreg", "pca", "sup-margin", "sup-triplet", "sup-ordreg"])
def test_a_common_direction_carries_over_to_new_tasks(method):
    """Folds: probes trained on other tasks rank held-out ones, supervised ones with the right sign."""
    states, gold = planted(strength=2.0, tasks=12)
    fits, scores = cross_validate(states, method, gold=gold, seeds=(0, 1), settings=Settings(epochs=100))
    assert fits.weights.shape == (4, 2, WIDTH)
    found = taus(scores, gold)
    assert np.abs(found).mean() >= 0.9
    if method.startswith("sup-"):
        assert found.mean() >= 0.9


def test_folds_are_fair_and_fixed():
    """Every task is held out once, fold sizes differ by at most one, and a seed gives the same folds again."""
    folds = task_folds(69, 4, seed=3)
    assert np.array_equal(folds, task_folds(69, 4, seed=3))
    assert not np.array_equal(folds, task_folds(69, 4, seed=4))
    sizes = np.bincount(folds)
    assert len(sizes) == 4
    assert sizes.max() - sizes.min() <= 1
    sets = train_sets(folds)
    assert sets.shape == (4, 69)
    assert ((~sets).sum(0) == 1).all()
    with pytest.raises(CcrankError, match="folds"):
        task_folds(1)
    assert sorted(task_folds(3)) == [0, 1, 2]


def test_held_out_tasks_are_not_seen():
    """A fold's probe does not change when a held-out task changes."""
    states, gold = planted(1.0, tasks=8)
    folds = task_folds(8)
    changed = [states[t] if folds[t] != 2 else -3 * states[t] ** 3 for t in range(8)]
    settings = Settings(epochs=20)
    before, _ = cross_validate(states, "triplet", gold=gold, seeds=(0,), settings=settings)
    after, _ = cross_validate(changed, "triplet", gold=gold, seeds=(0,), settings=settings)
    assert before.weights[2].equal(after.weights[2])
    assert not before.weights[1].equal(after.weights[1])


def test_held_out_tasks_are_scored_by_the_probe_that_has_not_seen_them():
    """A task's scores are those of a probe fitted on the tasks of the other folds alone."""
    states, _ = planted(strength=1.0, tasks=6, size=5)
    settings, folds = Settings(epochs=20), task_folds(6, 3)
    _, scores = cross_validate(states, "triplet", folds, seeds=(0, 1), settings=settings)
    for task, fold in enumerate(folds):
        others = [own for own, other in zip(states, folds, strict=True) if other != fold]
        alone = fit_pool(others, "triplet", seeds=(0, 1), settings=settings)
        np.testing.assert_allclose(scores[task], alone.scores([states[task]], [0])[0], atol=1e-5)
