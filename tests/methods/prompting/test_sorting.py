"""Batched sorting and random opponents."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csgraph

from ccrank.errors import CcrankError
from ccrank.methods.prompting.pairwise import quick_sort, random_opponents
from ccrank.metrics.aggregation import bradley_terry, order_to_scores
from ccrank.metrics.order import kendall_tau


def consistent(values, bias=0.0):
    """A comparator that follows values, with a pull towards the item asked first."""

    def compare(pairs):
        first, second = np.array(pairs).T
        return values[first] - values[second] + bias

    return compare


@given(st.integers(2, 60), st.integers(0, 2**32))
def test_consistent_answers_give_the_exact_order(n, seed):
    """With a transitive comparator the order is exact, and no pair is asked twice in the same order."""
    generator = np.random.default_rng(seed)
    values = generator.permutation(n).astype(float)
    result = quick_sort(n, consistent(values), generator)
    np.testing.assert_array_equal(result.order, np.argsort(-values, kind="stable"))
    assert len({tuple(pair) for pair in result.pairs.tolist()}) == len(result.margins) == len(result.pairs)
    np.testing.assert_array_equal(result.margins, values[result.pairs[:, 0]] - values[result.pairs[:, 1]])


@given(st.integers(2, 40), st.integers(0, 2**32))
def test_any_answers_give_a_permutation(n, seed):
    """Noise, ties and circular answers still end in a permutation, in at most N − 1 rounds."""
    generator = np.random.default_rng(seed)

    def compare(pairs):
        return generator.choice([-1.0, 0.0, 2.0, math.inf], size=len(pairs))

    result = quick_sort(n, compare, generator)
    assert sorted(result.order) == list(range(n))
    assert result.rounds <= n - 1


@pytest.mark.parametrize("kind", ["consistent", "first", "second", "equal", "circular", "noise"])
@pytest.mark.parametrize("n", [50, 1000])
def test_few_comparisons_in_few_rounds(n, kind):
    """Whatever the answers: at most 2 N log2 N comparisons and 5 log2 N rounds, in each of ten runs."""
    for seed in range(10):
        generator = np.random.default_rng(seed)
        tournament = np.sign(generator.normal(size=(n, n)))
        compare = {
            "consistent": consistent(generator.normal(size=n)),
            "first": lambda pairs: np.ones(len(pairs)),
            "second": lambda pairs: -np.ones(len(pairs)),
            "equal": lambda pairs: np.zeros(len(pairs)),
            "circular": lambda pairs: np.array([1.0 if (j - i) % n <= n // 2 else -1.0 for i, j in pairs]),
            "noise": lambda pairs, fixed=tournament: np.array(
                [fixed[min(p), max(p)] * (1 if p[0] < p[1] else -1) for p in pairs]
            ),
        }[kind]
        result = quick_sort(n, compare, generator)
        assert len(result.margins) <= 2 * n * math.log2(n)
        assert result.rounds <= 5 * math.log2(n)


def test_bradley_terry_undoes_a_position_bias():
    """A pull to the first place larger than any difference ruins a sort; its comparisons still have the order."""
    values = np.random.default_rng(0).normal(size=200)
    biased = consistent(values, bias=100.0)
    one = quick_sort(200, biased, np.random.default_rng(1))
    assert abs(kendall_tau(order_to_scores(one.order), values)) < 0.3
    scores, _ = bradley_terry(200, one.pairs, one.margins / 100, prior=1e-6)
    assert kendall_tau(scores, values) > 0.95


def test_sorting_is_deterministic():
    """The same generator asks the same pairs in the same batches."""
    values = np.random.default_rng(0).normal(size=50)
    runs = [quick_sort(50, consistent(values), np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].pairs, runs[1].pairs)
    other = quick_sort(50, consistent(values), np.random.default_rng(4))
    assert other.pairs.tolist() != runs[0].pairs.tolist()


@given(st.integers(2, 40), st.integers(2, 45), st.integers(0, 2**32))
def test_opponents_are_even_and_connected(n, k, seed):
    """Each item has k opponents (one more if N and k are odd), first as often as second up to 1; the graph is
    connected."""
    pairs = random_opponents(n, k, np.random.default_rng(seed))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert all(first != second for first, second in pairs)
    met = Counter(item for pair in pairs for item in pair)
    wanted = min(k, n - 1)
    assert {met[item] for item in range(n)} == {wanted + (n % 2 and wanted % 2)}
    first = Counter(pair[0] for pair in pairs)
    assert all(abs(2 * first[item] - met[item]) <= 1 for item in range(n))
    graph = np.zeros((n, n))
    graph[tuple(np.array(pairs).T)] = 1
    assert csgraph.connected_components(graph, directed=False)[0] == 1


def test_opponents_vary_with_the_generator():
    """Pairs are random: another generator draws others, the same one the same."""
    draws = [random_opponents(30, 4, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_few_opponents_suffice_for_a_good_ranking():
    """Ten random opponents and Bradley–Terry rank 300 items by noisy answers to τ > 0.8, from 3 % of the pairs."""
    generator = np.random.default_rng(5)
    values = 2 * generator.normal(size=300)
    pairs = random_opponents(300, 10, generator)
    first, second = np.array(pairs).T
    margins = values[first] - values[second] + 0.7 + generator.normal(size=len(pairs))
    scores, bias = bradley_terry(300, pairs, margins)
    assert len(pairs) == 1500
    assert kendall_tau(scores, values) > 0.8
    assert bias == pytest.approx(0.7, abs=0.2)


@pytest.mark.parametrize("opponents", [1, 0])
def test_too_few_opponents_are_refused(opponents):
    """Fewer than two leave the items unconnected; the message has the number and the remedy."""
    with pytest.raises(CcrankError, match=f"{opponents} opponents per item leave 5 .*use at least 2"):
        random_opponents(5, opponents, np.random.default_rng(0))
