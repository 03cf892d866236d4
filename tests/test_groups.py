"""Rankings within groups: each is that of the group alone, and a table keeps its rows and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_reader

import ccrank
from ccrank.errors import CcrankError, CcrankWarning
from ccrank.io import read_rows
from ccrank.io.groups import MAX_GROUPS, Groups

KINDS = {
    "bird": ["eagle", "ostrich", "sparrow"],
    "mammal": ["mouse", "horse", "whale", "mouse"],
    "fish": ["trout", "shark"],
    "insect": ["ant", "bee"],
    "plant": ["oak", "moss", "fern"],
}


def frame_of(library: str, cells: dict[str, list[Any]]) -> Any:
    """A frame of pandas or polars."""
    return pytest.importorskip(library).DataFrame(cells)


def animals() -> dict[str, list[Any]]:
    """The columns of five groups, whose rows are mixed."""
    pairs = sorted(((item, kind) for kind, items in KINDS.items() for item in items))
    return {"animal": [item for item, _ in pairs], "kind": [kind for _, kind in pairs]}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("method", ["auto", "prompt-point"])
def test_a_group_is_ranked_as_if_alone(library: str, method: str):
    """To the last bit, though `auto` pools four lists or more of one criterion."""
    reader = tiny_reader()
    frame = frame_of(library, animals())
    how: dict[str, Any] = {"by": "weight", "column": "animal", "category": "animal", "method": method}
    ranker = ccrank.Ranker(reader)
    found = ranker.rank(frame, group_by="kind", **how)
    assert isinstance(found, ccrank.GroupedRankings)
    assert set(found) == set(KINDS)
    for kind, items in KINDS.items():
        alone = ccrank.rank(items, "weight", category="animal", method=method, model=reader)
        assert found[kind].items == alone.items
        assert {entry.item: entry.score for entry in found[kind].entries()} == {
            entry.item: entry.score for entry in alone.entries()
        }
        assert list(found[kind].to_frame()["animal"]) == list(alone.items)
    table = found.to_frame()
    assert type(table) is type(frame)
    assert list(table.columns)[:4] == ["animal", "kind", "rank", "score"]
    lines = list(zip(table["animal"], table["kind"], table["rank"], strict=True))
    assert lines == [(entry.item, kind, entry.rank) for kind in found for entry in found[kind].entries()]


def test_rows_without_a_value_and_groups_of_one_item():
    """The former are a group of their own, the last; the latter have rank 1, no score and a note."""
    cells = {"name": ["a", "b", "c", "d", "e", None, "f"], "x": [float("nan"), 2, 1, 2, None, 2, 1]}
    cells["name"][6] = "c"
    with pytest.warns(CcrankWarning) as caught:
        found = ccrank.rank(
            frame_of("pandas", cells),
            "size",
            column="name",
            group_by="x",
            method="prompt-point",
            model=tiny_reader(),
        )
    said = " ".join(str(one.message) for one in caught)
    assert "2 rows without a value in column 'x': a group of their own" in said
    assert "1 group of one item: rank 1, without score: x 1.0" in said
    assert list(found) == [2.0, None]
    table = found.to_frame()
    assert [sorted(part) for part in (table["name"][:2], table["name"][2:4], table["name"][4:6])] == [
        ["b", "d"],
        ["c", "c"],
        ["a", "e"],
    ]
    assert list(table["rank"].fillna(0)) == [1, 2, 1, 1, 1, 2, 0]
    assert np.isnan(table["score"]).tolist() == [False] * 2 + [True] * 2 + [False] * 2 + [True]
    groups = found.to_json(top=1)["groups"]
    assert [one["group"] for one in groups] == [2.0, 1.0, None]
    assert groups[1] == {"group": 1.0, "items": [{"rank": 1, "item": "c", "score": None}]}
    assert [len(one["items"]) for one in groups] == [1, 1, 1]
    assert "skipped" not in groups[0]


@pytest.mark.parametrize(
    ("cells", "column", "message"),
    [
        ({"n": ["a", "b"], "x": ["1", "2"]}, "x", "no group of column 'x' has 2 different items"),
        ({"n": ["a", "b"], "x": ["1", "1"]}, "y", "the groups: there is no column 'y'"),
        ({"n": ["a", "b"], "x": [["1"], ["1"]]}, "x", "a group is a text, a number or a date"),
        (
            {"n": [f"i{n}" for n in range(1001)], "x": [str(n) for n in range(1001)]},
            "x",
            f"1,001 values; up to {MAX_GROUPS:,} groups",
        ),
    ],
)
def test_columns_that_make_no_groups(cells: dict[str, list[Any]], column: str, message: str):
    """Each is refused before a model is asked."""
    frame = frame_of("pandas", cells)
    with pytest.raises(CcrankError, match=message):
        ccrank.rank(frame, "size", column="n", group_by=column, model=tiny_reader())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"by": ["size", "age"]}, "groups are ranked by one criterion"),
        ({"query": "land"}, "query cannot be combined with groups"),
        ({"by": "size", "labels": {"a": 1}}, "labels cannot be combined with groups"),
    ],
)
def test_what_groups_do_not_take(more: dict[str, Any], message: str):
    """Each is named."""
    frame = frame_of("pandas", {"n": ["a", "b"], "x": ["1", "1"]})
    with pytest.raises(CcrankError, match=message):
        ccrank.rank(frame, column="n", group_by="x", **more, model=tiny_reader())


def test_a_list_has_no_columns():
    """Its items cannot be grouped."""
    with pytest.raises(CcrankError, match="give a file or a frame"):
        ccrank.rank(["a", "b"], "size", group_by="x", model=tiny_reader())  # type: ignore[call-overload]


def test_groups_of_a_file_keep_its_order(tmp_path: Path):
    """Values count as the same whatever the space around them."""
    (tmp_path / "x.csv").write_text("n,x\na,red\nb,blue\nc, red \nd,\n,blue\ne,blue\n")
    groups = Groups.of(read_rows(tmp_path / "x.csv", "n"), "x")
    assert groups.members == {"red": (0, 2), "blue": (1, 5), None: (3,)}
    assert list(groups.parts) == ["red", "blue"]
    assert groups.parts["blue"].records == [("b", "blue"), ("e", "blue")]
