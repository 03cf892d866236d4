"""TREC run files: what is written is read back, and becomes scores of a first stage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccrank.errors import CcrankError
from ccrank.io.trec import document_ids, query_id, read_run, run_lines, with_first_stage
from ccrank.task import Criterion, Task

TASK = Task.of_query("storms", ("a", "b", "c"), id="q 1", item_ids=("d1", "d2", "d3"))
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda one: float(f"{one:.9g}"))


@given(st.lists(NUMBERS, min_size=2, max_size=9))
def test_a_run_is_read_as_it_was_written(tmp_path_factory, scores):
    """Query, documents and scores come back; the lines are ranked from 1."""
    documents = [(f"d{place}", score) for place, score in enumerate(sorted(scores, reverse=True))]
    lines = list(run_lines("a query", documents, "my tag"))
    assert [line.split()[3] for line in lines] == [str(rank) for rank in range(1, len(scores) + 1)]
    path = tmp_path_factory.mktemp("runs") / "run.txt"
    path.write_text("".join(lines), encoding="utf-8")
    assert read_run(path) == {"a_query": dict(documents)}


def test_a_run_becomes_the_first_stage(tmp_path):
    """By the ids of tasks and items; what a run lacks has its lowest score; a study's `dataset/task` is known too."""
    path = tmp_path / "run.txt"
    path.write_text("q_1 Q0 d3 1 9.5 x\nq_1 Q0 d1 2 4 x\n\nq_1 Q0 other 3 2 x\n", encoding="utf-8")
    [found] = with_first_stage([TASK], read_run(path))
    assert found.first_stage == (4.0, 2.0, 9.5)
    [found] = with_first_stage([TASK], {query_id("my set", "q 1"): {"d2": 1.0}})
    assert found.first_stage == (1.0, 1.0, 1.0)


def test_names_of_documents():
    """Own ids, else places for documents of a query, else the texts of items."""
    assert document_ids(TASK) == ["d1", "d2", "d3"]
    assert document_ids(Task.of_query("q", ("a b", "c"))) == ["1", "2"]
    assert document_ids(Task(Criterion("size"), ("a b", "a_b"))) == ["a_b", "a_b#2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 2.0\n", "line 1: a run has 6 cells"),
        ("q Q0 d 1 2 x\nq Q0 e 2 high x\n", "line 2: the score 'high' is not a finite number"),
        ("q Q0 d 1 nan x\n", "'nan' is not a finite number"),
        ("q Q0 d 1 2 x\nq Q0 d 2 1 x\n", "line 2: the document 'd' is twice"),
        ("\n", "is an empty run"),
    ],
)
def test_broken_runs_are_refused(tmp_path, text, message):
    """With the line and what is wrong in it."""
    path = tmp_path / "run.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CcrankError, match=message):
        read_run(path)


def test_runs_of_other_tasks_are_refused():
    """Neither the query nor a document is found: the message shows both sides."""
    with pytest.raises(CcrankError, match="the run has no query 'q_1'; it has 'other'"):
        with_first_stage([TASK], {"other": {"d1": 1.0}})
    with pytest.raises(CcrankError, match=r"none of its documents, 'd1', .*its documents are 'x'.*item_ids"):
        with_first_stage([TASK], {"q_1": {"x": 1.0}})
