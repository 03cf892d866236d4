"""The prefix tree against brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ccrank.models.engine.layout import Sorted, pack
from ccrank.models.tokenize.ragged import Ragged

# Three letters and short lengths make shared prefixes, repeats and prefixes of one another frequent.
sequences_of_tokens = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=14
)
limits = st.tuples(st.integers(1, 40), st.none() | st.integers(1, 60))


def prefixes(sequences):
    return {sequence[:end] for sequence in sequences for end in range(1, len(sequence) + 1)}


def shared_prefix(first, second):
    """How many leading tokens two sequences share."""
    return next(
        (place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other),
        min(len(first), len(second)),
    )


def rows_of(forest, sequences):
    """For each row its members in order, its tokens, and for each member the nodes of its tokens."""
    for row in range(len(forest.tokens)):
        members = [index for index in range(len(sequences)) if forest.row_of[index] == row]
        members.sort(key=lambda index: sequences[index])
        paths = {
            index: forest.columns(
                np.full(len(sequences[index]), index), np.arange(len(sequences[index]))
            ).tolist()
            for index in members
        }
        yield members, forest.tokens[row].tolist(), paths


@settings(max_examples=60)
@given(sequences_of_tokens)
def test_sorted_sequences_and_what_they_share(sequences):
    """The order is that of Python's tuples; each shares with the one before it what a comparison finds."""
    ordered = Sorted(Ragged.of(sequences))
    placed = [sequences[index] for index in ordered.order]
    assert placed == sorted(sequences)
    assert ordered.shared.tolist() == [0, *(shared_prefix(*pair) for pair in pairwise(placed))]


def test_prefixes_are_counted_in_blocks(monkeypatch):
    """Comparing few tokens at a time, to bound memory, gives the same counts."""
    generator = np.random.default_rng(0)
    sequences = [tuple(generator.integers(0, 2, generator.integers(1, 30))) for _ in range(200)]
    whole = Sorted(Ragged.of(sequences)).shared
    monkeypatch.setattr("ccrank.models.engine.layout.BLOCK", 7)
    np.testing.assert_array_equal(Sorted(Ragged.of(sequences)).shared, whole)
    assert whole.max() > 7


@settings(max_examples=40)
@given(sequences_of_tokens)
def test_distinct_tokens_are_the_distinct_prefixes(sequences):
    """A perfect reader computes each distinct prefix once."""
    assert Sorted(Ragged.of(sequences)).distinct_tokens == len(prefixes(sequences))


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_every_sequence_is_in_one_row_and_spelled_by_its_path(sequences, limit):
    """The tokens on a sequence's path are its own, and depths start at 0."""
    forest = pack(Sorted(Ragged.of(sequences)), *limit)
    depths = [
        forest.depths[start:end] for start, end in pairwise(forest.tokens.starts.tolist())
    ]  # of each row
    for row, (members, tokens, paths) in enumerate(rows_of(forest, sequences)):
        assert members
        for index in members:
            assert tuple(tokens[place] for place in paths[index]) == sequences[index]
            assert depths[row][paths[index]].tolist() == list(range(len(sequences[index])))


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_ends_are_the_ancestor_relation(sequences, limit):
    """j ≤ i < ends[j] if and only if the prefix of j begins that of i: itself and its ancestors."""
    forest = pack(Sorted(Ragged.of(sequences)), *limit)
    edges = forest.tokens.starts
    for row, (members, tokens, paths) in enumerate(rows_of(forest, sequences)):
        spelled = {}
        for index in members:
            for depth, place in enumerate(paths[index]):
                spelled[place] = sequences[index][: depth + 1]
        # Every node is some member's prefix, and no prefix stands twice.
        assert sorted(spelled) == list(range(len(tokens)))
        assert len(set(spelled.values())) == len(tokens)
        ends = forest.ends[edges[row] : edges[row + 1]]
        for query in range(len(tokens)):
            for key in range(len(tokens)):
                begins = spelled[query][: len(spelled[key])] == spelled[key]
                assert (key <= query < ends[key]) == begins


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_rows_stay_within_their_limits(sequences, limit):
    """A row has at most `row_tokens` nodes, `most_tokens` where prefixes are long, else one sequence, else twice a
    prefix that its members share."""
    row_tokens, most_tokens = limit
    forest = pack(Sorted(Ragged.of(sequences)), row_tokens, most_tokens)
    for indices, tokens, _ in rows_of(forest, sequences):
        members = [sequences[index] for index in indices]
        shared = max((shared_prefix(*pair) for pair in pairwise(members)), default=0)
        allowed = most_tokens or 0 if 4 * shared > row_tokens else 0
        assert len(tokens) <= max(row_tokens, allowed, len(members[0]), 2 * shared)


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_repeated_prefixes_cost_at_most_twice_the_least(sequences, limit):
    """What is computed again at the head of rows never exceeds what is new in them."""
    ordered = Sorted(Ragged.of(sequences))
    computed = len(pack(ordered, *limit).depths)
    assert computed <= 2 * ordered.distinct_tokens + max(map(len, sequences))


def test_a_long_context_is_computed_once_per_full_row():
    """56 questions behind one context longer than a row: at most one repeat, not one per question."""
    context = tuple(range(3000))
    questions = [(*context, 9000 + first, 9100 + second) for first in range(8) for second in range(7)]
    ordered = Sorted(Ragged.of(questions))
    assert len(pack(ordered, 512, 2048).depths) == ordered.distinct_tokens == 3000 + 8 + 56


def test_equal_sequences_share_their_nodes():
    """A sequence given twice costs once."""
    forest = pack(Sorted(Ragged.of([(1, 2, 3), (1, 2, 3)])), 16)
    assert len(forest.depths) == 3
    both = forest.columns(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2]))
    assert both.tolist() == [0, 1, 2, 0, 1, 2]
