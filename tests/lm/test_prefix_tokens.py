"""Tokenizing a shared context once gives the tokens of the whole texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccrank.lm.prefix_tokens import WORTHWHILE, context_cut, prefix_shared_tokens
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task
from tiny import byte_tokenizer, unigram_tokenizer, word_tokenizer

STORY = "The old stone bridge is taller than the new glass tower, said most students. " * 5


@pytest.mark.parametrize("tokenizer", [byte_tokenizer(), unigram_tokenizer(), word_tokenizer()])
@given(
    story=st.text(min_size=0, max_size=40),
    items=st.lists(st.text(min_size=1, max_size=9), min_size=3, max_size=6),
)
@settings(max_examples=40)
def test_spliced_is_whole(tokenizer, story, items):
    """For any context and items, every text has the same tokens as when tokenized separately."""

    def tokenize(texts):
        return tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []

    texts = [f"{story} {STORY}\n\nIs {item} larger? Yes" for item in items] + ["no context here"]
    cut = len(story) + 1 + STORY.rstrip().rfind(" ")
    assert prefix_shared_tokens(texts, [cut] * len(items) + [0], tokenize) == tokenize(texts)


def test_the_context_is_tokenized_once():
    """Of many prompts behind one context, all but the trial are tokenized without it."""
    seen = []

    def tokenize(texts):
        seen.extend(texts)
        return byte_tokenizer()(texts, add_special_tokens=False)["input_ids"] if texts else []

    task = Task(Criterion("size"), tuple(f"item number {word}" for word in "abcdefgh"), STORY)
    prompts = [load_templates().single(task, index) for index in range(8)]
    texts = ["".join(piece.text for piece in prompt.before) for prompt in prompts]
    cuts = [context_cut(prompt.before) for prompt in prompts]
    assert min(cuts) >= WORTHWHILE
    prefix_shared_tokens(texts, cuts, tokenize)
    assert (
        sum(len(text) > WORTHWHILE for text in seen) == 2
    )  # the context itself, and one whole text as trial


def test_a_tokenizer_that_joins_across_the_cut_is_found_out():
    """Where halves do not join to the whole, whole texts are tokenized instead."""

    def tokenize(texts):
        return [[len(text)] for text in texts]  # one token for any text: halves never join

    texts = [f"{STORY}{number}" for number in range(5)]
    assert prefix_shared_tokens(texts, [250] * 5, tokenize) == tokenize(texts)


def test_short_contexts_are_left_alone():
    """A context of a few words is not worth a trial."""
    task = Task(Criterion("size"), ("a", "b"), "A few words.")
    assert context_cut(load_templates().single(task, 0).before) == 0
