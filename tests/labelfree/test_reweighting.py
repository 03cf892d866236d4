"""A few labels: read, checked, and weighed against what no label says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from ccrank.api import rank, rank_tasks
from ccrank.errors import CcrankError
from ccrank.labelfree.reweighting import (
    MOST_LEFT_OUT,
    PRIOR,
    _effective_pairs,
    _left_out,
    fit_signal_weights,
    fit_weights,
)
from ccrank.labels import Labels
from ccrank.metrics import kendall_tau
from ccrank.standardise import z_scores
from ccrank.task import Criterion, Task
from ccrank.taskfiles import read_labels
from tiny import tiny_reader

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Peru", "Monaco", "the tower")


def made(seed, items=12, skills=(1.0, 1.0, 1.0, 1.0)):
    """True values, and routes that see them through noise, times a skill each: (N,), (R, N)."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.linspace(-1.5, 1.5, items))
    routes = [z_scores(skill * truth + rng.normal(size=items)) for skill in skills]
    return truth, np.stack(routes)


def pairs_of(truth, places):
    return [(i, j) for i in places for j in places if truth[i] > truth[j]]


def spread_of(routes, pairs):
    """The unit of scores: their deviation, or the labelled items' if larger."""
    mean = routes.mean(axis=0)
    apart = [mean[i] - mean[j] for i, j in pairs]
    return max(mean.std(), np.sqrt(np.mean(np.square(apart)) / 2))


def all_pairs(gold):
    return set(gold.pairs)


# What is read


def test_values_and_orders_say_the_same(tmp_path):
    """CSV with a header or none, TSV, JSON and lines give one Gold; spelling is matched in normal form."""
    forms = {
        "a.csv": "item,value\nRussia,17.1\n the  tower ,0\nChad,1.3\n",
        "b.csv": "Russia,17.1\n\nthe tower,0\nChad,1.3\n",
        "c.tsv": "country\tarea\nRussia\t17.1\nthe tower\t0\nChad\t1.3\n",
        "d.json": json.dumps({"Russia": 17.1, "the tower": 0, "Chad": 1.3}),
        "e.txt": "Russia > Chad > the  tower\n",
        "f.txt": "Russia>Chad\n\nChad > the tower\n",
        "g": "Chad,1.3\nRussia,17.1\nthe tower,0",
        "h": '{"Russia": 17.1, "the tower": 0, "Chad": 1.3}',
        "i.txt": "\ufeffRussia\t17.1\r\nthe tower\t-1e3\r\nChad\t1\r\n",
    }
    expected = {("Russia", "Chad"), ("Chad", "the tower"), ("Russia", "the tower")}
    for name, text in forms.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert all_pairs(read_labels(tmp_path / name, ITEMS)) == expected, name
    for value in ({"Russia": 3, "Chad": 2, "the tower": 1}, [("Russia", "Chad"), ("Chad", "the tower")]):
        assert all_pairs(Labels.parse(value)) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "Russia,3\nAtlantis,2\n",
            r"a\.csv: labels contain 'Atlantis', which is not one of the items",
        ),
        ("a.csv", "Russia,3\nChad,3\n", "labels have a tie: 'Russia' and 'Chad' are both 3; drop one"),
        ("a.csv", "item,value\nRussia,3\n", "at least 2 labelled items in one order, got 1"),
        ("a.csv", "", "at least 2 labelled items in one order, got 0"),
        ("a.csv", "Russia,3\nRussia ,2\n", "line 2: 'Russia' is labelled twice"),
        ("a.csv", "Russia,large\nChad,2\n", "line 1: the value of 'Russia' is not a number: 'large'"),
        ("a.csv", "item,value\nRussia,large\n", "line 2: the value of 'Russia' is not a number"),
        ("a.csv", "Russia,nan\nChad,2\n", "the value of 'Russia' is not a finite number"),
        ("a.csv", "Russia,3,4\n", "line 1: labels have two columns, item and value, got 3 cells"),
        ("a.csv", 'Russia,"3\n', "not a well-formed table"),
        ("a.json", "[1, 2]", "a JSON object of items and values"),
        ("a.json", '{"Russia": 1', "not JSON"),
        ("a.json", '{"Russia": 1, "Russia": 2}', "'Russia' is labelled twice"),
        ("a.json", '{"Russia": true, "Chad": 2}', "the value of 'Russia' is not a finite number: True"),
        (
            "a.txt",
            "Russia > Chad\nChad > Peru\nPeru > Russia\n",
            "cycle: Russia > Chad > Peru > Russia; drop",
        ),
        ("a.txt", "Russia > Chad > Russia\n", "labels form a cycle: Russia > Chad > Russia"),
        ("a.txt", "Russia >\n", "an order must have the form A > B or A > B > C, got 'Russia >'"),
        ("a.txt", "Russia > Chad\nPeru\n", "an order must have the form A > B or A > B > C, got 'Peru'"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, name, text, message):
    """With the file, the value and the remedy."""
    (tmp_path / name).write_text(text)
    with pytest.raises(CcrankError, match=message):
        read_labels(tmp_path / name, ITEMS)


def test_a_file_that_is_not_there(tmp_path):
    """Is said to be missing."""
    with pytest.raises(CcrankError, match="there is no file"):
        read_labels(tmp_path / "none.csv", ITEMS)


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=12))
def test_what_follows_is_drawn(pairs):
    """All that follows from the pairs, by Warshall's algorithm, and a circle is seen wherever there is one."""
    reach = np.zeros((8, 8), bool)
    for high, low in pairs:
        reach[high, low] = True
    for middle in range(8):
        reach |= reach[:, [middle]] & reach[[middle]]
    chains = [(f"item {high}", f"item {low}") for high, low in pairs]
    if reach.diagonal().any():
        with pytest.raises(CcrankError, match=r"cycle|at least 2"):
            Labels.of_chains(chains)
    else:
        expected = {(f"item {high}", f"item {low}") for high, low in zip(*np.nonzero(reach), strict=True)}
        assert all_pairs(Labels.of_chains(chains)) == expected


# How labels are weighed


@given(st.integers(0, 300), st.integers(2, 10))
@settings(max_examples=40)
def test_weights_minimise_the_loss(seed, labelled):
    """They minimise the documented loss, written out pair by pair: a step to any side makes it larger."""
    truth, routes = made(seed)
    pairs = pairs_of(truth, range(labelled))
    weights = fit_weights(routes, pairs)
    spread, count = spread_of(routes, pairs), len(routes)

    def loss(factors):
        scores = factors / count @ routes / spread
        steps = [np.log1p(np.exp(-(scores[i] - scores[j]))) for i, j in pairs]
        return (labelled - 1) * np.mean(steps) + PRIOR / 2 * np.mean((factors - 1) ** 2)

    best = weights * count
    for direction in np.eye(count):
        assert loss(best) <= min(loss(best + 1e-3 * direction), loss(best - 1e-3 * direction))


def test_without_a_prior_labels_decide():
    """A weak prior leads to scikit-learn's logistic regression of pairs; a strong one to equal weights."""
    truth, routes = made(1, items=30)
    pairs = pairs_of(truth, range(30))
    high, low = np.array(pairs).T
    differences = (routes[:, high] - routes[:, low]).T
    table = np.concatenate([differences, -differences])
    answers = np.repeat([1, 0], len(pairs))
    twin = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8).fit(table, answers).coef_[0]
    free = fit_weights(routes, pairs, prior=1e-9) / spread_of(routes, pairs)
    assert free == pytest.approx(twin, rel=1e-2)
    assert fit_weights(routes, pairs, prior=1e9) == pytest.approx(0.25, abs=1e-6)


def test_no_label_and_two_labels_stay_near_the_prior():
    """Without labels equal weights; two labels, right or wrong, never turn the order, and seldom move it far."""
    kept = []
    for seed in range(100):
        _, routes = made(seed)
        assert fit_weights(routes, []) == pytest.approx(0.25)
        for pair in ([(0, 1)], [(1, 0)]):
            weights = fit_weights(routes, pair)
            assert weights.sum() > 0
            kept.append(np.corrcoef(weights @ routes, routes.mean(axis=0))[0, 1])
    assert np.median(kept) > 0.98
    assert np.quantile(kept, 0.05) > 0.8


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9, unique=True), st.integers(0, 1))
def test_two_labels_never_turn_a_lone_route(values, first):
    """However far apart the two lie: what has only one route keeps its order."""
    route = z_scores(np.array(values))
    assert fit_weights(route[None], [(first, 1 - first)])[0] > 0.3


@pytest.mark.parametrize(("labelled", "turned"), [(2, False), (3, False), (4, True), (8, True)])
def test_four_labels_turn_a_lone_route(labelled, turned):
    """Labels spread over ten items, all of which say the opposite."""
    route = z_scores(np.arange(10.0))
    places = np.linspace(0, 9, labelled).round().astype(int)
    weights = fit_weights(route[None], [(low, high) for low in places for high in places if low < high])
    assert (weights[0] < 0) == turned


@pytest.mark.parametrize("skills", [(-1.0, -1.0, -1.0, -1.0), (-2.0,)])
def test_many_labels_turn_the_order_round(skills):
    """Routes that all have it upside down: ten labels put it right, also for items without one."""
    before, after = [], []
    for seed in range(20):
        truth, routes = made(seed, items=20, skills=skills)
        weights = fit_weights(routes, pairs_of(truth, range(10)))
        before.append(kendall_tau(routes.mean(axis=0)[10:], truth[10:]))
        after.append(kendall_tau((weights @ routes)[10:], truth[10:]))
    assert np.mean(before) < -0.4
    assert np.mean(after) > 0.4


def test_labels_find_the_route_that_knows():
    """One of four routes knows, and six labels help items that have none."""
    gains, found = [], []
    for seed in range(30):
        truth, routes = made(seed, items=20, skills=(0.0, 3.0, 0.0, 0.0))
        weights = fit_weights(routes, pairs_of(truth, range(6)))
        found.append(weights)
        gains.append(
            kendall_tau((weights @ routes)[6:], truth[6:]) - kendall_tau(routes.mean(axis=0)[6:], truth[6:])
        )
    assert np.mean(gains) > 0.1
    assert np.mean(found, axis=0).argmax() == 1


def test_pairs_are_no_more_news_than_items():
    """k items in one order count k − 1, two pairs apart 2: a chain says as much as the values it comes from."""
    assert _effective_pairs([(0, 1)]) == 1
    assert _effective_pairs([(0, 1), (2, 3)]) == 2
    assert _effective_pairs([(4, 1), (4, 9), (1, 9)]) == 2
    assert _effective_pairs([(i, j) for i in range(8) for j in range(i)]) == 7


def test_what_is_left_out_is_unseen():
    """Labels that are noise do not foretell each other, though they seem to where they are fitted; labels of one route
    among four do, better than equal weights."""
    rng = np.random.default_rng(0)
    noise, fitted, known = [], [], []
    for seed in range(10):
        truth, routes = made(seed, items=9, skills=(0.0, 3.0, 0.0, 0.0))
        parts = dict(zip("abcd", routes, strict=True))
        random = rng.permutation(9).astype(float)
        one = fit_signal_weights(parts, pairs_of(random, range(8)))
        noise.append(one.leave_one_out_tau)
        fitted.append(kendall_tau(one.scores[:8], random[:8]))
        known.append(fit_signal_weights(parts, pairs_of(truth, range(8))))
    assert abs(np.mean(noise)) < 0.25
    assert np.mean(fitted) > 0.3
    found = np.mean([one.leave_one_out_tau for one in known])
    assert found > np.mean([one.without_labels_tau for one in known]) + 0.05


def test_a_left_out_label_changes_nothing_of_its_own():
    """A pair that is tied to no other, turned round: how it is foretold turns with it, and nothing else does."""
    truth, routes = made(5)
    parts = dict(zip("abcd", routes, strict=True))
    others = pairs_of(truth, range(6))
    one, other = (fit_signal_weights(parts, [*others, pair]) for pair in ((8, 9), (9, 8)))
    weights = fit_weights(routes, others)
    sign = np.sign(weights @ (routes[:, 8] - routes[:, 9]))
    assert one.without_labels_tau != other.without_labels_tau
    alone = [_left_out(routes, [*others, pair], PRIOR)[-1] for pair in ((8, 9), (9, 8))]
    assert alone == [sign, -sign]


def test_many_labels_are_sampled():
    """Beyond 400 pairs an even sample is left out, which says the same."""
    truth, routes = made(2, items=32)
    pairs = pairs_of(truth, range(32))
    assert len(pairs) > MOST_LEFT_OUT
    assert len(_left_out(routes, pairs, PRIOR)) <= MOST_LEFT_OUT


@given(st.integers(0, 200), st.integers(2, 7))
@settings(max_examples=30)
def test_what_is_reported(seed, labelled):
    """τ without gold is Kendall's τ of equal weights over the labelled; of 3 labels leaving a pair out leaves none."""
    truth, routes = made(seed)
    found = fit_signal_weights(dict(zip("abcd", routes, strict=True)), pairs_of(truth, range(labelled)))
    mean = routes.mean(axis=0)[:labelled]
    assert found.without_labels_tau == pytest.approx(kendall_tau(mean, truth[:labelled]))
    assert found.scores == pytest.approx(found.weights @ routes)
    assert found.labelled == labelled
    if labelled <= 3:
        assert found.leave_one_out_tau == found.without_labels_tau


# As an option of auto


@pytest.mark.parametrize("context", [None, "Chad is large."])
def test_auto_takes_gold(context):
    """The order is that of the weighed parts, whatever the order of the items; details tell how it came about."""
    gold = {"Russia": 17.1, "Canada": 10.0, "Chad": 1.3, "Monaco": 0}
    found, other = (
        rank(items, "size", context=context, model=tiny_reader(), labels=gold)
        for items in (ITEMS, ITEMS[::-1])
    )
    about = found.details["labels"]
    assert set(about) == {"labelled", "leave_one_out_tau", "without_labels_tau", "weights"}
    assert about["labelled"] == 4
    parts = found.details["signals"]
    assert set(about["weights"]) == set(parts)
    total = [sum(weight * parts[name][item] for name, weight in about["weights"].items()) for item in ITEMS]
    assert found.scores == pytest.approx(total, abs=2e-3)
    assert dict(zip(found.task.items, found.scores, strict=True)) == dict(
        zip(other.task.items, other.scores, strict=True)
    )
    json.dumps(found.to_json())


def test_labels_turn_a_ranking_round():
    """Labels that say the opposite of what auto says of six items turn the order of all seven."""
    plain = rank(ITEMS, "size", model=tiny_reader())
    opposite = {item: place for place, item in enumerate(plain.items) if item != "Peru"}
    turned = rank(ITEMS, "size", model=tiny_reader(), labels=opposite)
    assert kendall_tau(turned.scores, plain.scores) < 0
    assert turned.details["labels"]["without_labels_tau"] == -1
    same = rank(ITEMS, "size", model=tiny_reader(), labels=[plain.items])
    assert kendall_tau(same.scores, plain.scores) > 0.5
    assert same.details["labels"]["without_labels_tau"] == 1


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ({"Russia": 1, "Mars": 2}, "labels contain 'Mars', which is not one of the items"),
        ({"Russia": 1}, "at least 2 labelled items"),
        ({}, "at least 2 labelled items"),
        ([("Russia", "Chad"), ("Chad", "Russia")], "cycle"),
        ({"Russia": 1, "Chad": "2"}, "'Chad' is not a finite number: '2'"),
        ({1: 1, 2: 2}, "refer to items by their texts, got 1"),
        ("labels.csv", "labels map items to values"),
        (["Russia", "Chad"], "labels map items to values"),
    ],
)
def test_bad_gold_is_refused(gold, message):
    """Before a model is asked."""
    with pytest.raises(CcrankError, match=message):
        rank(ITEMS, "size", model=tiny_reader(), labels=gold)


def test_gold_is_for_one_list_and_for_auto():
    """Several tasks or another method are refused, not silently ranked without the labels."""
    tasks = [Task(Criterion("size"), ITEMS, id=str(number)) for number in range(2)]
    with pytest.raises(CcrankError, match="one list; there are 2 tasks"):
        rank_tasks(tasks, tiny_reader(), options={"labels": {"Russia": 2, "Chad": 1}})
    with pytest.raises(CcrankError, match="poles has no option 'labels'"):
        rank(ITEMS, "size", model=tiny_reader(), method="poles", labels={"Russia": 2, "Chad": 1})
