"""Batches of rows, padded or packed: everything once, within budget."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccrank.lm.layout import padded_layouts, tree_layouts
from ccrank.lm.tree import shared_prefix

sequences_of_tokens = st.lists(
    st.lists(st.integers(1, 3), min_size=1, max_size=12).map(tuple), min_size=1, max_size=20
)
budgets = st.integers(1, 80)


def check_everything_once(layouts, sequences):
    members = [index for layout in layouts for index in layout.members]
    assert sorted(members) == list(range(len(sequences)))
    for layout in layouts:
        for index, places in zip(layout.members, layout.places, strict=True):
            assert tuple(layout.tokens.reshape(-1)[places]) == sequences[index]
            assert list(layout.positions.reshape(-1)[places]) == list(range(len(places)))


@settings(max_examples=40)
@given(sequences_of_tokens, budgets, st.none() | st.integers(1, 4))
def test_padded_layouts_hold_everything_once_within_budget(sequences, budget, most_rows):
    """Padded: each sequence once, no more positions than the budget unless one sequence is longer, rows as
    requested."""
    layouts = list(padded_layouts(sequences, budget, most_rows))
    check_everything_once(layouts, sequences)
    for layout in layouts:
        rows, length = layout.tokens.shape
        assert rows == 1 or rows * length <= budget
        assert most_rows is None or rows <= most_rows
        assert not layout.trees
        assert [len(sequences[index]) for index in layout.members] == list(layout.lengths)


@settings(max_examples=40)
@given(sequences_of_tokens, budgets, st.booleans())
def test_tree_layouts_hold_everything_once_within_budget(sequences, budget, one_row):
    """Trees: each sequence once; several rows never exceed the budget, a lone row only by what it shares."""
    layouts = list(tree_layouts(sequences, budget, one_row))
    check_everything_once(layouts, sequences)
    for layout in layouts:
        rows, length = layout.tokens.shape
        if rows > 1:
            assert not one_row
            assert rows * length <= budget
        else:
            members = [sequences[index] for index in layout.members]
            shared = max((shared_prefix(*pair) for pair in pairwise(members)), default=0)
            assert length <= max(budget, len(members[0]), 2 * shared)


@settings(max_examples=40)
@given(sequences_of_tokens, budgets)
def test_no_row_sees_another_and_padding_sees_itself(sequences, budget):
    """Each row's mask is that of its tree, and padding attends to itself only, so that no softmax is empty."""
    for layout in tree_layouts(sequences, budget):
        seen = layout.visible()
        assert seen.any(axis=-1).all()
        for row, tree in enumerate(layout.trees):
            size = len(tree)
            np.testing.assert_array_equal(seen[row, :size, :size], tree.mask())
            np.testing.assert_array_equal(seen[row, size:], np.eye(seen.shape[1], dtype=bool)[size:])
            assert not seen[row, :size, size:].any()


def test_many_rows_are_laid_out_as_they_come():
    """Layouts are made one by one: the first is there long before the last sequence was packed."""
    sequences = [(index, index + 1) for index in range(100_000)]
    first = next(iter(tree_layouts(sequences, 64)))
    assert len(first.members) <= 64


@pytest.mark.parametrize("layouts", [padded_layouts, tree_layouts])
def test_nothing_gives_nothing(layouts):
    """No sequences, no batches."""
    assert list(layouts([], 64)) == []
