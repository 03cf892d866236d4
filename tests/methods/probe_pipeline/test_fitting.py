"""Fitting probes to stored states: which tasks a probe is trained on, and which seed's probe ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank.api import fit
from ccrank.errors import CcrankError
from ccrank.methods.probe_pipeline.rankers import fit_layers, kernel_features, seed_scores
from ccrank.methods.probe_pipeline.states import TaskStates, read_single_states
from ccrank.methods.probing.fits import fit_each, fit_pool, leave_one_item_out
from ccrank.methods.probing.objectives import ProbeSpec, Settings
from ccrank.methods.probing.scorer import consensus
from ccrank.metrics.order import kendall_tau
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.ranking import canonical
from ccrank.task import Criterion, Task

ITEMS = [
    ("Russia", "Canada", "Brazil", "Chad", "Peru"),
    ("red", "fox", "dog", "tower"),
    ("rich", "poor", "dark", "cold", "blue"),
    ("queue", "glass", "stone"),
    ("warm", "bright", "lazy", "quick"),
]
TASKS = [
    canonical(Task(Criterion("size"), items, id=f"task {number}"))[0] for number, items in enumerate(ITEMS)
]


def last_states(tasks):
    reader = tiny_reader()
    states, _ = read_single_states(tasks, Prompter(reader), [reader.depth])
    return [own[:, 0] for own in states]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_up_to_four_tasks_are_held_out_one_by_one(count):
    """Across tasks, each task of a few is scored by the probe of all the others."""
    states, settings = last_states(TASKS[:count]), Settings(epochs=15)
    scores, _, fits = seed_scores(
        TASKS[:count], states, ProbeSpec("triplet", (0, 1), settings, protocol="across-tasks")
    )
    assert fits is not None
    assert len(fits.weights) == count
    for task, own in enumerate(states):
        others = fit_pool(states[:task] + states[task + 1 :], "triplet", seeds=(0, 1), settings=settings)
        np.testing.assert_allclose(scores[task], others.scores([own], [0])[0], atol=1e-5)


def test_five_tasks_are_held_out_in_four_folds():
    """With more than four tasks some are held out together: the probe of a fold has seen none of its tasks."""
    states, settings = last_states(TASKS), Settings(epochs=15)
    scores, *_ = seed_scores(TASKS, states, ProbeSpec("triplet", (0,), settings, protocol="across-tasks"))
    alone = []
    for task, own in enumerate(states):
        others = fit_pool(states[:task] + states[task + 1 :], "triplet", seeds=(0,), settings=settings)
        alone.append(np.allclose(scores[task], others.scores([own], [0])[0], atol=1e-5))
    assert sorted(alone) == [False, False, True, True, True]


@pytest.mark.parametrize("method", ["margin", "triplet", "ordreg"])
def test_the_seed_of_the_lowest_loss_ranks(method):
    """A ranking has the scores of the seed whose probe ends at the lowest loss, and so has the probe that is saved."""
    settings = Settings(epochs=5)
    states = last_states(TASKS)
    fits = fit_each(states, method, seeds=range(4), settings=settings)
    options = {"seeds": 4, "epochs": 5}
    scales = [fit(task, model=tiny_reader(), method=method, options=options) for task in TASKS]
    for row, (scale, scores) in enumerate(zip(scales, fits.scores(states), strict=True)):
        ranking, best = scale.ranking, int(np.argmin(fits.loss[row].numpy()))
        assert scale.scorer.probes[0].about["seed"] == best
        np.testing.assert_allclose(ranking.scores, scores[best], atol=1e-5)
        assert ranking.details["layer"] == tiny_reader().depth


def test_a_left_out_item_is_placed_by_the_probe_that_has_not_seen_it():
    """Leave-one-out: an item's score is the share of the others that the probe fitted without it puts below it."""
    tasks = [replace(task, values=tuple(map(float, range(len(task.items))))) for task in TASKS[:2]]
    states, settings = last_states(tasks), Settings(epochs=10)
    scores, *_ = seed_scores(
        tasks, states, ProbeSpec("sup-margin", (0, 1), settings, protocol="leave-one-out")
    )
    blind = leave_one_item_out(
        states, "sup-margin", [np.array(task.values) for task in tasks], seeds=(0, 1), settings=settings
    )
    for own, without in zip(scores, blind, strict=True):
        count = own.shape[1]
        for seed in range(2):
            for item in range(count):
                row = without[seed, item]
                below = sum(row[item] > row[other] for other in range(count) if other != item)
                assert own[seed, item] == pytest.approx(below / (count - 1))


# The sign of a singular vector depends on the shape: for some it is right without any care.
@pytest.mark.parametrize("size", [3, 4, 6, 10])
@pytest.mark.parametrize("seed", range(3))
def test_layers_are_joined_with_the_direction_of_their_majority(size, seed):
    """The consensus turns with its layers, follows most of them, and is unmoved by one more that agrees."""
    generator = np.random.default_rng(seed)
    common = generator.permutation(size).astype(float)
    layers = np.stack([common + 0.2 * generator.normal(size=size) for _ in range(4)])
    found = consensus(layers)
    assert np.corrcoef(found, common)[0, 1] > 0.9
    np.testing.assert_allclose(consensus(-layers), -found, atol=1e-9)
    np.testing.assert_allclose(consensus(layers * [[1], [3], [2], [5]] + 7), found, atol=1e-9)
    one_reversed = np.concatenate([layers[:3], -layers[3:]])
    assert np.corrcoef(consensus(one_reversed), common)[0, 1] > 0.9
    assert np.corrcoef(consensus(np.vstack([layers, found])), found)[0, 1] > 0.99
    np.testing.assert_array_equal(consensus(layers[:1]), layers[0])


def shared_item_tasks(gold_of_shared: float) -> list[Task]:
    """Eight tasks of five items, of which the first is in every second task."""
    tasks = []
    for number in range(8):
        own = tuple(f"item {number}-{place}" for place in range(4))
        first = "  The Shared item" if number % 2 else "the shared  item"
        tasks.append(
            Task(Criterion("size"), (first, *own), None, (gold_of_shared, 1.0, 2.0, 3.0, 4.0), str(number))
        )
    return tasks


@pytest.mark.parametrize("name", ["sup-margin", "sup-ordreg", "sup-ccs-pair"])
def test_gold_of_shared_items_does_not_reach_held_out_tasks(name):
    """Item-disjoint folds: another gold value of an item that held-out tasks have too changes nothing; with folds of
    tasks it does."""
    rng = np.random.default_rng(0)
    rows = (20, 2) if name == "sup-ccs-pair" else (5,)
    states = [rng.normal(size=(*rows, 6)).astype(np.float32) for _ in range(8)]
    scores = {}
    for protocol in ("across-tasks", "across-items"):
        spec = ProbeSpec(name, (0, 1), Settings(epochs=20, learning_rate=0.05), protocol)
        for gold in (0.0, 9.0):
            scores[protocol, gold], _, fits = seed_scores(shared_item_tasks(gold), states, spec)
            assert fits is not None
            assert fits.weights.shape[:2] == (4, 2)
    np.testing.assert_array_equal(scores["across-items", 0.0], scores["across-items", 9.0])
    assert not np.allclose(scores["across-tasks", 0.0], scores["across-tasks", 9.0])


def test_without_shared_items_both_kinds_of_folds_are_the_same():
    """Nothing is left out where no item recurs."""
    rng = np.random.default_rng(0)
    gold = (1.0, 2.0, 3.0, 4.0)
    tasks = [
        Task(Criterion("size"), tuple(f"{number}-{place}" for place in range(4)), None, gold, str(number))
        for number in range(6)
    ]
    states = [rng.normal(size=(4, 6)).astype(np.float32) for _ in tasks]
    one, other = (
        seed_scores(tasks, states, ProbeSpec("sup-margin", (0,), Settings(epochs=20), protocol))[0]
        for protocol in ("across-tasks", "across-items")
    )
    np.testing.assert_array_equal(one, other)
    same = [
        Task(Criterion("size"), ("a", "b", "c", "d"), None, (1.0, 2.0, 3.0, 4.0), str(n)) for n in range(6)
    ]
    with pytest.raises(CcrankError, match="none is left to train on"):
        seed_scores(same, states, ProbeSpec("sup-margin", (0,), Settings(epochs=20), "across-items"))


def test_products_of_kernel_features_are_the_gaussian_kernel():
    """φ(z)·φ(z') ≈ exp(−‖z − z'‖²/2d) of the Z-scored states, with the same features for every task."""
    rng = np.random.default_rng(0)
    states = rng.normal(3.0, 5.0, size=(6, 4000)).astype(np.float32)
    scaled = (states - states.mean(axis=0)) / states.std(axis=0)
    distance = ((scaled[:, None] - scaled[None]) ** 2).sum(axis=-1)
    features = kernel_features(states).astype(float)
    np.testing.assert_allclose(features @ features.T, np.exp(-distance / (2 * 4000)), atol=0.06)
    np.testing.assert_array_equal(kernel_features(states), kernel_features(states.copy()))


def test_a_kernel_probe_finds_what_no_linear_one_can():
    """Gold is the distance from the middle of a plane in the states: supervised probes across tasks."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(2, 64))
    tasks, states = [], []
    for number in range(40):
        latent = rng.normal(size=(8, 2))
        latent -= latent.mean(axis=0)
        names = tuple(f"{number}-{place}" for place in range(8))
        tasks.append(
            Task(Criterion("size"), names, None, tuple((latent**2).sum(axis=1).tolist()), str(number))
        )
        states.append((latent @ plane).astype(np.float32))
    means = {}
    for features in ("linear", "rbf"):
        settings = Settings(epochs=200, learning_rate=0.05, features=features)
        read = TaskStates((5,))
        for index, one in enumerate(states):
            read.add(index, one[:, None], Cost())
        layers, _ = fit_layers(tasks, read, ProbeSpec("sup-margin", (0,), settings, "across-tasks"))
        means[features] = np.mean([kendall_tau(fit.scores[0], tasks[fit.index].values) for fit in layers[5]])
    assert means["rbf"] > 0.4
    assert abs(means["linear"]) < 0.12
