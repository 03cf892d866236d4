"""The first pass over a file: blocks and a sample."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ccrank.jobs.passes import scan

ITEMS = [f"item {number}" for number in range(300)]


def in_lists(texts, size=7):
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def test_the_sample_does_not_depend_on_the_order_of_rows():
    """Any order of the rows, and repeated rows, give the same sample; of two spellings the first in order is taken."""
    expected = scan(in_lists(ITEMS), 40).sample
    assert len(expected) == 40
    generator = np.random.default_rng(0)
    for _ in range(5):
        shuffled = [ITEMS[place] for place in generator.permutation(300)]
        assert scan(in_lists([*shuffled, *shuffled[:50]]), 40).sample == expected
    again = [f"  {item.replace(' ', '  ')}" for item in ITEMS]
    assert scan(in_lists([*again, *ITEMS]), 40).sample == tuple(
        min(one, f"  {one.replace(' ', '  ')}") for one in expected
    )


def test_the_sample_is_uniform_over_different_items():
    """Over many files every item is sampled about as often, however often it is repeated in its file."""
    seen = Counter()
    for number in range(200):
        names = [f"{number} {letter}" for letter in "abcdefghij"]
        rows = [name for place, name in enumerate(names) for _ in range(1 + 5 * (place % 2))]
        seen.update(one[-1] for one in scan(in_lists(rows), 5).sample)
    assert sum(seen.values()) == 1000
    assert all(70 <= seen[letter] <= 130 for letter in "abcdefghij")


def test_a_sample_that_has_everything_says_so():
    """Complete if and only if no different item was left out; items that must be in it always are."""
    assert scan(in_lists(ITEMS), 300).complete
    assert not scan(in_lists(ITEMS), 299).complete
    assert scan(in_lists(ITEMS * 3), 300).complete
    few = scan(in_lists(ITEMS), 10, always={"item 7", "item 250", "elsewhere"})
    assert {"item 7", "item 250"} <= set(few.sample)
    assert len(few.sample) <= 12


def test_blocks_end_after_rows_or_characters():
    """Every row is in one block; a block has at most the given rows, and ends with the row that reaches the
    characters."""
    texts = ["x" * 10, None, "y" * 30, "z", "z", None, "w" * 100, "v"]
    found = scan([texts], 100, block_rows=3, block_characters=40)
    assert found.blocks == (3, 3, 1, 1)
    assert (found.rows, found.items) == (8, 6)
    assert scan([texts], 100, block_rows=100, block_characters=35).blocks == (3, 4, 1)
