"""BM25 and given scores, alone and added to query likelihood."""

from __future__ import annotations

import math
import re
import sys

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.methods.baselines import K1, B, bm25_scores
from ccrank.task import Task
from ccrank.util.zscores import z_scores

DOCUMENTS = (
    "storm rain storm coast",
    "bread flour water yeast oven",
    "rain water",
    "towers bridges",
)
TASK = Task.of_query("storm rain", DOCUMENTS, id="weather", first_stage=(1.0, 4.0, 2.0, 0.0))


def task_of(query, documents=DOCUMENTS):
    return Task.of_query(query, documents)


def plain_bm25(query, documents, others=()):
    """The formula of Lucene: Σ idf · tf / (tf + k1 (1 − b + b length / mean length))."""
    words = [re.findall(r"\w+", document) for document in (*documents, *others)]
    mean = sum(map(len, words)) / len(words)
    scores = []
    for own in words[: len(documents)]:
        total = 0.0
        for word in re.findall(r"\w+", query):
            holding = sum(word in other for other in words)
            idf = math.log(1 + (len(words) - holding + 0.5) / (holding + 0.5))
            count = own.count(word)
            total += idf * count / (count + K1 * (1 - B + B * len(own) / mean))
        scores.append(total)
    return scores


def test_bm25_is_the_formula():
    """Document frequencies and the mean length are those of all documents that are given, each once."""
    expected = plain_bm25("storm rain", DOCUMENTS)
    np.testing.assert_allclose(bm25_scores([task_of("storm rain")]), [expected], atol=1e-5)
    others = ("storm warnings tonight", "rain rain rain")
    of_all = plain_bm25("storm rain", DOCUMENTS, others)
    assert np.abs(np.subtract(of_all, expected)).max() > 0.1
    given = bm25_scores([task_of("storm rain")], (*others, others[0], DOCUMENTS[0]))
    np.testing.assert_allclose(given, [of_all], atol=1e-5)
    both = bm25_scores([task_of("storm rain"), task_of("rain", others)])
    np.testing.assert_allclose(both[0], of_all, atol=1e-5)
    np.testing.assert_allclose(both[1], plain_bm25("rain", others, DOCUMENTS), atol=1e-5)


@pytest.mark.parametrize("query", ["zebra", "?", "the", "Ω"])
def test_a_query_without_a_known_word_ties_all_documents(query):
    """Nothing is found, and nothing breaks."""
    assert bm25_scores([task_of(query)])[0].tolist() == [0.0] * 4
    assert bm25_scores([task_of("storm", ["!", "?"])])[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("method", "options", "first"),
    [
        ("query-likelihood", {"first_stage": "given"}, TASK.first_stage),
        ("query-likelihood", {"first_stage": "auto"}, TASK.first_stage),
        ("query-likelihood", {"first_stage": "bm25"}, plain_bm25("storm rain", DOCUMENTS)),
        ("query-likelihood", {}, None),
        ("auto", {}, TASK.first_stage),
        ("auto", {"first_stage": "bm25"}, plain_bm25("storm rain", DOCUMENTS)),
        ("auto", {"first_stage": "none"}, None),
    ],
)
def test_the_first_stage_is_added_with_equal_weight(method, options, first):
    """Both are Z-scored within the list and summed, and shown as signals; the order of the items does not matter."""
    [alone] = rank_tasks([TASK], tiny_reader(), "query-likelihood")
    for task, places in ((TASK, [0, 1, 2, 3]), (reversed_task(), [3, 2, 1, 0])):
        [found] = rank_tasks([task], tiny_reader(), method, options=options)
        expected = alone.scores if first is None else z_scores(alone.scores) + z_scores(np.array(first))
        np.testing.assert_allclose(found.scores, expected[places], atol=1e-4)
        assert ("signals" in found.details) == (first is not None)


def reversed_task():
    return Task.of_query(
        "storm rain", DOCUMENTS[::-1], id="weather", first_stage=(TASK.first_stage or ())[::-1]
    )


def test_the_first_stage_alone_is_a_baseline():
    """Scores that are given, BM25 where none are or where it is asked for."""
    bare = Task.of_query("storm rain", DOCUMENTS)
    found = rank_tasks([TASK, bare], tiny_reader(), "first-stage")
    assert found[0].scores.tolist() == list(TASK.first_stage or ())
    np.testing.assert_allclose(found[1].scores, plain_bm25("storm rain", DOCUMENTS), atol=1e-5)
    [computed] = rank_tasks([TASK], tiny_reader(), "first-stage", options={"source": "bm25"})
    np.testing.assert_allclose(computed.scores, found[1].scores)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("auto", {"first_stage": "tfidf"}, "first_stage='tfidf': it is one of none, auto, given, bm25"),
        (
            "query-likelihood",
            {"first_stage": "given"},
            "task 'task' has no scores of a first stage; give first_stage",
        ),
        ("first-stage", {"source": "none"}, "source='none': it is one of auto, given, bm25"),
    ],
)
def test_wrong_sources_are_refused(method, options, message):
    """The message has the value and the remedy."""
    with pytest.raises(CcrankError, match=message):
        rank_tasks([Task.of_query("storm", DOCUMENTS)], tiny_reader(), method, options=options)


def test_without_the_package_the_extra_is_named(monkeypatch):
    """bm25s is optional; the error says how to install it."""
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(CcrankError, match=r"pip install '\.\[relevance\]'"):
        bm25_scores([task_of("storm")])
