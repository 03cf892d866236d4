"""`ccrank.rank` of pandas and polars frames, and `to_frame`."""

from __future__ import annotations

import pandas as pd
import pytest
from tiny import tiny_reader

import ccrank
from ccrank.errors import CcrankError

DOUBT = ("deviation", "rank_low", "rank_high")
TABLE = {
    "code": ["007", "012", "100", "007"],
    "name": ["Chad", "Peru", "Russia", "Chad "],
    "area": [1.28, None, 17.1, 1.28],
}


@pytest.fixture(scope="module")
def reader():
    return tiny_reader()


def frames():
    polars = pytest.importorskip("polars")
    return pd.DataFrame(TABLE), polars.DataFrame(TABLE)


def columns_of(frame):
    return {name: frame[name].to_list() for name in frame.columns}


def test_both_kinds_of_frame_come_back_ranked(reader):
    """The same kind of frame, all columns and types kept, best first, equal items tied; a list gives the same order."""
    expected = ccrank.rank(["Chad", "Peru", "Russia"], by="size", model=reader)
    for frame in frames():
        ranking = ccrank.rank(frame, by="size", column="name", model=reader)
        found = ranking.to_frame()
        assert type(found) is type(frame)
        assert list(found.columns) == [*frame.columns, "rank", "score", *DOUBT]
        for name in frame.columns:
            assert found[name].dtype == frame[name].dtype
        values = columns_of(found)
        assert tuple(dict.fromkeys(name.strip() for name in values["name"])) == expected.items
        assert values["rank"].count(values["rank"][values["name"].index("Chad")]) == 2
        assert sorted(values["rank"]) in ([1, 1, 3, 4], [1, 2, 2, 4], [1, 2, 3, 3])
        assert values["score"] == sorted(values["score"], reverse=True)
        code = dict(zip(values["name"], values["code"], strict=True))
        assert code == {"Chad": "007", "Peru": "012", "Russia": "100", "Chad ": "007"}
        assert ranking.items == tuple(name.strip() for name in values["name"])


def test_the_index_of_pandas_is_kept(reader):
    """Rows can be joined back by their labels; the frame that was given is left alone, whatever its columns."""
    frame = pd.DataFrame([["Peru", 1], ["Chad", 2]], index=["p", "c"], columns=["name", "rank"])
    before = frame.copy()
    found = ccrank.rank(frame, by="size", column="name", model=reader).to_frame()
    assert list(found.columns) == ["name", "rank", "ccrank_rank", "score", *DOUBT]
    assert found.loc["p", "name"] == "Peru"
    assert list(found["ccrank_rank"]) == [1, 2]
    pd.testing.assert_frame_equal(frame, before)


def test_empty_cells_of_frames(reader):
    """None, NaN and blanks are named in a warning and come last, without rank and score."""
    polars = pytest.importorskip("polars")
    names = ["Peru", None, "Chad", " "]
    for frame in (pd.DataFrame({"name": names}), polars.DataFrame({"name": names})):
        with pytest.warns(UserWarning, match="2 of 4 rows skipped: empty cell in column 'name'"):
            ranking = ccrank.rank(frame, by="size", model=reader)
        found = ranking.to_frame()
        assert found["rank"].to_list()[:2] == [1, 2]
        assert found["rank"][:2].sum() == found["rank"].sum() == 3
        assert found["rank"].is_null().sum() == 2 if hasattr(found["rank"], "is_null") else True
        assert len(found) == 4
        assert len(ranking.items) == 2


def test_a_list_becomes_a_pandas_frame(reader):
    """Rank, item and score, a repeated item twice."""
    ranking = ccrank.rank(["Chad", "Peru", "Chad"], by="size", model=reader)
    found = ranking.to_frame()
    assert list(found.columns) == ["rank", "item", "score", *DOUBT]
    assert sorted(found["item"]) == ["Chad", "Chad", "Peru"]
    assert tuple(found["item"]) == ranking.items
    assert sorted(found["rank"]) in ([1, 1, 3], [1, 2, 2])
    assert len(ranking.task.items) == len(ranking.scores) == 2


def test_a_repeated_item_changes_no_score(reader):
    """Repeats are read once: the scores of the distinct items are those of the list without repeats."""
    once = ccrank.rank(["Chad", "Peru", "Russia"], by="size", model=reader)
    twice = ccrank.rank(["Chad", "Peru", "Russia", "Peru", "Peru"], by="size", model=reader)
    assert once.scores.tolist() == twice.scores.tolist()
    assert once.cost.prompts == twice.cost.prompts


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        (None, "several columns; name the one with the items"),
        ("nam", "no column 'nam'.*did you mean 'name'"),
        ("bad", r"row 2 of column 'bad': an item is a text, got \['x'\]"),
        ("void", "contains no items: there is no text in column 'void'"),
    ],
)
def test_columns_that_cannot_be_ranked(reader, column, cause):
    """The message names the columns there are."""
    frame = pd.DataFrame({"name": ["a", "b"], "bad": ["a", ["x"]], "void": [None, None]})
    with pytest.raises(CcrankError, match=cause):
        ccrank.rank(frame, by="size", column=column, model=reader)


def test_what_is_no_frame(reader):
    """A column of a list, and a frame that was not collected, are refused with the remedy."""
    polars = pytest.importorskip("polars")
    with pytest.raises(CcrankError, match="column 'name' belongs to a pandas or polars frame, got list"):
        ccrank.rank(["a", "b"], by="size", column="name", model=reader)
    with pytest.raises(CcrankError, match=r"call its collect\(\)"):
        ccrank.rank(polars.LazyFrame(TABLE), by="size", column="name", model=reader)


def test_series_are_lists(reader):
    """A column taken out of a frame is a list of texts."""
    for frame in frames():
        assert len(ccrank.rank(frame["name"], by="size", model=reader).items) == 4
