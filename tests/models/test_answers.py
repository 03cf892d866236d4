"""Scores of answers against brute-force sequence probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

from ccrank.models.answers import answer_tree

WORDS = 5


class Table:
    """A random model of next tokens: for each prefix a vector of logits over a vocabulary of five."""

    def __init__(self, seed):
        self.seed = seed

    def logits(self, prefix):
        return np.random.default_rng([self.seed, len(prefix), *prefix]).normal(0, 2, WORDS)

    def log_probability(self, answer):
        return sum(log_softmax(self.logits(answer[:end]))[answer[end]] for end in range(len(answer)))


def scores(answers, table, log_probabilities):
    tree = answer_tree(tuple(answers))
    return tree.scores(
        np.concatenate([table.logits(prefix)[list(words)] for prefix, words in tree.steps.items()]),
        np.array([logsumexp(table.logits(prefix)) for prefix in tree.steps]),
        log_probabilities,
    )


def prefix_free(answers):
    return not any(one != other and other[: len(one)] == one for one in answers for other in answers)


answer_lists = st.lists(
    st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=4).map(tuple),
    min_size=1,
    max_size=8,
    unique=True,
)


@settings(max_examples=40)
@given(answer_lists.filter(prefix_free), st.integers(0, 1000))
def test_scores_are_sequence_log_probabilities(answers, seed):
    """Where no candidate begins another, a score is the candidate's log-probability as a whole."""
    table = Table(seed)
    expected = [table.log_probability(answer) for answer in answers]
    np.testing.assert_allclose(scores(answers, table, True), expected, atol=1e-4)


@settings(max_examples=40)
@given(answer_lists, st.integers(0, 1000))
def test_plain_scores_differ_by_the_slots_normaliser_alone(answers, seed):
    """Scores with and without normalising differ by one number: softmax over the candidates is the same."""
    table = Table(seed)
    shift = scores(answers, table, False) - scores(answers, table, True)
    np.testing.assert_allclose(shift, logsumexp(table.logits(())), atol=1e-3)


@settings(max_examples=40)
@given(st.lists(st.integers(0, WORDS - 1), min_size=1, unique=True), st.integers(0, 1000))
def test_one_token_candidates_keep_their_logits(words, seed):
    """Candidates of one token have their plain logits as scores."""
    table = Table(seed)
    np.testing.assert_allclose(
        scores([(word,) for word in words], table, False), table.logits(())[words], rtol=1e-6
    )


@settings(max_examples=40)
@given(answer_lists, st.integers(0, 1000))
def test_candidates_exclude_one_another(answers, seed):
    """Each score is the probability of saying the candidate and then none of its longer fellows.

    Brute force over all texts of four tokens: each belongs to the longest candidate that begins it.
    """
    table = Table(seed)
    length = max(map(len, answers))
    expected = dict.fromkeys(answers, 0.0)
    for text in np.ndindex(*[WORDS] * length):
        if owners := [answer for answer in answers if text[: len(answer)] == answer]:
            expected[max(owners, key=len)] += np.exp(table.log_probability(text))
    ours = np.exp(scores(answers, table, True).astype(float))
    # Where the longer fellows take all of it, no more than a millionth is left.
    np.testing.assert_allclose(ours, [expected[answer] for answer in answers], atol=2e-6, rtol=1e-3)


def test_one_and_ten():
    """'1' and '10' together have the probability of the prefix '1'; '10' keeps its own."""
    table = Table(3)
    one, ten, two = scores([(1,), (1, 0), (2,)], table, True)
    assert np.logaddexp(one, ten) == pytest.approx(table.log_probability((1,)), abs=1e-5)
    assert ten == pytest.approx(table.log_probability((1, 0)), abs=1e-5)
    assert two == pytest.approx(table.log_probability((2,)), abs=1e-5)


def test_each_step_is_asked_for_once():
    """The tree requests each next token after each prefix once, for any candidates."""
    tree = answer_tree(((1, 2, 3), (1, 2, 4), (1,), (5,)))
    assert tree.steps == {(): (1, 5), (1,): (2,), (1, 2): (3, 4)}


def test_only_a_few_trees_are_kept():
    """A stream has other candidates in every block: their trees would fill the memory."""
    for block in range(100):
        answer_tree(tuple((block, number) for number in range(10)))
    assert answer_tree.cache_info().currsize <= 16
    assert answer_tree(((1,), (2,))) is answer_tree(((1,), (2,)))
