"""Batches of rows, padded or packed: everything once, within budget."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccrank.models.engine.layout import ROW_TOKENS, Layout, Sorted, pack
from ccrank.models.engine.tree_masks import visible
from ccrank.models.tokenize.ragged import Ragged
from models.test_tree import shared_prefix

sequences_of_tokens = st.lists(
    st.lists(st.integers(1, 3), min_size=1, max_size=12).map(tuple), min_size=1, max_size=20
)
budgets = st.integers(1, 80)


def tree_layout(sequences, budget):
    return pack(Sorted(Ragged.of(sequences)), min(ROW_TOKENS, budget), budget)


def padded_layout(sequences, budget):
    return Layout(Ragged.of(sequences), np.arange(len(sequences)))


def check_everything_once(layout, batches, sequences):
    """Each row is in one batch, and each sequence is spelled by the places of its tokens."""
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(layout.tokens)))
    row_of = layout.row_of
    for batch in batches:
        for place, row in enumerate(batch.rows):
            for index in np.flatnonzero(row_of == row):
                length = len(sequences[index])
                columns = layout.columns(np.full(length, index), np.arange(length))
                assert tuple(batch.tokens[place, columns]) == sequences[index]
                assert list(batch.positions[place, columns]) == list(range(length))


@settings(max_examples=40)
@given(sequences_of_tokens, budgets, st.none() | st.integers(1, 4))
def test_padded_layouts_hold_everything_once_within_budget(sequences, budget, most_rows):
    """Padded: each sequence once, no more positions than the budget unless one sequence is longer, rows as
    requested."""
    layout = padded_layout(sequences, budget)
    batches = list(layout.batches(budget, most_rows))
    check_everything_once(layout, batches, sequences)
    for batch in batches:
        rows, length = batch.tokens.shape
        assert rows == 1 or rows * length <= budget
        assert most_rows is None or rows <= most_rows
        assert batch.ends is None
        assert [len(sequences[index]) for index in batch.rows] == list(batch.lengths)


@settings(max_examples=40)
@given(sequences_of_tokens, budgets, st.none() | st.integers(1, 4))
def test_tree_layouts_hold_everything_once_within_budget(sequences, budget, most_rows):
    """Trees: each sequence once; several rows never exceed the budget, a lone row only by what it shares."""
    layout = tree_layout(sequences, budget)
    batches = list(layout.batches(budget, most_rows))
    check_everything_once(layout, batches, sequences)
    row_of = layout.row_of
    for batch in batches:
        rows, length = batch.tokens.shape
        assert most_rows is None or rows <= most_rows
        if rows > 1:
            assert rows * length <= budget
        else:
            members = sorted(sequences[index] for index in np.flatnonzero(row_of == batch.rows[0]))
            shared = max((shared_prefix(*pair) for pair in pairwise(members)), default=0)
            assert length <= max(budget, len(members[0]), 2 * shared)


@settings(max_examples=40)
@given(sequences_of_tokens, budgets)
def test_no_sequence_sees_another_and_padding_sees_itself(sequences, budget):
    """A query sees exactly its own prefix, and padding attends to itself only, so that no softmax is empty."""
    layout = tree_layout(sequences, budget)
    row_of = layout.row_of
    for batch in layout.batches(budget):
        seen = visible(torch.as_tensor(batch.ends)).numpy()
        for place, row in enumerate(batch.rows):
            length = batch.lengths[place]
            expected = np.eye(seen.shape[1], dtype=bool)
            for index in np.flatnonzero(row_of == row):
                count = len(sequences[index])
                path = layout.columns(np.full(count, index), np.arange(count))
                for position in range(count):
                    expected[path[position], path[: position + 1]] = True
            np.testing.assert_array_equal(seen[place], expected)
            assert not seen[place, :length, length:].any()


def test_many_rows_are_laid_out_as_they_come():
    """Batches are made one by one: the first is small, however many sequences there are."""
    sequences = [(index, index + 1) for index in range(20_000)]
    first = next(iter(tree_layout(sequences, 64).batches(64)))
    assert first.tokens.size <= 64


@pytest.mark.parametrize("layout", [padded_layout, tree_layout])
def test_nothing_gives_nothing(layout):
    """No sequences, no batches."""
    assert list(layout([], 64).batches(64)) == []
