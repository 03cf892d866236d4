"""Passages: they cover a document, fit, and overlap."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_reader

from ccrank.methods.query_likelihood import passages


def words(texts):
    return [len(text.split()) for text in texts]


@given(st.integers(1, 300), st.integers(4, 60))
def test_passages_cover_the_document_and_fit(count, most):
    """Every word is in a passage, in order, none is longer than allowed, and neighbours share about a quarter."""
    text = " ".join(f"w{place}" for place in range(count))
    found = passages(text, most, words)
    assert all(len(own.split()) <= most for own in found)
    places = [[int(word[1:]) for word in own.split()] for own in found]
    assert sorted({place for own in places for place in own}) == list(range(count))
    assert all(own == list(range(own[0], own[-1] + 1)) for own in places)
    for earlier, later in itertools.pairwise(places):
        shared = earlier[-1] - later[0] + 1
        assert most // 4 - 1 <= shared <= most // 4 + 1
        assert later[0] > earlier[0]


def test_a_short_document_is_one_passage():
    """It is neither cut nor counted: no tokenizer makes more tokens than bytes."""

    def never(texts):
        raise AssertionError("a short text is not counted")

    assert passages("  a short text ", 20, never) == ["a short text"]


@pytest.mark.parametrize(
    "text", ["字" * 400, "x" * 3000, "a\n\n b\t" * 300, "é " * 500, "a" + "\n" * 999 + "b c" * 99]
)
def test_passages_of_any_script_fit_the_model(text):
    """Text without white space is cut by characters; passages have the tokens that were allowed."""
    count = tiny_reader().count_tokens
    found = passages(text, 64, count)
    assert len(found) > 1
    assert all(1 <= own <= 64 + 4 for own in count(found))
    kept = "".join("".join(own.split()) for own in found)
    assert set(kept) == set("".join(text.split()))
    assert len(kept) >= len("".join(text.split()))
