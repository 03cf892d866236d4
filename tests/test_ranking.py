"""The result: its order, its JSON form, and the canonical order of items."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccrank.confidence import Confidence
from ccrank.criteria.understanding import criterion_of
from ccrank.ranking import Ranking, canonical, finite, from_canonical
from ccrank.task import Criterion, Task

ITEMS = ("b", "a", "d", "c")


def ranking(scores, items=ITEMS, **fields):
    task = Task(Criterion("size", poles=("small", "large")), items, id="four")
    return Ranking(task, np.asarray(scores, float), "prompt-pair", "fake", True, **fields)


def test_best_first_and_ties_by_text():
    """Equal scores are ordered by text, for any input order."""
    assert ranking([1, 1, 2, 1]).items == ("d", "a", "b", "c")
    assert ranking([1, 1, 2, 1]).order == (2, 1, 0, 3)


def test_json_form():
    """The keys that users build on, the items best first."""
    found = ranking([0.5, 2, 1, 0], consistency={"both_orders_agree": 0.75}).to_json()
    assert found["criterion"] == {"name": "size", "poles": ["small", "large"]}
    assert (found["task"], found["model"], found["method"], found["directed"]) == (
        "four",
        "fake",
        "prompt-pair",
        True,
    )
    assert found["items"] == [
        {"rank": 1, "item": "a", "score": 2.0},
        {"rank": 2, "item": "d", "score": 1.0},
        {"rank": 3, "item": "b", "score": 0.5},
        {"rank": 4, "item": "c", "score": 0.0},
    ]
    assert found["consistency"] == {"both_orders_agree": 0.75}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_top_and_reverse():
    """The first K of what is shown; ranks stay what they are."""
    rows = ranking([0.5, 2, 1, 0]).to_json(top=2, reverse=True)["items"]
    assert [(row["rank"], row["item"]) for row in rows] == [(4, "c"), (3, "b")]
    assert [row["item"] for row in ranking([0.5, 2, 1, 0]).to_json(top=9)["items"]] == ["a", "d", "b", "c"]


def test_json_has_no_nan():
    """What cannot be known is null."""
    found = ranking([0, 1, 2, 3], consistency={"both_orders_agree": float("nan")}).to_json()
    assert found["consistency"] == {"both_orders_agree": None}
    assert finite(float("inf")) is None


@given(st.permutations(["Ärger", "b", "a", "ａ1", "Z", "10", "9"]), st.data())
def test_canonical_and_back(items, data):
    """The canonical task is the same for any order of the items, and scores find their way back."""
    values = {item: float(place) for place, item in enumerate(sorted(items))}
    task = Task(Criterion("size"), tuple(items), "context", tuple(values[i] for i in items), "id", {"k": 1})
    same, order = canonical(task)
    assert (
        same
        == canonical(
            Task(
                task.criterion, tuple(sorted(items)), "context", tuple(values[i] for i in sorted(items)), "id"
            )
        )[0]
    )
    assert same.about == task.about
    assert [task.items[index] for index in order] == list(same.items)
    back = from_canonical([values[item] for item in same.items], order)
    assert back.tolist() == [values[item] for item in items]


def test_a_ranking_is_a_sequence_of_items():
    """Length, iteration and a short repr are those of the items, best first; equality is that of the scores."""
    task = Task(Criterion("size"), ("Chad", "Russia", "<b>Peru</b>"), values=(1.0, 3.0, 2.0))
    ranking = Ranking(task, np.array([0.1, 2.0, 1.0]), "auto", "default", True)
    assert len(ranking) == 3
    assert list(ranking) == ["Russia", "<b>Peru</b>", "Chad"]
    assert repr(ranking) == "<Ranking by size: Russia > <b>Peru</b> > Chad>"
    assert ranking == Ranking(task, np.array([0.1, 2.0, 1.0]), "auto", "default", True)
    assert ranking != Ranking(task, np.array([0.1, 2.0, 1.5]), "auto", "default", True)
    assert ranking != "Russia"
    assert len({ranking, Ranking(task, np.array([0.1, 2.0, 1.0]), "auto", "default", True)}) == 1
    page = ranking._repr_html_()
    assert page.index("Russia") < page.index("Chad")
    assert "<b>Peru" not in page
    assert "&lt;b&gt;Peru" in page
    sure = replace(
        ranking,
        task=replace(task, criterion=criterion_of("least expensive")),
        confidence=Confidence("high", 0.9, None),
    )
    assert "by price: cheapest first; auto on default; confidence: high (0.90)" in sure._repr_html_()
