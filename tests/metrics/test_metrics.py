"""Metrics and their chance levels, against scipy and brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ccrank.errors import CcrankError
from ccrank.metrics import chance, order, tasks

# Few distinct values, so that ties abound; infinities are scores like any other.
tied_scores = st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0, math.inf]), min_size=2, max_size=12)


def abs_taus(n: int) -> np.ndarray:
    """|τ| of every order of n items, by enumeration."""
    return np.array([order.evaluate(p, range(n)).abs_tau for p in itertools.permutations(range(n))])


@given(tied_scores, st.randoms())
def test_tau_is_scipys(scores, random):
    """Signed τ-b equals scipy's on tied and infinite scores, and is 0 where scipy finds no order at all."""
    gold = list(range(len(scores)))
    random.shuffle(gold)
    expected = stats.kendalltau(np.unique(scores, return_inverse=True)[1], gold).statistic
    assert order.kendall_tau(scores, gold) == pytest.approx(0.0 if math.isnan(expected) else expected)


@given(tied_scores)
def test_accuracy_counts_pairs(scores):
    """Accuracy is the share of pairs in gold's order, a tie counting ½: as a double loop counts them."""
    pairs = list(itertools.combinations(range(len(scores)), 2))
    right = sum(1.0 if scores[i] < scores[j] else 0.5 if scores[i] == scores[j] else 0.0 for i, j in pairs)
    assert order.evaluate(scores, range(len(scores))).accuracy == pytest.approx(right / len(pairs))


@given(tied_scores)
def test_reversing_flips_the_sign_only(scores):
    """Reversed scores negate τ and mirror accuracy; the direction-free forms do not change."""
    gold = np.arange(len(scores))
    forward, backward = order.evaluate(scores, gold), order.evaluate(-np.array(scores), gold)
    assert backward.tau == -forward.tau
    assert backward.accuracy == pytest.approx(1 - forward.accuracy)
    assert backward.abs_tau == forward.abs_tau == abs(forward.tau)
    assert backward.free_accuracy == pytest.approx(forward.free_accuracy)
    assert forward.free_accuracy >= 0.5


@pytest.mark.parametrize("distinct", [1, 5, 10_000])
def test_long_and_short_paths_agree(distinct, monkeypatch):
    """The O(N log N) path gives the very counts of the N × N path, with many ties, few, and none but ties."""
    generator = np.random.default_rng(distinct)
    scores, gold = generator.integers(distinct, size=300), generator.permutation(300)
    by_sorting = order._count_pairs(scores, gold)
    monkeypatch.setattr(order, "_MAX_MATRIX_ITEMS", 300)
    assert order._count_pairs(scores, gold) == by_sorting


def test_raw_pairs_of_a_ranking_have_its_accuracy():
    """Answers that follow one ranking have its pairwise accuracy, for any share of pairs compared twice."""
    generator = np.random.default_rng(0)
    scores, gold = generator.normal(size=9), generator.permutation(9)
    margins = scores[:, None] - scores[None, :]
    expected = order.evaluate(scores, gold).accuracy
    assert order.pair_accuracy(margins, gold) == pytest.approx(expected)
    margins[np.tril_indices(9)] = np.nan
    assert order.pair_accuracy(margins, gold) == pytest.approx(expected)


def test_raw_pairs_count_each_answer():
    """Of four answers asked, one right, one wrong, one tied and one right make 2.5 / 4; NaN is not counted."""
    nan = math.nan
    margins = [[nan, -1.0, 0.0], [-2.0, nan, nan], [nan, 3.0, nan]]
    assert order.pair_accuracy(margins, [1, 2, 3]) == pytest.approx(2.5 / 4)


@pytest.mark.parametrize("n", range(2, 8))
def test_chance_is_the_mean_over_all_orders(n):
    """E|τ|, E max(acc, 1 − acc), sd of τ and the quantiles of |τ| equal those over all n! orders."""
    values = abs_taus(n)
    assert chance.chance_abs_tau(n) == pytest.approx(values.mean())
    assert chance.chance_free_accuracy(n) == pytest.approx(((1 + values) / 2).mean())
    assert chance.chance_tau_sd(n) == pytest.approx(np.sqrt((values**2).mean()))


def test_chance_at_the_papers_sizes():
    """E|τ| is 0.39 / 0.33 / 0.29 / 0.23 / 0.20 at 4 / 5 / 6 / 8 / 10 items."""
    levels = [chance.chance_abs_tau(n) for n in (4, 5, 6, 8, 10)]
    assert np.round(levels, 2).tolist() == [0.39, 0.33, 0.29, 0.23, 0.20]


def test_law_of_tau_counts_inversions():
    """The law of τ times 20! is the integer recurrence of Mahonian numbers, to rounding."""
    counts = [1]
    for k in range(2, 21):
        counts = [sum(counts[max(0, m - k + 1) : m + 1]) for m in range(len(counts) + k - 1)]
    _, probability = chance._tau_law(20)
    np.testing.assert_allclose(probability, np.array(counts, dtype=float) / math.factorial(20), atol=1e-16)


def test_normal_law_takes_over_smoothly(monkeypatch):
    """At the switch the normal law agrees with the exact one to 0.1 % in E|τ|."""
    n = chance.MAX_EXACT_ITEMS
    exact = chance.chance_abs_tau(n)
    tau, probability = chance._tau_law(n)
    assert math.sqrt(tau**2 @ probability) == pytest.approx(chance.chance_tau_sd(n), rel=1e-9)
    monkeypatch.setattr(chance, "MAX_EXACT_ITEMS", n - 1)
    assert chance.chance_abs_tau(n) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("n", range(1, 13))
def test_chance_of_independent_pairs(n):
    """The closed form for n fair coins equals the mean over all 2ⁿ outcomes."""
    sums = [sum(coins) for coins in itertools.product((0, 1), repeat=n)]
    assert chance.chance_pair_accuracy(n) == pytest.approx(np.mean([max(k, n - k) / n for k in sums]))


def test_chance_of_many_pairs():
    """Beyond 1000 pairs the formula is continuous and approaches ½ + 1/√(2πn)."""
    assert chance.chance_pair_accuracy(1001) == pytest.approx(chance.chance_pair_accuracy(999), abs=2e-5)
    assert chance.chance_pair_accuracy(10**6) - 0.5 == pytest.approx(
        1 / math.sqrt(2 * math.pi * 10**6), rel=1e-5
    )


def test_floor_of_few_tasks_is_exact():
    """For three tasks of 3, 4 and 5 items, floor and p-values are those of all 3!·4!·5! triples of orders."""
    sizes = [4, 3, 5]
    means = np.add.outer(np.add.outer(abs_taus(4), abs_taus(3)), abs_taus(5)).ravel() / 3
    floor = chance.chance_floor(sizes)
    assert floor.mean == pytest.approx(means.mean())
    low, high = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    assert (floor.low, floor.high) == pytest.approx((low, high))
    for value in (means.min(), np.median(means), means.max()):
        assert chance.p_value_abs_tau(value, sizes) == pytest.approx((means >= value - 1e-9).mean())


def test_p_value_of_signed_mean_is_exact():
    """The two-sided p-value of a mean τ over two tasks is its share among all pairs of orders."""
    taus = [
        np.array([order.kendall_tau(p, range(n)) for p in itertools.permutations(range(n))]) for n in (4, 5)
    ]
    means = np.add.outer(*taus).ravel() / 2
    for value in (0.0, -1 / 6, 0.55, 1.0):
        expected = (np.abs(means) >= abs(value) - 1e-9).mean()
        assert chance.p_value_tau(value, [4, 5]) == pytest.approx(expected)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("sizes", [[6] * 40, [4, 7, 11, 13, 19, 23, 29] * 3, [5, 300]])
def test_laws_of_a_mean_agree(sizes, signed):
    """Exact grid, coarse grid and past-exact sizes: all agree in quantiles with drawn random orders."""
    generator = np.random.default_rng(1)
    draws = np.zeros(20_000)
    for n in sizes:
        tau, probability = chance._tau_law(n)
        tau = generator.choice(tau, size=len(draws), p=probability)
        draws += (tau if signed else np.abs(tau)) / len(sizes)
    law = chance._law_of_mean(sizes, signed)
    spread = draws.std()
    for level in (0.05, 0.3, 0.8, 0.95):
        assert law.ppf(level) == pytest.approx(np.quantile(draws, level), abs=0.05 * spread)
    value = np.quantile(draws, 0.9)
    assert law.sf(value) == pytest.approx((draws >= value - 1e-9).mean(), abs=0.01)


def test_many_tasks_go_over_to_the_normal_law():
    """One task past the convolution the floor moves by no more than the mean of one task can move it."""
    sizes = [4, 5, 6, 8] * (chance.MAX_CONVOLVED_TASKS // 4)
    exact, normal = chance.chance_floor(sizes), chance.chance_floor([*sizes, 5])
    assert not isinstance(chance._law_of_mean([*sizes, 5], signed=False), chance._Lattice)
    for side in ("mean", "low", "high"):
        assert getattr(normal, side) == pytest.approx(getattr(exact, side), abs=2e-3)


def test_random_orders_do_not_beat_chance():
    """On random orders the p-values are uniform: the nominal 10 % fall below 0.1, in either test."""
    generator = np.random.default_rng(2)
    sizes = [4, 5, 6, 7, 8] * 2
    tests = []
    for _ in range(400):
        tasks = [order.evaluate(generator.normal(size=n), np.arange(n)) for n in sizes]
        tau, abs_tau = (np.mean([getattr(task, name) for task in tasks]) for name in ("tau", "abs_tau"))
        tests.append((chance.p_value_tau(tau, sizes), chance.p_value_abs_tau(abs_tau, sizes)))
    # Two standard errors of a share of 0.1 among 400 are 0.03.
    assert (np.array(tests) < 0.1).mean(axis=0) == pytest.approx([0.1, 0.1], abs=0.03)


def test_bootstrap_interval_is_scipys():
    """The percentile interval agrees with scipy's bootstrap up to its own Monte-Carlo error."""
    values = np.random.default_rng(3).gamma(2, size=40)
    ours = tasks.mean_with_interval(values, np.random.default_rng(4))
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=10_000, method="percentile", random_state=np.random.default_rng(4)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.mean == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.04 * width)


def test_bootstrap_covers():
    """The 90 % interval of the mean of 40 values contains the true mean in about 90 % of samples."""
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        interval = tasks.mean_with_interval(generator.uniform(size=40), generator, level=0.9, resamples=400)
        held += interval.low <= 0.5 <= interval.high
    assert 0.84 <= held / 400 <= 0.94


def test_bootstrap_is_deterministic_and_unmoved_by_chunks(monkeypatch):
    """The same generator gives the same interval, also when resamples are drawn a few at a time."""
    values = np.arange(10.0)
    whole = tasks.mean_with_interval(values, np.random.default_rng(6), resamples=1001)
    monkeypatch.setattr(tasks, "_CHUNK_ENTRIES", 64)
    assert tasks.mean_with_interval(values, np.random.default_rng(6), resamples=1001) == whole


def test_groups_of_any_size_weigh_the_same():
    """The mean is that of the groups' means, and so are those of the resamples: a group of one task does not vary."""
    values = np.random.default_rng(1).normal(size=40)
    found = tasks.macro_mean_with_interval([values, [5.0]], np.random.default_rng(2), resamples=500)
    alone = tasks.mean_with_interval(values, np.random.default_rng(2), resamples=500)
    for name in ("mean", "low", "high"):
        assert getattr(found, name) == pytest.approx((getattr(alone, name) + 5.0) / 2)


def test_interval_of_one_task_is_unknown():
    """One task gives a mean but no interval."""
    estimate = tasks.mean_with_interval([0.3], np.random.default_rng(0))
    assert estimate.mean == 0.3
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)


@given(st.lists(st.sampled_from([-0.5, -0.2, 0.0, 0.1, 0.4]), min_size=1, max_size=8))
def test_paired_test_enumerates(differences):
    """With few tasks the p-value is the share of all sign flips at least as extreme, and two-sided."""
    generator = np.random.default_rng(0)
    flips = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    expected = np.mean(np.array(flips) >= abs(sum(differences)) - 1e-9)
    zeros = np.zeros(len(differences))
    result = tasks.paired_test(differences, zeros, generator, resamples=10)
    assert result.p_value == pytest.approx(expected)
    assert tasks.paired_test(zeros, differences, generator, resamples=10).p_value == result.p_value
    assert result.difference.mean == pytest.approx(np.mean(differences))


def test_paired_test_by_sampling_agrees_with_enumeration(monkeypatch):
    """Monte-Carlo flips give the enumerated p-value to two standard errors (0.01 at p = ½), and never 0."""
    generator = np.random.default_rng(9)
    a, b = generator.normal(size=14), generator.normal(size=14)
    exact = tasks.paired_test(a, b, generator)
    monkeypatch.setattr(tasks, "MAX_ENUMERATED_TASKS", 3)
    sampled = tasks.paired_test(a, b, generator)
    assert 0.02 < exact.p_value < 0.98
    assert sampled.p_value == pytest.approx(exact.p_value, abs=0.01)
    assert tasks.paired_test(a + 9, b, generator, flips=100).p_value == pytest.approx(1 / 101)


def test_paired_test_sees_a_small_steady_gain():
    """A gain hidden by the spread between tasks is found once tasks are paired."""
    generator = np.random.default_rng(8)
    difficulty = generator.normal(size=40)
    better = difficulty + 0.1 + 0.05 * generator.normal(size=40)
    result = tasks.paired_test(better, difficulty, generator)
    assert result.p_value < 0.001
    assert 0 < result.difference.low < 0.1 < result.difference.high < 0.2
    assert stats.ttest_ind(better, difficulty).pvalue > 0.3


def test_the_statistic_is_that_of_a_loop_and_p_that_of_enumeration(monkeypatch):
    """Value, expectation and p agree with loops over folds, seeds and all 2ⁿ sign flips of a few tasks."""
    generator = np.random.default_rng(5)
    tau, fold = generator.uniform(-0.4, 1, size=(2, 8)), np.array([0, 1, 2, 0, 1, 2, 0, 1])

    def statistic(values: np.ndarray) -> float:
        return float(
            np.mean([abs(np.mean(values[seed, fold == one])) for seed in range(2) for one in range(3)])
        )

    found = tasks.common_direction(tau, fold, np.random.default_rng(0))
    assert found.value == pytest.approx(statistic(tau))
    assert np.mean(found.seeds) == pytest.approx(found.value)
    flips = [statistic(tau * np.array(signs)) for signs in itertools.product([1, -1], repeat=8)]
    assert found.expected == pytest.approx(np.mean(flips))
    wanted = np.mean([one >= found.value - 1e-12 for one in flips])
    assert found.p_value == pytest.approx(wanted)
    monkeypatch.setattr(tasks, "MAX_ENUMERATED_TASKS", 3)
    sampled = tasks.common_direction(tau, fold, np.random.default_rng(0), resamples=40_000)
    assert sampled.p_value == pytest.approx(wanted, abs=0.01)
    assert sampled.expected == pytest.approx(found.expected, abs=0.005)


def test_a_common_direction_is_found_whatever_its_sign_in_each_fold():
    """Tasks of a fold that share a direction are significant, though folds and seeds disagree about its sign;
    without a common direction the value is its expectation."""
    generator = np.random.default_rng(1)
    fold = np.arange(40) % 4
    sign = np.where(generator.integers(2, size=(3, 4)) > 0, 1, -1)[:, fold]
    shared = sign * (0.25 + generator.normal(0, 0.3, size=(3, 40)))
    found = tasks.common_direction(shared, fold, generator)
    assert abs(shared.mean()) < 0.2
    assert found.value > 0.2
    assert found.p_value < 0.01
    noise = [
        tasks.common_direction(generator.normal(0, 0.4, size=(3, 40)), fold, generator, resamples=300)
        for _ in range(60)
    ]
    assert np.mean([one.value - one.expected for one in noise]) == pytest.approx(0, abs=0.01)
    assert np.mean([one.p_value for one in noise]) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: order.kendall_tau([1, 2], [1, 1]), "without ties"),
        (lambda: order.kendall_tau([1, math.nan], [1, 2]), "item 2 is NaN"),
        (lambda: order.kendall_tau([1, 2, 3], [1, 2]), "one of each per item"),
        (lambda: order.kendall_tau([1], [1]), "at least 2"),
        (lambda: order.pair_accuracy(np.full((2, 2), math.nan), [1, 2]), "no pair was compared"),
        (lambda: order.pair_accuracy(np.zeros((3, 3)), [1, 2]), "do not fit"),
        (lambda: chance.chance_abs_tau(1), "at least 2 items, got 1"),
        (lambda: chance.chance_floor([4], level=95), "got 95"),
        (lambda: tasks.common_direction([[0.1, 0.2]], [0], np.random.default_rng(0)), "fold for each task"),
        (lambda: tasks.common_direction([[0.1, math.nan]], [0, 1], np.random.default_rng(0)), "finite τ"),
        (lambda: chance.chance_pair_accuracy(0), "got 0"),
        (lambda: chance.chance_floor([]), "at least 1 task"),
        (lambda: tasks.mean_with_interval([0.1, math.nan], np.random.default_rng(0)), "task 2 is nan"),
        (lambda: tasks.paired_test([1, 2], [1], np.random.default_rng(0)), "2 and 1"),
    ],
)
def test_mistakes_are_named(call, said):
    """Errors that the user can fix are CcrankErrors with the offending value."""
    with pytest.raises(CcrankError, match=said):
        call()
