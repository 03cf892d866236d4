"""One request: flags, JSON and arguments of Python are checked by the same rules and ranked alike."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import save_model, tiny_reader

import ccrank
from ccrank.cli import main
from ccrank.errors import CcrankError
from ccrank.io import Rows
from ccrank.reader_options import ReaderOptions
from ccrank.request import RankRequest

ITEMS = ["Russia", "Chad", "Peru", "Monaco"]
FLAGS = {"by": "--by", "query": "--query", "method": "--method", "category": "--category"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model in a folder."""
    return str(save_model(tiny_reader().loaded, tmp_path_factory.mktemp("models") / "tiny"))


def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """The exit code, stdout and stderr of `ccrank rank`."""
    monkeypatch.setattr(sys, "argv", ["ccrank", "rank", *arguments])
    code: object = 0
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("given", "labels", "message"),
    [
        ({}, {}, "no criterion: give one"),
        ({"by": " "}, {}, "no criterion: give one"),
        ({"by": "size", "query": "land"}, {}, "a query is the criterion; leave out by, or the query"),
        ({"query": "land", "category": "country"}, {}, "a query is the criterion; leave out category,"),
        ({"by": "size", "method": "pca"}, {"Chad": 1}, "pca uses no labels; leave them out"),
        ({"by": "size"}, {"Atlantis": 1}, "Atlantis"),
    ],
)
def test_mistakes_are_the_same_everywhere(
    given: dict[str, str],
    labels: dict[str, int],
    message: str,
    tmp_path: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """In Python, on the command line and over HTTP: one rule, one message."""
    with pytest.raises(CcrankError, match=message):
        ccrank.rank(ITEMS, **given, labels=labels or None, model=tiny_reader())
    arguments = [word for name, value in given.items() for word in (FLAGS[name], value)]
    if labels:
        (tmp_path / "labels.csv").write_text("".join(f"{item},{value}\n" for item, value in labels.items()))
        arguments += ["--labels", str(tmp_path / "labels.csv")]
    code, out, err = command(capsys, monkeypatch, *ITEMS, *arguments, "--model", model)
    assert (code, out) == (2, "")
    assert message in err
    pytest.importorskip("fastapi", reason="the server needs the extra `server`")
    from fastapi.testclient import TestClient

    from ccrank.server.app import create_app
    from ccrank.server.settings import ServerSettings

    body = {"items": ITEMS, **given} | ({"labels": labels} if labels else {})
    with TestClient(
        create_app(ServerSettings(), {"tiny": tiny_reader()}), base_url="http://localhost"
    ) as client:
        reply = client.post("/v1/rank", json=body)
    assert reply.status_code == 422
    assert message in reply.json()["error"]["message"]


def test_a_command_ranks_as_python_does(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The same request gives the same JSON."""
    words = ("--by", "least expensive", "--category", "country", "--context", "A text.", "-o", "shuffles=2")
    given = (*ITEMS, *words, "--method", "prompt-list", "--model", model, "--no-cache", "--json")
    code, out, _ = command(capsys, monkeypatch, *given)
    assert code == 0
    ranking = ccrank.rank(
        ITEMS,
        by="least expensive",
        category="country",
        context="A text.",
        method="prompt-list",
        options={"shuffles": 2},
        model=ccrank.load(model, cache=False).reader,
    )
    assert json.loads(out) == json.loads(json.dumps(ranking.to_json()))


def test_a_request_is_checked_without_a_model():
    """The criterion, the items and the method's options need none."""
    request = RankRequest(items=Rows(("tea", "gold")), by="least expensive", options={"signals": "axis"})
    assert request.task.id == "ranking by least expensive"
    assert request.task.criterion == request.criterion
    with pytest.raises(CcrankError, match="auto has no option 'signals'"):
        _ = request.parsed_options
    with pytest.raises(CcrankError, match="at least 2 items"):
        _ = RankRequest(items=Rows(("tea",)), by="price").task


def test_reader_options_are_for_models_by_name(model: str):
    """`rank` loads a model with them; beside an open model they are a mistake."""
    cut = ReaderOptions(truncate=True)
    long = [" ".join(["word"] * 3000), "short"]
    with pytest.raises(CcrankError, match="does not fit"):
        ccrank.rank(long, by="size", model=model, method="poles")
    assert len(ccrank.rank(long, by="size", model=model, method="poles", reader_options=cut).items) == 2
    with pytest.raises(CcrankError, match="this one is open"):
        ccrank.rank(ITEMS, by="size", model=tiny_reader(), reader_options=cut)


def test_rank_file_is_rank(tmp_path: Path):
    """A file of few rows comes out as `rank` orders its items."""
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "items.csv").write_text(
        "name,id\n" + "".join(f"{item},{n}\n" for n, item in enumerate(ITEMS))
    )
    given: dict[str, Any] = {"by": "size", "category": "country", "model": tiny_reader()}
    result = ccrank.rank_file(tmp_path / "items.csv", tmp_path / "out.parquet", column="name", top=3, **given)
    assert (result.rows, result.written) == (4, 3)
    table = parquet.read_table(tmp_path / "out.parquet")
    assert set(table.column("name").to_pylist()) < set(ITEMS)
    ccrank.rank_file(tmp_path / "items.csv", tmp_path / "out.parquet", column="name", **given)
    table = parquet.read_table(tmp_path / "out.parquet")
    assert tuple(table.column("name").to_pylist()) == ccrank.rank(ITEMS, **given).items


def test_run_study_takes_a_name_or_a_table(tmp_path: Path):
    """Mistakes in them are named before anything is read."""
    with pytest.raises(CcrankError, match="unknown preset 'huge'"):
        ccrank.run_study("huge", tmp_path)
    with pytest.raises(CcrankError, match="unknown entry 'model'"):
        ccrank.run_study({"model": "default", "datasets": ["worldlists"], "methods": ["auto"]}, tmp_path)


def test_several_criteria_are_ranked_as_each_alone():
    """One table; each of its rankings is that of the criterion by itself, and rows keep their places."""
    reader = tiny_reader()
    phrases = ["size", "least expensive"]
    table = ccrank.rank([*ITEMS, "Chad"], by=phrases, category="country", model=reader)
    assert list(table) == phrases
    for name in phrases:
        alone = ccrank.rank([*ITEMS, "Chad"], by=name, category="country", model=reader)
        np.testing.assert_allclose(table[name].scores, alone.scores, atol=1e-5)  # batches differ
        assert (table[name].task, table[name].items) == (alone.task, alone.items)
        assert table[name].understood == alone.understood
    frame = table.to_frame()
    assert list(frame.columns) == [
        "item",
        *(f"{name}_{column}" for name in phrases for column in ("rank", "score")),
    ]
    for name in phrases:
        expected = {entry.item: (entry.rank, entry.score) for entry in table[name].entries()}
        columns = (frame["item"], frame[f"{name}_rank"], frame[f"{name}_score"])
        assert {item: (rank, score) for item, rank, score in zip(*columns, strict=True)} == expected
    assert tuple(frame["item"]) == table.first.items
    found = table.to_json(top=2)
    assert [one["item"] for one in found["items"]] == list(table.first.items[:2])
    assert found["criteria"]["least expensive"]["understood"]["first"] == "cheapest first"
    assert table.cost == table["size"].cost + table["least expensive"].cost


@pytest.mark.parametrize(
    ("by", "more", "message"),
    [
        ([], {}, "no criterion: give one"),
        (["size"] * 2, {}, "'size' and 'size' are the same criterion"),
        (["least expensive", " cheapest "], {}, "'cheapest' and 'least expensive' are the same criterion"),
        ([f"c{number}" for number in range(21)], {}, "1 to 20 criteria, got 21"),
        (["size", ""], {}, "no criterion: give one"),
        (["size", 3], {}, "each of by must be a phrase or a Criterion"),
        (["size", "age"], {"poles": ("small", "large")}, "poles cannot be combined with several criteria"),
        (["size", "age"], {"labels": {"Chad": 1}}, "labels cannot be combined with several criteria"),
        (["size", "age"], {"query": "land"}, "a query is the criterion; leave out by"),
    ],
)
def test_what_a_table_of_criteria_does_not_take(by: Any, more: dict[str, Any], message: str):
    """Each mistake is named before a model is asked."""
    with pytest.raises(CcrankError, match=message):
        ccrank.rank(ITEMS, by=by, **more, model=tiny_reader())


def test_a_scale_has_one_criterion():
    """`fit` refuses a list of criteria."""
    with pytest.raises(CcrankError, match="by must be one phrase or Criterion"):
        ccrank.fit(ITEMS, by=["size", "age"], model=tiny_reader())  # type: ignore[arg-type]
