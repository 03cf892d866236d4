"""Aggregation against brute force and choix."""

import itertools
import math

import choix
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, special, stats

from ccrank.metrics import aggregation


def matrices(elements, smallest=2, largest=6):
    """Square matrices over 2 to 6 items."""
    return st.integers(smallest, largest).flatmap(lambda n: hnp.arrays(float, (n, n), elements=elements))


finite = matrices(st.floats(-1e280, 1e280))
# Small integers tie often; NaN is a pair that was not asked.
partial = matrices(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0, math.nan]), smallest=3)


def highest_first(scores):
    return tuple(np.argsort(-np.asarray(scores), kind="stable").tolist())


def ordered_pairs(n):
    return list(itertools.permutations(range(n), 2))


@given(st.one_of(finite, partial))
def test_win_counts_order_by_points_then_logits(margins):
    """For any margins the scores sort exactly as (points, summed logits) do, and tie where both tie."""
    n = len(margins)
    points, logits = np.zeros(n), [[] for _ in range(n)]
    for i, j in ordered_pairs(n):
        if math.isnan(margins[i, j]):
            continue
        win = 1.0 if margins[i, j] > 0 else 0.5 if margins[i, j] == 0 else 0.0
        points[i] += win
        points[j] += 1 - win
        logits[i].append(margins[i, j])
        logits[j].append(-margins[i, j])
    keys = [(points[i], math.fsum(logits[i])) for i in range(n)]
    scores = aggregation.wins_margins(margins)
    assert (np.abs(scores - points) < 0.25).all()
    for i, j in ordered_pairs(n):
        assert (scores[i] > scores[j]) == (keys[i] > keys[j])


def test_win_counts_do_not_overflow():
    """The largest floats are margins like any other: three items in a circle, one of them by twice as much."""
    huge = np.finfo(float).max
    half = huge / 2
    margins = np.array([[0, half, -huge], [-half, 0, half], [huge, -half, 0]])
    assert highest_first(aggregation.wins_margins(margins)) == (2, 1, 0)


def test_win_counts_follow_the_paper():
    """A point for each win in each order; equal points are ordered by the sum of logits."""
    # Item 0 beats 1, 1 beats 2, 2 beats 0, always by 1, but 2 beats 0 by 5: all have two points.
    margins = np.array([[0, 1, -5], [-1, 0, 1], [5, -1, 0]])
    scores = aggregation.wins_margins(margins)
    assert np.floor(scores).tolist() == [2, 2, 2]
    assert highest_first(scores) == (2, 1, 0)


@pytest.mark.parametrize("method", [aggregation.wins_margins, aggregation.mean_margins])
@given(margins=partial, random=st.randoms())
def test_items_order_does_not_matter(method, margins, random):
    """Renumbering the items renumbers the scores and does nothing else."""
    renumbered = list(range(len(margins)))
    random.shuffle(renumbered)
    np.testing.assert_allclose(method(margins[np.ix_(renumbered, renumbered)]), method(margins)[renumbered])


@given(partial)
def test_mean_margins_by_loop(margins):
    """The mean over opponents of the mean over the orders asked, as a loop computes it; 0 if never asked."""
    n = len(margins)
    expected = []
    for i in range(n):
        against = [
            np.mean(known)
            for j in range(n)
            if j != i and (known := [m for m in (margins[i, j], -margins[j, i]) if not math.isnan(m)])
        ]
        expected.append(np.mean(against) if against else 0.0)
    np.testing.assert_allclose(aggregation.mean_margins(margins), expected)


def test_mean_margins_cancel_position_bias():
    """A constant pull towards the first item leaves the mean margins as they were; win counts lose the order."""
    truth = np.array([0.3, -0.2, 0.1, -0.4])
    margins = truth[:, None] - truth[None, :]
    np.testing.assert_allclose(
        aggregation.mean_margins(margins + 5), aggregation.mean_margins(margins), atol=1e-12
    )
    assert set(np.floor(aggregation.wins_margins(margins + 5))) == {3.0}


def margins_as_pairs(margins):
    """The pairs of a matrix that were compared, and their margins."""
    asked = [(i, j) for i, j in ordered_pairs(len(margins)) if not math.isnan(margins[i, j])]
    return asked, [margins[i, j] for i, j in asked]


def test_bradley_terry_is_choix():
    """On sure answers, the same in both orders, the scores are choix's penalised and, as the prior fades, unpenalised
    fit, and there is no bias."""
    generator = np.random.default_rng(0)
    n = 12
    truth = generator.normal(size=n)
    pairs = np.array(ordered_pairs(n) * 2)
    wins = generator.random(len(pairs)) < 1 / (1 + np.exp(truth[pairs[:, 1]] - truth[pairs[:, 0]]))
    margins = np.where(wins, 40.0, -40.0)  # whose σ is 1 or 0
    pairs, margins = np.concatenate([pairs, pairs[:, ::-1]]), np.concatenate([margins, -margins])
    data = [(i, j) if win > 0 else (j, i) for (i, j), win in zip(pairs.tolist(), margins, strict=True)]

    scores, bias = aggregation.bradley_terry(n, pairs, margins)
    penalised = choix.opt_pairwise(n, data, alpha=0.05, method="BFGS", tol=1e-8)
    np.testing.assert_allclose(scores, penalised - penalised.mean(), atol=1e-5)
    assert bias == pytest.approx(0, abs=1e-6)
    unpenalised = choix.ilsr_pairwise(n, data)
    scores, _ = aggregation.bradley_terry(n, pairs, margins, prior=1e-9)
    np.testing.assert_allclose(scores, unpenalised - unpenalised.mean(), atol=1e-5)


def test_bradley_terry_minimises_its_penalised_likelihood():
    """The fit on a part of the pairs is where a general optimiser finds the minimum of the stated objective."""
    generator = np.random.default_rng(1)
    n = 6
    margins = generator.normal(0.5, 2, size=(n, n))
    margins[generator.random((n, n)) < 0.4] = np.nan
    asked, answers = margins_as_pairs(margins)

    def objective(weights):
        total = 0.15 * float(weights @ weights)
        for (i, j), answer in zip(asked, answers, strict=True):
            target = 1 / (1 + np.exp(-answer))
            z = weights[i] - weights[j] + weights[-1]
            total -= target * np.log(1 / (1 + np.exp(-z))) + (1 - target) * np.log(1 / (1 + np.exp(z)))
        return total

    found = optimize.minimize(objective, np.zeros(n + 1), options={"gtol": 1e-7}).x
    scores, bias = aggregation.bradley_terry(n, asked, answers, prior=0.3)
    np.testing.assert_allclose(scores, found[:-1], atol=1e-4)
    assert bias == pytest.approx(found[-1], abs=1e-4)


@pytest.mark.parametrize("n", [8, 700])
def test_bradley_terry_recovers_scores_and_bias(n):
    """Soft answers made by the model give its scores and bias back, from a few pairs."""
    generator = np.random.default_rng(2)
    truth = generator.normal(size=n)
    pairs = np.array([(i, (i + step) % n) for i in range(n) for step in (1, 3)])
    margins = truth[pairs[:, 0]] - truth[pairs[:, 1]] + 1.5
    scores, bias = aggregation.bradley_terry(n, pairs, margins, prior=1e-9)
    np.testing.assert_allclose(scores, truth - truth.mean(), atol=1e-3)
    assert bias == pytest.approx(1.5, abs=1e-3)


def test_bradley_terry_orders_separable_answers():
    """Answers that one order explains without exception give that order, with a gradient of 0 at the scores."""
    pairs, margins = margins_as_pairs(40 * np.subtract.outer(np.arange(10.0), np.arange(10.0)))
    scores, bias = aggregation.bradley_terry(10, pairs, margins)
    assert highest_first(scores) == tuple(range(9, -1, -1))
    chance = special.expit(scores[np.array(pairs)] @ [1, -1] + bias)
    slope = np.zeros(10)
    for place, sign in ((0, 1), (1, -1)):
        np.add.at(slope, np.array(pairs)[:, place], sign * (chance - special.expit(margins)))
    np.testing.assert_allclose(slope + 0.1 * scores, 0, atol=1e-6)


def test_bradley_terry_stands_extreme_answers():
    """An unbeaten item, huge margins and items never asked give finite scores in the right order."""
    scores, _ = aggregation.bradley_terry(4, [(0, 1), (2, 1)], [1e6, -1e6], prior=1e-3)
    assert np.isfinite(scores).all()
    assert highest_first(scores)[::3] == (0, 2)
    assert aggregation.bradley_terry(3, [], [])[0].tolist() == [0, 0, 0]


def kemeny_cost(preferences, order):
    return sum(preferences[order[q], order[p]] for p in range(len(order)) for q in range(p + 1, len(order)))


@given(matrices(st.sampled_from([0.0, 0.5, 1.0, 2.0]), largest=6))
def test_kemeny_is_optimal(preferences):
    """No order of up to 6 items costs less than the exact Kemeny order, and the cost reported is its cost."""
    order, exact = aggregation.kemeny_preferences(preferences)
    best = min(kemeny_cost(preferences, order) for order in itertools.permutations(range(len(preferences))))
    assert exact
    assert sorted(order) == list(range(len(preferences)))
    assert kemeny_cost(preferences, order) == pytest.approx(best)


def test_kemeny_search_is_near_the_optimum(monkeypatch):
    """Above the limit the order is called inexact, no single move betters it, and it costs little more: 3 % on
    average over noisy tournaments, 20 % at most."""
    excess = []
    for seed in range(30):
        generator = np.random.default_rng(seed)
        truth = generator.normal(size=12)
        noise = 2 * generator.normal(size=(12, 12))
        preferences = (truth[:, None] - truth[None, :] + noise > 0).astype(float)
        best, exact = aggregation.kemeny_preferences(preferences)
        with monkeypatch.context() as patch:
            patch.setattr(aggregation, "MAX_KEMENY_ITEMS", 2)
            found, exactly = aggregation.kemeny_preferences(preferences)
        assert (exact, exactly) == (True, False)
        cost = kemeny_cost(preferences, found)
        excess.append(cost / kemeny_cost(preferences, best) - 1)
        for item, place in itertools.product(range(12), range(12)):
            moved = [other for other in found if other != item]
            moved.insert(place, item)
            assert kemeny_cost(preferences, moved) >= cost - 1e-9
    assert min(excess) >= -1e-9
    assert max(excess) <= 0.2
    assert np.mean(excess) <= 0.03


def test_kemeny_is_exact_on_long_lists_without_large_knots():
    """A long list whose circular preferences stay within small groups is solved exactly, group by group."""
    n = 60
    lead = np.sign(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)  # later items are higher
    for start in range(0, n, 3):  # each group of three goes in a circle whose weakest link is the false one
        lead[start, start + 2], lead[start + 2, start] = 0.5, -0.5
    order, exact = aggregation.kemeny_preferences(np.maximum(lead, 0))
    assert exact
    assert order.tolist() == list(range(n - 1, -1, -1))


def test_kemeny_of_rankings_beats_every_other_order():
    """The consensus of several shuffles has the fewest disagreements with them, counted pair by pair."""
    generator = np.random.default_rng(3)
    orders = [generator.permutation(5) for _ in range(4)]
    scores = [aggregation.order_to_scores(order) for order in orders]

    def disagreements(order):
        own = aggregation.order_to_scores(order)
        return sum(
            (own[i] > own[j]) != (s[i] > s[j]) for s in scores for i, j in itertools.combinations(range(5), 2)
        )

    found = aggregation.kemeny_rankings(orders)
    assert disagreements(found) == min(map(disagreements, itertools.permutations(range(5))))


@given(st.permutations(range(7)))
def test_consensus_of_equal_orders_is_that_order(order):
    """Orders and scores invert each other, and mean rank and Kemeny give a unanimous order back."""
    assert highest_first(aggregation.order_to_scores(order)) == tuple(order)
    assert highest_first(aggregation.borda_rankings([order] * 3)) == tuple(order)
    assert aggregation.kemeny_rankings([order] * 3).tolist() == list(order)


def test_mean_rank_averages_places():
    """Mean rank is N − 1 less scipy's mean rank of the places."""
    generator = np.random.default_rng(4)
    orders = [generator.permutation(6) for _ in range(5)]
    places = np.mean([[list(order).index(i) for i in range(6)] for order in orders], axis=0)
    np.testing.assert_allclose(aggregation.borda_rankings(orders), 5 - places)


@given(partial)
def test_agreement_by_loop(margins):
    """Agreement of both orders is the share of twice-asked pairs with one winner, a 0 counting ½."""
    n = len(margins)
    alike = []
    for i, j in itertools.combinations(range(n), 2):
        there, back = margins[i, j], margins[j, i]
        if not (math.isnan(there) or math.isnan(back)):
            alike.append(0.5 if there == 0 or back == 0 else float((there > 0) == (back < 0)))
    expected = np.mean(alike) if alike else math.nan
    assert aggregation.agreement_both_orders(margins) == pytest.approx(expected, nan_ok=True)


@given(partial)
def test_circular_triads_by_enumeration(margins):
    """The number of circular triads is its mean over all ways that tied pairs may fall, over triads fully asked."""
    n = len(margins)
    net = aggregation.net_margins(margins)
    observed, triads = 0.0, 0
    for i, j, k in itertools.combinations(range(n), 3):
        edges = [net[i, j], net[j, k], net[k, i]]
        if any(math.isnan(edge) for edge in edges):
            continue
        triads += 1
        ways = itertools.product(*[(1, -1) if edge == 0 else (np.sign(edge),) for edge in edges])
        observed += float(np.mean([abs(sum(way)) == 3 for way in ways]))
    assert aggregation.circular_triads(margins) == (pytest.approx(observed), triads)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_circular_triads_over_all_tournaments(n):
    """Over all tournaments the count is Kendall & Babington Smith's, and its mean C(N, 3)/4."""
    pairs = list(itertools.combinations(range(n), 2))
    counts = []
    for signs in itertools.product((-1.0, 1.0), repeat=len(pairs)):
        margins = np.zeros((n, n))
        for (i, j), sign in zip(pairs, signs, strict=True):
            margins[i, j], margins[j, i] = sign, -sign
        wins = (margins > 0).sum(axis=1)
        observed, triads = aggregation.circular_triads(margins)
        assert observed == pytest.approx(math.comb(n, 3) - (wins * (wins - 1)).sum() / 2)
        counts.append(observed)
    assert triads == math.comb(n, 3)
    assert np.mean(counts) == pytest.approx(triads / 4)


@given(partial)
def test_a_list_of_comparisons_makes_its_matrix(margins):
    """Pairs that are in the list have their margins, all others NaN; an empty list is a matrix of NaN."""
    n = len(margins)
    pairs = [(i, j) for i, j in ordered_pairs(n) if not math.isnan(margins[i, j])]
    found = aggregation.margins_of_pairs(n, pairs, [margins[i, j] for i, j in pairs])
    for i, j in itertools.product(range(n), repeat=2):
        assert found[i, j] == margins[i, j] if (i, j) in pairs else math.isnan(found[i, j])


def test_position_bias_is_what_was_added():
    """Antisymmetric margins have no bias; a constant added to them moves the share."""
    generator = np.random.default_rng(5)
    margins = generator.normal(size=(7, 7))
    margins -= margins.T
    assert aggregation.first_share(margins) == pytest.approx(0.5)
    off_diagonal = (margins + 0.8)[~np.eye(7, dtype=bool)]
    assert aggregation.first_share(margins + 0.8) == pytest.approx((off_diagonal > 0).mean())


@pytest.mark.parametrize("seed", range(3))
def test_agreement_of_rankings_is_scipys(seed):
    """Mean pairwise τ is the mean of scipy's, and W is tied to the mean Spearman ρ by ρ̄ = (R W − 1)/(R − 1)."""
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(7) for _ in range(4)]
    scores = [aggregation.order_to_scores(order) for order in orders]
    taus = [stats.kendalltau(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    assert aggregation.mean_pairwise_tau(orders) == pytest.approx(np.mean(taus))
    rhos = [stats.spearmanr(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    assert (4 * aggregation.kendall_w(orders) - 1) / 3 == pytest.approx(np.mean(rhos))
