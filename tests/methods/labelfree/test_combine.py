"""Several routes as one: which are taken, and what their agreement is worth."""

from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tiny import tiny_reader

from ccrank.criteria.exemplars import WRITTEN
from ccrank.methods.labelfree.combine import Signals, chance_of_agreement
from ccrank.methods.labelfree.signals import read_signals
from ccrank.metrics.chance import chance_tau_sd
from ccrank.metrics.order import tau_b
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import middle_and_late
from ccrank.task import Criterion, Task

SIZE = Criterion("population", poles=("small", "large"), category="country")
"""A criterion without exemplars."""
ITEMS = ("Russia", "Chad", "Peru", "Monaco")
PLAIN = Task(SIZE, ITEMS, id="plain")
WITH_CONTEXT = Task(SIZE, ITEMS, "Chad is large. Peru is small.", id="told")


def mean_taus(orders):
    """Mean τ over the pairs of K orders, (…, K, N) -> (…), by the sums of their signs."""
    routes, items = orders.shape[-2:]
    first, second = np.triu_indices(items, 1)
    signs = np.sign(orders[..., first] - orders[..., second])
    squares = (signs.sum(-2) ** 2).sum(-1) / len(first)
    return (squares - routes) / (routes * (routes - 1))


def test_the_three_moments_are_exact():
    """Over all triples of orders of 4 items (one held fixed, which changes nothing): mean, variance and skewness are
    those that the law is built on."""
    orders = np.array(list(permutations(range(4))))
    means = mean_taus(orders[np.array([(0, i, j) for i, j in product(range(24), repeat=2)])])
    pairs, variance = 3, chance_tau_sd(4) ** 2
    assert means.mean() == pytest.approx(0)
    assert means.var() == pytest.approx(variance / pairs)
    law = stats.pearson3(stats.skew(means), 0, means.std())
    for mean in (-0.2, 0.0, 0.3, 0.7):
        assert chance_of_agreement(mean, 4, 3) == pytest.approx(law.sf(mean))


@pytest.mark.parametrize(("items", "routes"), [(5, 4), (10, 2), (10, 4), (20, 4)])
def test_the_p_value_is_calibrated_for_independent_orders(items, routes):
    """Routes that know nothing, each in its own way, are below p about as often as p says, also at 1 %.

    True routes share a model and with it errors, so theirs are not independent: for them p is too hopeful.
    """
    rng = np.random.default_rng(items * routes)
    means = mean_taus(rng.random((20_000, routes, items)))
    values, place = np.unique(means.round(9), return_inverse=True)
    p_values = np.array([chance_of_agreement(value, items, routes) for value in values])[place]
    for level in (0.1, 0.05, 0.01):
        assert (p_values <= level).mean() == pytest.approx(level, rel=0.3, abs=0.002)


def test_the_p_value_is_too_hopeful_for_shared_errors():
    """Four routes that share half of their noise seem to agree far more often than 5 % of the time."""
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=(500, 1, 10)), rng.normal(size=(500, 4, 10))
    means = mean_taus(shared + own)
    assert np.mean([chance_of_agreement(mean, 10, 4) <= 0.05 for mean in means]) > 0.5


@given(st.integers(0, 1000))
def test_agreement_is_the_mean_over_pairs(seed):
    """By scipy, pair by pair; monotone changes of a route make no difference."""
    rows = np.random.default_rng(seed).normal(size=(4, 7))
    mean, p_value = Signals(dict(zip("abcd", rows, strict=True))).agreement()
    taus = [stats.kendalltau(first, second).statistic for first, second in combinations(rows, 2)]
    assert mean == pytest.approx(np.mean(taus))
    assert mean == pytest.approx(mean_taus(rows))
    assert p_value == chance_of_agreement(mean, 7, 4)
    assert Signals(dict(zip("abcd", np.exp(rows), strict=True))).agreement() == (mean, p_value)


def test_agreement_at_its_ends():
    """All alike: τ 1 and a small p. One route alone: neither is known."""
    row = np.arange(8.0)
    mean, p_value = Signals({"a": row, "b": row, "c": row}).agreement()
    assert mean == pytest.approx(1)
    assert p_value < 1e-5
    assert np.isnan(Signals({"a": row}).agreement()).all()


def test_routes_may_tie():
    """Logits of half precision tie; a route that ties in all agrees with none and breaks nothing."""
    tied, flat = np.array([0.0, 0.0, 1.0, 1.0, 2.0]), np.zeros(5)
    assert tau_b(tied, flat) == tau_b(flat, tied) == 0
    assert tau_b(tied, tied) == pytest.approx(1)
    mean, p_value = Signals({"a": tied, "b": tied, "c": flat}).agreement()
    assert mean == pytest.approx(1 / 3)
    assert 0 < p_value < 1


TEXTS = Task(
    SIZE, tuple(f"{item} is a country that lies far away from here, says the map." for item in ITEMS)
)


@pytest.mark.parametrize(
    "tasks", [[PLAIN], [WITH_CONTEXT], [TEXTS], [WITH_CONTEXT, PLAIN, WITH_CONTEXT, TEXTS]]
)
def test_which_routes_are_taken(tasks):
    """Without context poles, axis and likelihood; with one the likelihoods; for mixed tasks each its own."""
    raws, cost = read_signals(tasks, Prompter(tiny_reader()))
    prompts = 0
    for task, part in zip(tasks, [raw.signals for raw in raws], strict=True):
        asked = {"that-are", "this-is"} if task.context else {"such-as", "considered"}
        expected = asked if task.context else {"poles", "axis"} | ({"list-of"} if task is TEXTS else asked)
        assert set(part.scores) == expected
        alone = read_signals([task], Prompter(tiny_reader()))[0][0].signals
        for name, scores in part.scores.items():
            assert scores == pytest.approx(alone.scores[name], abs=1e-3)
        made_up = 0 if task.context else 4
        prompts += made_up + (0 if task.context else 4) + 2 * len(expected - {"poles", "axis"})
    assert cost.prompts == prompts


def test_parts_are_standardised_and_their_total_is_the_mean():
    """No route counts more because its numbers are large."""
    part = read_signals([PLAIN], Prompter(tiny_reader()))[0][0].signals
    for scores in part.scores.values():
        assert scores.mean() == pytest.approx(0, abs=1e-9)
        # The axis is a mean over layers and positions, standardised once more.
        assert scores.std() == pytest.approx(1)
    assert part.total() == pytest.approx(sum(part.scores.values()) / 4)


@pytest.mark.parametrize("task", [PLAIN, WITH_CONTEXT])
def test_a_model_without_head_has_the_axis_alone(task):
    """No word can be asked of it; its states still lie somewhere between the ends."""
    part = read_signals([task], Prompter(tiny_reader(headless=True)))[0][0].signals
    assert set(part.scores) == {"axis"}
    whole = read_signals([PLAIN], Prompter(tiny_reader()))[0][0].signals
    if task is PLAIN:
        assert part.scores["axis"] == pytest.approx(whole.scores["axis"], abs=1e-4)


def test_states_come_along_where_they_are_wanted():
    """For every task, with a context or without: a probe needs them all. Else only where they are read anyway."""
    tasks, depth = [WITH_CONTEXT, PLAIN], len(middle_and_late(tiny_reader().depth))
    raws, _ = read_signals(tasks, Prompter(tiny_reader()), with_states=True)
    assert [one.shape for raw in raws for one in raw.states] == [(4, depth, 32)] * 4
    assert "axis" not in raws[0].signals.scores
    assert "axis" in raws[1].signals.scores
    raws, _ = read_signals(tasks, Prompter(tiny_reader()))
    assert [raw.states is None for raw in raws] == [True, False]


def test_exemplars_count_the_more_the_less_the_others_agree():
    """A third beside signals that agree, and most where they contradict each other; without exemplars the mean."""
    rng = np.random.default_rng(0)
    written, order = rng.standard_normal(9), np.arange(9.0)
    order = (order - order.mean()) / order.std()
    agreeing = Signals({"poles": order, "axis": order, "exemplars": written})
    opposed = Signals({"poles": order, "axis": -order, "exemplars": written})
    assert agreeing.constants()[0] == pytest.approx(0.33)
    assert agreeing.total() == pytest.approx(0.33 * written + 0.67 * order)
    assert opposed.constants()[0] == pytest.approx(0.7)
    assert agreeing.agreement()[0] == pytest.approx(1)
    alone = Signals({"axis": order, "exemplars": written})
    assert 0.33 < alone.constants()[0] < 0.7


def test_written_exemplars_are_read_where_there_are_some():
    """Things for names, texts for texts, nothing for a task with a context; a task alone has the same scores."""
    requests = Task(
        Criterion("politeness"), tuple(f"Could you please send {item} the map?" for item in ITEMS)
    )
    weights = Task(Criterion("weight"), ITEMS)
    tasks = [PLAIN, weights, requests, Task(Criterion("weight"), ITEMS, "Chad is heavy.")]
    found = [raw.signals for raw in read_signals(tasks, Prompter(tiny_reader()))[0]]
    assert ["exemplars" in one.scores for one in found] == [False, True, True, False]
    for task, together in zip(tasks[1:3], found[1:3], strict=True):
        alone = read_signals([task], Prompter(tiny_reader()))[0][0].signals
        assert together.scores["exemplars"] == pytest.approx(alone.scores["exemplars"], abs=1e-3)
        assert together.scores["exemplars"].std() == pytest.approx(1)


@given(st.integers(0, 2**31 - 1), st.integers(1, 3))
def test_signals_that_cancel_leave_the_order_to_the_exemplars(seed: int, pairs: int):
    """Of two items each signal is ±1. Where as many are for as against, the last bit decides nothing."""
    rng = np.random.default_rng(seed)
    signs = rng.permutation([1.0, -1.0] * pairs)
    noise = 1 + rng.choice([-1, 0, 1], (2, len(signs), 2)) * np.finfo(float).eps
    totals = []
    for own in noise:
        rows = {
            f"signal {place}": sign * np.array([1.0, -1.0]) * one
            for place, (sign, one) in enumerate(zip(signs, own, strict=True))
        }
        totals.append(Signals({WRITTEN: np.array([1.0, -1.0]), **rows}).total())
    np.testing.assert_allclose(totals[0], totals[1], atol=1e-9)
