"""The prefix tree against brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ccrank.lm.tree import distinct_tokens, pack, shared_prefix

# Three letters and short lengths make shared prefixes, repeats and prefixes of one another frequent.
sequences_of_tokens = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=14
)
limits = st.tuples(st.integers(1, 40), st.none() | st.integers(1, 60))


def prefixes(sequences):
    return {sequence[:end] for sequence in sequences for end in range(1, len(sequence) + 1)}


def test_shared_prefix_by_hand():
    """What two sequences share ends at the first difference or at the shorter one's end."""
    assert shared_prefix((1, 2, 3), (1, 2, 4)) == 2
    assert shared_prefix((1, 2), (1, 2, 3)) == 2
    assert shared_prefix((), (1,)) == 0


@settings(max_examples=40)
@given(sequences_of_tokens)
def test_distinct_tokens_are_the_distinct_prefixes(sequences):
    """A perfect reader computes each distinct prefix once."""
    assert distinct_tokens(sequences) == len(prefixes(sequences))


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_every_sequence_is_in_one_row_and_spelled_by_its_path(sequences, limit):
    """Each sequence is in exactly one row; the tokens on its path are its own, and depths start at 0."""
    rows = list(pack(sequences, *limit))
    assert sorted(index for row in rows for index in row.members) == list(range(len(sequences)))
    for row in rows:
        for index, path in zip(row.members, row.nodes, strict=True):
            assert tuple(row.tokens[path]) == sequences[index]
            assert list(row.depths[path]) == list(range(len(path)))


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_mask_is_the_ancestor_relation(sequences, limit):
    """A query sees a key if and only if the key's prefix begins the query's: itself and its ancestors."""
    for row in pack(sequences, *limit):
        spelled = {}
        for index, path in zip(row.members, row.nodes, strict=True):
            for depth, place in enumerate(path):
                spelled[int(place)] = sequences[index][: depth + 1]
        # Every node is some member's prefix, and no prefix stands twice.
        assert sorted(spelled) == list(range(len(row)))
        assert len(set(spelled.values())) == len(row)
        expected = [
            [spelled[query][: len(spelled[key])] == spelled[key] for key in range(len(row))]
            for query in range(len(row))
        ]
        np.testing.assert_array_equal(row.mask(), expected)


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_rows_stay_within_their_limits(sequences, limit):
    """A row has at most `row_tokens` nodes, `most_tokens` where prefixes are long, else one sequence, else twice a
    prefix that its members share."""
    row_tokens, most_tokens = limit
    for row in pack(sequences, row_tokens, most_tokens):
        members = [sequences[index] for index in row.members]
        shared = max((shared_prefix(*pair) for pair in pairwise(members)), default=0)
        allowed = most_tokens or 0 if 4 * shared > row_tokens else 0
        assert len(row) <= max(row_tokens, allowed, len(members[0]), 2 * shared)


@settings(max_examples=40)
@given(sequences_of_tokens, limits)
def test_repeated_prefixes_cost_at_most_twice_the_least(sequences, limit):
    """What is computed again at the head of rows never exceeds what is new in them."""
    computed = sum(len(row) for row in pack(sequences, *limit))
    longest = max(map(len, sequences))
    assert computed <= 2 * distinct_tokens(sequences) + longest


def test_a_long_context_is_computed_once_per_full_row():
    """56 questions behind one context longer than a row: at most one repeat, not one per question."""
    context = tuple(range(3000))
    questions = [(*context, 9000 + first, 9100 + second) for first in range(8) for second in range(7)]
    rows = list(pack(questions, 512, 2048))
    assert sum(map(len, rows)) == distinct_tokens(questions) == 3000 + 8 + 56


def test_equal_sequences_share_their_nodes():
    """A sequence given twice costs once."""
    [row] = pack([(1, 2, 3), (1, 2, 3)], 16)
    assert len(row) == 3
    np.testing.assert_array_equal(row.nodes[0], row.nodes[1])
