"""`ccrank rank --input`: a file of any length into another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import Table, parquet

from ccrank.cli.commands import rank_stream as stream_module

WORDS = ("old", "new", "tall", "red", "stone", "glass")
ITEMS = [f"{first} {second}" for first in WORDS for second in WORDS if first != second]


@pytest.fixture
def table(tmp_path):
    """A table with one empty cell."""
    path = tmp_path / "items.csv"
    path.write_text("id,text\n" + "".join(f"{number},{item}\n" for number, item in enumerate(ITEMS)) + "x,\n")
    return path


def test_a_file_is_ranked_into_another(ccrank, model_folder, table, tmp_path):
    """The output has the rows and columns of --file with the same options, but for the intervals of ranks; stderr says
    what happened, and warnings stand beside the file."""
    common = [
        "--column",
        "text",
        "--by",
        "size",
        "--poles",
        "small",
        "large",
        "--model",
        model_folder,
        "--no-cache",
    ]
    done = ccrank("rank", "--input", str(table), *common, "--out", "streamed.parquet")
    assert done.code == 0, done.err
    assert done.out == ""
    assert "1 of 31 rows have no item" in done.err
    assert "31 rows written to streamed.parquet, ranked on the scale of all items" in done.err
    assert ccrank("rank", "--file", str(table), *common, "--out", "memory.parquet").code == 0
    streamed = parquet.read_table("streamed.parquet")
    assert streamed.equals(parquet.read_table("memory.parquet").select(streamed.column_names))
    beside = [tmp_path / f"{name}.parquet.warnings.txt" for name in ("streamed", "memory")]
    assert [path.exists() for path in beside] in ([True, True], [False, False])
    if beside[0].exists():
        assert beside[0].read_text() == beside[1].read_text()


@pytest.mark.parametrize(
    ("most", "dtype", "said"), [(20, "float32", True), (20, "bfloat16", False), (31, "float32", False)]
)
def test_many_rows_in_float32_are_told_of_the_faster_precision(
    most, dtype, said, ccrank, model_folder, table, monkeypatch
):
    """With what it costs; not where it is chosen already, nor for few rows."""
    monkeypatch.setattr(stream_module, "MANY_ROWS", most)
    how = ["--by", "size", "--method", "poles", "--model", model_folder, "--no-cache", "--dtype", dtype]
    done = ccrank("rank", "--input", str(table), "--column", "text", *how, "--out", "streamed.parquet")
    assert done.code == 0, done.err
    assert ("--dtype bfloat16 is faster" in done.err) == said


def test_options_of_a_stream_reach_it(ccrank, model_folder, table):
    """--sample, --top, --refine and --method are used."""
    common = [
        "--column",
        "text",
        "--by",
        "size",
        "--model",
        model_folder,
        "--no-cache",
        "--out",
        "out.parquet",
    ]
    done = ccrank("rank", "--input", str(table), *common, "--sample", "10", "--top", "3", "--refine", "none")
    assert done.code == 0, done.err
    assert "the scale of a sample" in done.err
    found = parquet.read_table("out.parquet")
    assert found.column("rank").to_pylist() == [1, 2, 3]
    assert ccrank("rank", "--input", str(table), *common, "--sample", "10", "--top", "3").code == 0
    assert parquet.read_table("out.parquet").column_names == ["id", "text", "rank", "score", "refined"]
    done = ccrank("rank", "--input", str(table), *common, "--sample", "10", "--method", "prompt-list")
    assert done.code == 2
    assert "larger --sample" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "TABLE", "--by", "size"], ["--out ranked.parquet"]),
        (["--input", "TABLE", "--by", "size", "--out", "x.csv"], ["rename x.csv to x.parquet"]),
        (["--input", "TABLE", "--out", "x.parquet"], ["no criterion"]),
        (["--input", "TABLE", "--by", "size", "--out", "x.parquet"], ["several columns", "'text'"]),
        (["--input", "none.csv", "--by", "size", "--out", "x.parquet"], ["there is no file none.csv"]),
        (["a", "b", "--input", "TABLE", "--by", "size", "--out", "x.parquet"], ["remove items"]),
        (["--input", "TABLE", "--by", "size", "--json", "--out", "x.parquet"], ["remove --json"]),
        (["--input", "TABLE", "--by", "size", "--verbose", "--out", "x.parquet"], ["remove --verbose"]),
        (["a", "b", "--by", "size", "--sample", "5"], ["--sample is for --input"]),
        (["a", "b", "--by", "size", "--refine", "none"], ["--refine is for --input"]),
        (["a", "b", "--by", "size", "--engine", "spark"], ["local or ray", "'spark'"]),
        (["a", "b", "--by", "size", "--workers", "2"], ["are for --engine ray"]),
        (
            ["--input", "TABLE", "--column", "text", "--by", "size", "--out", "x.parquet", "--refine", "magic"],
            ["--refine magic", "prompt-pair"],
        ),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(ccrank, model_folder, table, arguments, words):
    """Exit code 2 and a message with a remedy, before any work is done."""
    given = [str(table) if one == "TABLE" else one for one in arguments]
    done = ccrank("rank", *given, "--model", model_folder, "--no-cache")
    assert done.code == 2, done.err
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("source", ["--input", "--file", "--tasks"])
@pytest.mark.parametrize("link", [False, True])
def test_the_file_that_is_ranked_is_not_replaced(ccrank, model_folder, tmp_path, source, link):
    """--out that is the input, under its own name or a link's, is refused before anything is read or written."""
    path = tmp_path / ("tasks.jsonl" if source == "--tasks" else "items.parquet")
    if source != "--tasks":
        parquet.write_table(Table.from_pydict({"text": ITEMS}), path)
    else:
        path.write_text(json.dumps({"criterion": "size", "items": ITEMS}) + "\n")
    before = path.read_bytes()
    out = tmp_path / f"link{path.suffix}" if link else path
    if link:
        out.symlink_to(path)
    criterion = [] if source == "--tasks" else ["--by", "size", "--top", "2"]
    done = ccrank("rank", source, str(path), *criterion, "--model", model_folder, "--out", str(out))
    assert (done.code, done.out) == (2, "")
    assert "would replace it; give another name" in done.err
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith(path.stem)) == [path.name]


@pytest.mark.parametrize(
    ("labels", "message"), [("none.csv", "there is no file none.csv"), (".", "is a folder")]
)
def test_labels_that_are_missing(ccrank, labels, message):
    """They are an error before a model is looked for."""
    Path("items.txt").write_text("a\nb\n")
    given = ("--input", "items.txt", "--by", "size", "--out", "out.parquet", "--model", "no-such-model")
    done = ccrank("rank", *given, "--labels", labels)
    assert done.code == 2
    assert message in done.err


def test_an_interrupt_says_how_to_go_on(ccrank, model_folder, table, monkeypatch):
    """What is stored is named, with the way to resume; where nothing is stored, nothing is promised."""

    def interrupted(stored):
        def run_job(path, out, *_, **__):
            if stored:
                Path(f"{out}.job").mkdir()
            raise KeyboardInterrupt

        return run_job

    given = (
        "--input",
        table,
        "--column",
        "text",
        "--by",
        "size",
        "--out",
        "out.parquet",
        "--model",
        model_folder,
    )
    for stored in (False, True):
        monkeypatch.setattr(stream_module, "run_job", interrupted(stored))
        done = ccrank("rank", *given)
        assert done.code == 130
        assert ("what is finished is in out.parquet.job; the same command resumes" in done.err) == stored
