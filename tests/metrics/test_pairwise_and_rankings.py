"""Aggregation against brute force and choix."""

import itertools
import math

import choix
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, stats

from ccrank.errors import CcrankError
from ccrank.metrics import pairwise, rankings


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
    scores = pairwise.wins_margins(margins)
    assert (np.abs(scores - points) < 0.25).all()
    for i, j in ordered_pairs(n):
        assert (scores[i] > scores[j]) == (keys[i] > keys[j])


def test_win_counts_do_not_overflow():
    """The largest floats are margins like any other: three items in a circle, one of them by twice as much."""
    huge = np.finfo(float).max
    half = huge / 2
    margins = np.array([[0, half, -huge], [-half, 0, half], [huge, -half, 0]])
    assert highest_first(pairwise.wins_margins(margins)) == (2, 1, 0)


def test_win_counts_follow_the_paper():
    """A point for each win in each order; equal points are ordered by the sum of logits."""
    # Item 0 beats 1, 1 beats 2, 2 beats 0, always by 1, but 2 beats 0 by 5: all have two points.
    margins = np.array([[0, 1, -5], [-1, 0, 1], [5, -1, 0]])
    scores = pairwise.wins_margins(margins)
    assert np.floor(scores).tolist() == [2, 2, 2]
    assert highest_first(scores) == (2, 1, 0)


@pytest.mark.parametrize("method", [pairwise.wins_margins, pairwise.mean_margins])
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
    np.testing.assert_allclose(pairwise.mean_margins(margins), expected)


def test_mean_margins_cancel_position_bias():
    """A constant pull towards the first item leaves the mean margins as they were; win counts lose the order."""
    truth = np.array([0.3, -0.2, 0.1, -0.4])
    margins = truth[:, None] - truth[None, :]
    np.testing.assert_allclose(pairwise.mean_margins(margins + 5), pairwise.mean_margins(margins), atol=1e-12)
    assert set(np.floor(pairwise.wins_margins(margins + 5))) == {3.0}


def test_bradley_terry_is_choix():
    """On hard outcomes without bias the scores are choix's penalised and, as the prior fades, unpenalised fit."""
    generator = np.random.default_rng(0)
    n = 12
    truth = generator.normal(size=n)
    pairs = np.array(ordered_pairs(n) * 3)
    wins = generator.random(len(pairs)) < 1 / (1 + np.exp(truth[pairs[:, 1]] - truth[pairs[:, 0]]))
    data = [(i, j) if win else (j, i) for (i, j), win in zip(pairs.tolist(), wins, strict=True)]
    margins = np.where(wins, 1.0, -1.0)

    def fit(prior):
        return pairwise.bradley_terry_pairs(n, pairs, margins, position_bias=False, prior=prior, soft=False)

    penalised = choix.opt_pairwise(n, data, alpha=0.05, method="BFGS", tol=1e-8)
    np.testing.assert_allclose(fit(0.1).scores, penalised - penalised.mean(), atol=1e-5)
    unpenalised = choix.ilsr_pairwise(n, data)
    np.testing.assert_allclose(fit(1e-9).scores, unpenalised - unpenalised.mean(), atol=1e-5)
    assert fit(0.1).position_bias == 0


@pytest.mark.parametrize("soft", [True, False])
def test_bradley_terry_minimises_its_penalised_likelihood(soft):
    """The fit on a part of the pairs is where a general optimiser finds the minimum of the stated objective."""
    generator = np.random.default_rng(1)
    n = 6
    margins = generator.normal(0.5, 2, size=(n, n))
    margins[generator.random((n, n)) < 0.4] = np.nan
    asked = [(i, j) for i, j in ordered_pairs(n) if not np.isnan(margins[i, j])]

    def objective(weights):
        total = 0.15 * float(weights @ weights)
        for i, j in asked:
            target = 1 / (1 + np.exp(-margins[i, j])) if soft else float(margins[i, j] > 0)
            z = weights[i] - weights[j] + weights[-1]
            total -= target * np.log(1 / (1 + np.exp(-z))) + (1 - target) * np.log(1 / (1 + np.exp(z)))
        return total

    found = optimize.minimize(objective, np.zeros(n + 1), options={"gtol": 1e-7}).x
    fitted = pairwise.bradley_terry_margins(margins, prior=0.3, soft=soft)
    np.testing.assert_allclose(fitted.scores, found[:-1], atol=1e-4)
    assert fitted.position_bias == pytest.approx(found[-1], abs=1e-4)


@pytest.mark.parametrize("n", [8, 700])
def test_bradley_terry_recovers_scores_and_bias(n):
    """Soft answers made by the model give its scores and bias back, densely or sparsely solved, from a few pairs."""
    generator = np.random.default_rng(2)
    truth = generator.normal(size=n)
    pairs = np.array([(i, (i + step) % n) for i in range(n) for step in (1, 3)])
    margins = truth[pairs[:, 0]] - truth[pairs[:, 1]] + 1.5
    assert (n > pairwise._MAX_DENSE_ITEMS) == (n == 700)
    fitted = pairwise.bradley_terry_pairs(n, pairs, margins, prior=1e-9)
    np.testing.assert_allclose(fitted.scores, truth - truth.mean(), atol=1e-3)
    assert fitted.position_bias == pytest.approx(1.5, abs=1e-3)
    # Left out, the bias is not pressed into the scores: each item is first as often as second.
    assert pairwise.bradley_terry_pairs(n, pairs, margins, position_bias=False).position_bias == 0


def test_dense_and_sparse_newton_agree(monkeypatch):
    """Conjugate gradients on the sparse Hessian find what the dense solve finds, on separable data too."""
    margins = np.subtract.outer(np.arange(10.0), np.arange(10.0))
    dense = pairwise.bradley_terry_margins(margins, soft=False)
    monkeypatch.setattr(pairwise, "_MAX_DENSE_ITEMS", 1)
    np.testing.assert_allclose(
        pairwise.bradley_terry_margins(margins, soft=False).scores, dense.scores, atol=1e-7
    )
    assert highest_first(dense.scores) == tuple(range(9, -1, -1))


def test_bradley_terry_stands_extreme_answers():
    """An unbeaten item, huge margins and items never asked give finite scores in the right order."""
    margins = np.full((4, 4), np.nan)
    margins[0, 1] = 1e6
    margins[2, 1] = -1e6
    fitted = pairwise.bradley_terry_margins(margins, prior=1e-3)
    assert np.isfinite(fitted.scores).all()
    assert highest_first(fitted.scores)[::3] == (0, 2)
    empty = pairwise.bradley_terry_margins(np.full((3, 3), np.nan))
    assert empty.scores.tolist() == [0, 0, 0]


def kemeny_cost(preferences, order):
    return sum(preferences[order[q], order[p]] for p in range(len(order)) for q in range(p + 1, len(order)))


@given(matrices(st.sampled_from([0.0, 0.5, 1.0, 2.0]), largest=6))
def test_kemeny_is_optimal(preferences):
    """No order of up to 6 items costs less than the exact Kemeny order, and the cost reported is its cost."""
    result = rankings.kemeny_preferences(preferences)
    best = min(kemeny_cost(preferences, order) for order in itertools.permutations(range(len(preferences))))
    assert result.exact
    assert sorted(result.order) == list(range(len(preferences)))
    assert result.cost == pytest.approx(best)
    assert kemeny_cost(preferences, result.order) == pytest.approx(best)


def test_kemeny_search_is_near_the_optimum(monkeypatch):
    """Above the limit the order is called inexact, no single move betters it, and it costs little more: 3 % on
    average over noisy tournaments, 20 % at most."""
    excess = []
    for seed in range(30):
        generator = np.random.default_rng(seed)
        truth = generator.normal(size=12)
        noise = 2 * generator.normal(size=(12, 12))
        preferences = (truth[:, None] - truth[None, :] + noise > 0).astype(float)
        exact = rankings.kemeny_preferences(preferences)
        with monkeypatch.context() as patch:
            patch.setattr(rankings, "MAX_KEMENY_ITEMS", 2)
            found = rankings.kemeny_preferences(preferences)
        assert (exact.exact, found.exact) == (True, False)
        excess.append(found.cost / exact.cost - 1)
        for item, place in itertools.product(range(12), range(12)):
            moved = [other for other in found.order if other != item]
            moved.insert(place, item)
            assert kemeny_cost(preferences, moved) >= found.cost - 1e-9
    assert min(excess) >= -1e-9
    assert max(excess) <= 0.2
    assert np.mean(excess) <= 0.03


def test_kemeny_is_exact_on_long_lists_without_large_knots():
    """A long list whose circular preferences stay within small groups is solved exactly, group by group."""
    n = 60
    lead = np.sign(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)  # later items are higher
    for start in range(0, n, 3):  # each group of three goes in a circle whose weakest link is the false one
        lead[start, start + 2], lead[start + 2, start] = 0.5, -0.5
    result = rankings.kemeny_preferences(np.maximum(lead, 0))
    assert result.exact
    assert result.order == tuple(range(n - 1, -1, -1))
    assert result.cost == pytest.approx(0.5 * n / 3)


def test_kemeny_of_rankings_beats_every_other_order():
    """The consensus of several shuffles has the fewest disagreements with them, counted pair by pair."""
    generator = np.random.default_rng(3)
    orders = [generator.permutation(5) for _ in range(4)]
    scores = [rankings.order_to_scores(order) for order in orders]

    def disagreements(order):
        own = rankings.order_to_scores(order)
        return sum(
            (own[i] > own[j]) != (s[i] > s[j]) for s in scores for i, j in itertools.combinations(range(5), 2)
        )

    result = rankings.kemeny_rankings(orders)
    assert (
        result.cost
        == disagreements(result.order)
        == min(map(disagreements, itertools.permutations(range(5))))
    )


@given(st.permutations(range(7)))
def test_consensus_of_equal_orders_is_that_order(order):
    """Orders and scores invert each other, and mean rank and Kemeny give a unanimous order back."""
    assert highest_first(rankings.order_to_scores(order)) == tuple(order)
    assert highest_first(rankings.borda_rankings([order] * 3)) == tuple(order)
    assert rankings.kemeny_rankings([order] * 3).order == tuple(order)


def test_mean_rank_averages_places():
    """Mean rank is N − 1 less scipy's mean rank of the places."""
    generator = np.random.default_rng(4)
    orders = [generator.permutation(6) for _ in range(5)]
    places = np.mean([[list(order).index(i) for i in range(6)] for order in orders], axis=0)
    np.testing.assert_allclose(rankings.borda_rankings(orders), 5 - places)


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
    assert pairwise.agreement_both_orders(margins) == pytest.approx(expected, nan_ok=True)


@given(partial)
def test_circular_triads_by_enumeration(margins):
    """The number of circular triads is its mean over all ways that tied pairs may fall, over triads fully asked."""
    n = len(margins)
    net = pairwise.net_margins(margins)
    observed, triads = 0.0, 0
    for i, j, k in itertools.combinations(range(n), 3):
        edges = [net[i, j], net[j, k], net[k, i]]
        if any(math.isnan(edge) for edge in edges):
            continue
        triads += 1
        ways = itertools.product(*[(1, -1) if edge == 0 else (np.sign(edge),) for edge in edges])
        observed += float(np.mean([abs(sum(way)) == 3 for way in ways]))
    found = pairwise.circular_triads(margins)
    assert found.observed == pytest.approx(observed)
    assert found.triads == triads
    assert found.expected == triads / 4


@pytest.mark.parametrize("n", [3, 4, 5])
def test_circular_triads_over_all_tournaments(n):
    """Over all tournaments the count is Kendall & Babington Smith's, its mean C(N, 3)/4, and ζ spans 0 to 1."""
    pairs = list(itertools.combinations(range(n), 2))
    counts, coefficients = [], []
    for signs in itertools.product((-1.0, 1.0), repeat=len(pairs)):
        margins = np.zeros((n, n))
        for (i, j), sign in zip(pairs, signs, strict=True):
            margins[i, j], margins[j, i] = sign, -sign
        wins = (margins > 0).sum(axis=1)
        found = pairwise.circular_triads(margins)
        assert found.observed == pytest.approx(math.comb(n, 3) - (wins * (wins - 1)).sum() / 2)
        counts.append(found.observed)
        coefficients.append(found.coefficient)
    assert np.mean(counts) == pytest.approx(found.expected) == pytest.approx(math.comb(n, 3) / 4)
    assert (min(coefficients), max(coefficients)) == (0, 1)
    assert pairwise.most_circular_triads(n) == max(counts)


@given(partial)
def test_a_list_of_comparisons_makes_its_matrix(margins):
    """Pairs that are in the list have their margins, all others NaN; an empty list is a matrix of NaN."""
    n = len(margins)
    pairs = [(i, j) for i, j in ordered_pairs(n) if not math.isnan(margins[i, j])]
    found = pairwise.margins_of_pairs(n, pairs, [margins[i, j] for i, j in pairs])
    for i, j in itertools.product(range(n), repeat=2):
        assert found[i, j] == margins[i, j] if (i, j) in pairs else math.isnan(found[i, j])


def test_coefficient_is_unknown_when_pairs_are_missing():
    """ζ needs all pairs: its maximum is not known otherwise."""
    margins = np.ones((4, 4))
    assert not math.isnan(pairwise.circular_triads(margins).coefficient)
    margins[0, 1] = margins[1, 0] = np.nan
    assert math.isnan(pairwise.circular_triads(margins).coefficient)


def test_position_bias_is_what_was_added():
    """Antisymmetric margins have no bias; a constant added to them moves the share."""
    generator = np.random.default_rng(5)
    margins = generator.normal(size=(7, 7))
    margins -= margins.T
    assert pairwise.first_share(margins) == pytest.approx(0.5)
    off_diagonal = (margins + 0.8)[~np.eye(7, dtype=bool)]
    assert pairwise.first_share(margins + 0.8) == pytest.approx((off_diagonal > 0).mean())


@pytest.mark.parametrize("seed", range(3))
def test_agreement_of_rankings_is_scipys(seed):
    """Mean pairwise τ is the mean of scipy's, and W is tied to the mean Spearman ρ by ρ̄ = (R W − 1)/(R − 1)."""
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(7) for _ in range(4)]
    scores = [rankings.order_to_scores(order) for order in orders]
    taus = [stats.kendalltau(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    assert rankings.mean_pairwise_tau(orders) == pytest.approx(np.mean(taus))
    rhos = [stats.spearmanr(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    assert (4 * rankings.kendall_w(orders) - 1) / 3 == pytest.approx(np.mean(rhos))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pairwise.wins_margins(np.zeros((2, 3))), r"\(2, 3\)"),
        (lambda: pairwise.mean_margins([[0, math.inf], [0, 0]]), "item 1 over item 2 is infinite"),
        (lambda: pairwise.bradley_terry_margins(np.zeros((2, 2)), prior=0), "prior must be above 0"),
        (lambda: pairwise.bradley_terry_pairs(2, [(0, 2)], [1.0]), r"0\.\.1"),
        (lambda: pairwise.bradley_terry_pairs(2, [(0, 1)], [1.0, 2.0]), "got 2"),
        (lambda: rankings.kemeny_preferences(np.zeros(3)), "square"),
        (lambda: rankings.borda_rankings([[0, 1], [1, 1]]), r"ranking 2 .*\[1, 1\]"),
        (lambda: rankings.borda_rankings([[0, 1], [0, 1, 2]]), "lengths differ"),
        (lambda: pairwise.first_share(np.full((2, 2), math.nan)), "no pair was compared"),
        (lambda: rankings.mean_pairwise_tau([[0, 1]]), "at least 2 rankings"),
        (lambda: rankings.kendall_w([[0]]), "at least 2 items"),
    ],
)
def test_mistakes_are_named(call, said):
    """Errors that the user can fix are CcrankErrors with the offending value."""
    with pytest.raises(CcrankError, match=said):
        call()
