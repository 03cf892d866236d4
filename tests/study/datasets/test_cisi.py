"""CISI: queries with abstracts, binary relevance and BM25 scores."""

from __future__ import annotations

import json

import pytest

from ccrank.errors import CcrankError
from ccrank.study.datasets import load_dataset


def written(tmp_path, *objects):
    (tmp_path / "cisi").mkdir()
    lines = "".join(json.dumps(one) + "\n" for one in objects)
    (tmp_path / "cisi" / "candidates.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


def made(number, **changes):
    """A stand-in for a line of the file: four abstracts, best first."""
    return {
        "id": f"cisi-{number}",
        "query": f"storms of kind {number}",
        "items": [f"a {number}", f"b {number}", f"c {number}", f"d {number}"],
        "values": [1, 0, 1, 0],
        "bm25": [4.0, 3.0, 2.0, 1.0],
        **changes,
    }


def test_what_belongs_together_stays_together(tmp_path):
    """Items are shuffled with their grades, scores and ids, which are the ranks by BM25."""
    [task] = load_dataset("cisi", written(tmp_path, made(1)))
    assert task.query == "storms of kind 1"
    assert task.items != ("a 1", "b 1", "c 1", "d 1")
    found = dict(zip(task.items, zip(task.values, task.first_stage, task.item_ids, strict=True), strict=True))
    assert found == {
        "a 1": (1.0, 4.0, "1"),
        "b 1": (0.0, 3.0, "2"),
        "c 1": (1.0, 2.0, "3"),
        "d 1": (0.0, 1.0, "4"),
    }


def test_halves_alternate(tmp_path):
    """Even places to choose on, odd ones to report; together they are all."""
    folder = written(tmp_path, *(made(number) for number in range(5)))
    ids = {
        half: [task.id for task in load_dataset("cisi", folder, half=half)]
        for half in ("all", "choose", "report")
    }
    assert ids["choose"] == ["cisi-0", "cisi-2", "cisi-4"]
    assert ids["report"] == ["cisi-1", "cisi-3"]
    assert len(ids["all"]) == 5
    with pytest.raises(CcrankError, match="half must be one of 'all', 'choose', 'report', got 'odd'"):
        load_dataset("cisi", folder, half="odd")


def test_a_repeated_abstract_is_kept_once(tmp_path):
    """At its first place, and relevant if one copy is."""
    [task] = load_dataset(
        "cisi", written(tmp_path, made(1, items=["a", "b", "c", " b "], values=[0, 0, 1, 1]))
    )
    assert sorted(zip(task.items, task.values, task.first_stage, strict=True)) == [
        ("a", 0.0, 4.0),
        ("b", 1.0, 3.0),
        ("c", 1.0, 2.0),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bm25": None}, "line 1: needs a query, values and bm25"),
        ({"bm25": [1.0]}, "line 1: .*1 first_stage for 4 items"),
        ({"query": ""}, "line 1: .*query must be a question or keywords"),
        ({"values": [1, 0, 0.5, 0]}, "grades of relevance to a query are whole numbers"),
    ],
)
def test_broken_files_are_refused(tmp_path, changes, message):
    """With the line and what is wrong in it."""
    with pytest.raises(CcrankError, match=message):
        load_dataset("cisi", written(tmp_path, made(1, **changes)))


def test_the_real_file(data_dir):
    """35 queries of 30 abstracts, two of which repeat one; each has relevant and other ones."""
    if not (data_dir / "cisi" / "candidates.jsonl").exists():
        pytest.skip("no CISI file")
    tasks = load_dataset("cisi", data_dir)
    assert (len(tasks), sum(len(task.items) for task in tasks)) == (35, 35 * 30 - 2)
    assert all(set(task.values) == {0.0, 1.0} for task in tasks)
    assert len(load_dataset("cisi", data_dir, half="report")) == 17
