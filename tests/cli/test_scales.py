"""`ccrank fit`, `ccrank score` and `--scale`: a list's scale in a file, and other items on it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import parquet

ITEMS = [f"{first} {second}" for first in ("old", "new", "tall", "red") for second in ("fox", "dog", "sea")]


@pytest.fixture
def fitted(ccrank, model_folder):
    """A scale of twelve items, and a table with others."""
    Path("items.txt").write_text("\n".join(ITEMS))
    Path("new.csv").write_text("id,text\n1,blue glass\n2,\n3,old fox\n4,a lazy dog\n")
    given = ("--by", "size", "--model", model_folder, "--no-cache")
    done = ccrank("fit", "items.txt", *given, "--out", "size.scale")
    assert done.code == 0, done.err
    assert "the scale of size, fitted on 12 items, is in size.scale" in done.err
    return lambda *arguments: ccrank(*arguments, "--no-cache")


def test_fit_then_rank_is_rank(fitted, ccrank, model_folder):
    """The items of the fit are ranked on the saved scale with the very output of `ccrank rank`; so is a scale that
    `rank --save-scale` wrote."""
    given = ("--file", "items.txt", "--by", "size", "--model", model_folder, "--no-cache", "--csv")
    direct = ccrank("rank", *given, "--save-scale", "other.scale")
    assert direct.code == 0, direct.err
    for name in ("size.scale", "other.scale"):
        done = fitted("rank", "--scale", name, "--file", "items.txt", "--csv")
        assert done.out == direct.out, done.err


def test_items_are_scored_in_their_order(fitted):
    """Arguments, a table and a file of any length have the same scores; rows without an item have none."""
    alone = fitted("score", "--scale", "size.scale", "blue glass", "old fox", "--json")
    assert alone.code == 0, alone.err
    scores = [json.loads(line)["score"] for line in alone.out.splitlines()]
    table = fitted(
        "score", "--scale", "size.scale", "--file", "new.csv", "--column", "text", "--out", "s.csv"
    )
    assert table.code == 0, table.err
    found = pd.read_csv("s.csv")
    assert list(found.columns) == ["id", "text", "score", "deviation"]
    assert ((found["deviation"] > 0) == found["score"].notna()).all()
    assert list(found["id"]) == [1, 2, 3, 4]
    assert found["score"][[0, 2]].tolist() == pytest.approx(scores, abs=2e-5)
    assert pd.isna(found["score"][1])
    command = (
        "score",
        "--scale",
        "size.scale",
        "--input",
        "new.csv",
        "--column",
        "text",
        "--out",
        "s.parquet",
    )
    assert fitted(*command, "--block-rows", "2").code == 0
    streamed = parquet.read_table("s.parquet").to_pandas()
    assert streamed["score"].tolist() == pytest.approx(found["score"].tolist(), abs=2e-5, nan_ok=True)
    ranked = fitted(
        "rank", "--scale", "size.scale", "--input", "new.csv", "--column", "text", "--out", "r.parquet"
    )
    assert ranked.code == 0, ranked.err
    assert "ranked on the scale of size, fitted on 12 items" in ranked.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "items.txt", "--by", "size"), "give the file of the scale with --out"),
        (("fit", "--by", "size", "--out", "x.scale"), "give one file of items, or --tasks"),
        (("fit", "items.txt", "--out", "x.scale"), "no criterion"),
        (
            ("fit", "items.txt", "--by", "size", "--method", "prompt-list", "--out", "x.scale"),
            "prompt-list scores an item among the others of its list",
        ),
        (("score", "old fox"), "give a scale with --scale"),
        (("score", "old fox", "--scale", "items.txt"), "not a complete safetensors file"),
        (("score", "--scale", "size.scale", "--input", "new.csv"), "--input writes Parquet"),
        (
            ("score", "x", "--scale", "size.scale", "--input", "new.csv", "--out", "s.parquet"),
            "remove the items",
        ),
        (("rank", "x", "y", "--scale", "size.scale", "--by", "age"), "remove --by, or --scale"),
        (("rank", "x", "y", "--scale", "size.scale", "--model", "no-such"), "no-such"),
    ],
)
def test_what_does_not_go_together(fitted, arguments, message):
    """Bad input ends with code 2 and a remedy."""
    done = fitted(*arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_deviations(ccrank, model_folder):
    """The scale of a list with labels scores other items with a standard deviation each, and that of a single signal
    without."""
    Path("items.txt").write_text("\n".join(ITEMS))
    Path("labels.csv").write_text("item,value\nold fox,3\nred sea,1\ntall dog,2\n")
    given = ("--by", "size", "--model", model_folder, "--no-cache")
    done = ccrank("fit", "items.txt", *given, "--labels", "labels.csv", "--out", "size.scale")
    assert done.code == 0, done.err
    done = ccrank("score", "--scale", "size.scale", "blue glass", "--json", "--no-cache")
    line = json.loads(done.out)
    assert line["deviation"] > 0
    for method in ("auto", "poles"):
        done = ccrank("fit", "items.txt", *given, "--method", method, "--out", "plain.scale")
        assert done.code == 0, done.err
        done = ccrank("score", "--scale", "plain.scale", "blue glass", "--no-cache")
        assert done.out.splitlines()[0] == ("item,score,deviation" if method == "auto" else "item,score")


def test_no_command_replaces_what_it_reads(fitted):
    """Neither the items, nor the scale, nor other files that a command reads can be its output."""
    given = ("fit", "items.txt", "--by", "size", "--model", "no-such-model")
    scored = ("score", "--scale", "size.scale", "--column", "text")
    Path("labels.csv").write_text("kind,item,value\npair,old fox,new dog\n")
    Path("size.csv").write_bytes(Path("size.scale").read_bytes())
    calls = [
        (*given, "--out", "items.txt"),
        (*given, "--labels", "labels.csv", "--out", "labels.csv"),
        (*scored, "--file", "new.csv", "--out", "new.csv"),
        (*scored, "--input", "new.csv", "--out", "new.csv"),
        ("score", "old fox", "--scale", "size.csv", "--out", "size.csv"),
        ("label", "--file", "labels.csv", "--column", "item", "--by", "size", "--labels", "labels.csv"),
    ]
    for call in calls:
        path = Path(call[-1])
        before = path.read_bytes()
        done = fitted(*call)
        assert done.code == 2
        assert f"{path} is a file that this command reads" in done.err
        assert path.read_bytes() == before
