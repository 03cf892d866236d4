"""`ccrank rank --file TABLE`: the rows that went in come out."""

from __future__ import annotations

import csv
import io
import json

import pytest

from ccrank.io import read_rows

PEOPLE = 'id,name,code\n1,"Doe, J",007\n2,Roe,\n3,"two\nlines",1.0\n\n4,,x\n5,Roe,y\n'


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(("\ufeff" + PEOPLE).encode())
    return path


def test_rows_survive(rank, people):
    """Every row and cell is there, ranks are competition ranks, the row without a name is last; stderr counts."""
    result = rank("--file", people, "--column", "name", "--by", "size", "--csv")
    assert result.code == 0, result.err
    out = list(csv.reader(io.StringIO(result.out, newline="")))
    given = [row for row in csv.reader(io.StringIO(PEOPLE, newline="")) if row]
    assert out[0] == ["id", "name", "code", "rank", "score"]
    assert sorted(row[:3] for row in out[1:]) == sorted(given[1:])
    ranks = [row[3] for row in out[1:]]
    assert ranks in (["1", "1", "3", "4", ""], ["1", "2", "2", "4", ""], ["1", "2", "3", "3", ""])
    assert out[-1] == ["4", "", "x", "", ""]
    scores = {row[1]: row[4] for row in out[1:]}
    assert all(row[4] == scores[row[1]] for row in out[1:])
    for words in (
        "1 blank line skipped",
        "1 of 5 rows skipped: empty cell in column 'name'",
        "1 repeated item: tied",
    ):
        assert words in result.err


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_out(rank, people, tmp_path, suffix):
    """The suffix of --out chooses the format; read back, it is the table that --csv prints."""
    out = tmp_path / f"ranked.{suffix}"
    result = rank("--file", people, "--column", "name", "--by", "size", "--out", out)
    assert (result.code, result.out) == (0, "")
    printed = rank("--file", people, "--column", "name", "--by", "size", "--csv").out
    expected = list(csv.reader(io.StringIO(printed, newline="")))
    found = read_rows(out, "name")
    assert list(found.columns) == expected[0]
    cells = [["" if cell is None else str(cell) for cell in record] for record in found.records]
    assert [row[:4] for row in cells] == [row[:4] for row in expected[1:]]
    assert [float(row[4] or 9) for row in cells] == [float(row[4] or 9) for row in expected[1:]]


def test_json_has_ids_and_rows(rank, people):
    """Each item has its id and its other columns; rows without an item are counted."""
    result = rank("--file", people, "--column", "name", "--id", "id", "--by", "size", "--json")
    found = json.loads(result.out)
    assert found["skipped"] == 1
    by_id = {row["id"]: row for row in found["items"]}
    assert set(by_id) == {"1", "2", "3", "5"}
    assert by_id["1"]["item"] == "Doe, J"
    assert by_id["1"]["row"] == {"id": "1", "code": "007"}
    assert by_id["2"]["rank"] == by_id["5"]["rank"]
    assert by_id["2"]["score"] == by_id["5"]["score"]


def test_top_and_reverse(rank, people):
    """They work on rows as on items; ranks stay."""
    arguments = ("--file", people, "--column", "name", "--by", "size", "--csv")
    whole = list(csv.reader(io.StringIO(rank(*arguments).out, newline="")))[1:-1]
    top = list(csv.reader(io.StringIO(rank(*arguments, "--top", "2").out, newline="")))[1:]
    assert top == whole[:2]
    lowest = list(csv.reader(io.StringIO(rank(*arguments, "--top", "3", "--reverse").out, newline="")))[1:]
    assert lowest == whole[:0:-1]


def test_the_table_shows_ids(rank, people):
    """For people: the id column stands beside the bars."""
    result = rank("--file", people, "--column", "name", "--id", "id", "--by", "size")
    assert result.out.splitlines()[1].split() == ["rank", "item", "score", "id"]
    assert sorted(line.split()[-1] for line in result.out.splitlines()[2:6]) == ["1", "2", "3", "5"]


def test_signals_of_repeated_items(rank, tmp_path):
    """Each spelling of an item finds the signals of the item."""
    (tmp_path / "x.csv").write_text("name,n\nPeru,1\nPeru\u3000,2\nＰeru,3\nChad,4\n")
    result = rank(
        "--file", tmp_path / "x.csv", "--column", "name", "--by", "size", "--verbose", "--method", "auto"
    )
    assert result.code == 0, result.err
    assert len([line for line in result.out.splitlines() if "eru" in line]) == 3


def test_duplicates_as_arguments(rank):
    """Two of a kind are tied, and stderr says so."""
    result = rank("a", "b", "a", "--by", "size", "--json")
    assert result.code == 0, result.err
    assert "1 repeated item: tied" in result.err
    found = json.loads(result.out)["items"]
    assert sorted(row["item"] for row in found) == ["a", "a", "b"]
    assert [row["rank"] for row in found] in ([1, 1, 3], [1, 2, 2])
    assert all(set(row) == {"rank", "item", "score"} for row in found)


def test_a_table_on_stdin(rank):
    """`--format csv` reads the standard input as a table, rows and all."""
    out = rank("--format", "csv", "--column", "n", "--by", "size", "--csv", stdin=b"k,n\n1,a\n2,b\n").out
    assert sorted(line.split(",")[:2] for line in out.splitlines()[1:]) == [["1", "a"], ["2", "b"]]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "xlsx"])
def test_tasks_as_a_table(rank, tmp_path, suffix):
    """Many tasks in one table, with a column for the task."""
    (tmp_path / "tasks.jsonl").write_text(
        '{"id": "1", "criterion": "size", "items": ["a", "b"]}\n{"id": "2", "criterion": "age", "items": ["c", "d"]}'
    )
    assert rank("--tasks", tmp_path / "tasks.jsonl", "--out", tmp_path / f"x.{suffix}").code == 0
    found = read_rows(tmp_path / f"x.{suffix}", "item")
    assert list(found.columns)[:4] == ["task", "rank", "item", "score"]
    assert [str(record[0]) for record in found.records] == ["1", "1", "2", "2"]


def test_jsonl_out_of_tasks_has_one_object_for_each(rank, tmp_path):
    """What --json prints for a task file is what a .jsonl file holds."""
    (tmp_path / "tasks.jsonl").write_text('{"id": "1", "criterion": "size", "items": ["a", "b"]}\n')
    assert rank("--tasks", tmp_path / "tasks.jsonl", "--out", tmp_path / "x.jsonl").code == 0
    assert (tmp_path / "x.jsonl").read_text() == rank("--tasks", tmp_path / "tasks.jsonl", "--json").out


def test_what_cannot_be_written_is_refused_first(ccrank, tmp_path):
    """Before a model is opened: this one does not exist, and the message is about the cell."""
    (tmp_path / "x.csv").write_text("name,text\na," + "x" * 40_000 + "\nb,\n")
    result = ccrank(
        *("rank", "--file", tmp_path / "x.csv", "--column", "name", "--by", "size"),
        *("--out", tmp_path / "x.xlsx", "--model", "nowhere"),
    )
    assert result.code == 2
    assert "Excel holds 32,767" in result.err


def test_broken_unicode_in_other_columns(rank, tmp_path):
    """Half a surrogate pair in a column that is not ranked neither stops the ranking nor its output."""
    (tmp_path / "x.jsonl").write_text('{"n": "a", "x": "\\ud800"}\n{"n": "b", "x": 1}\n')
    for arguments in (["--csv"], ["--json"], ["--out", tmp_path / "y.jsonl"], ["--out", tmp_path / "y.json"]):
        result = rank("--file", tmp_path / "x.jsonl", "--column", "n", "--by", "size", *arguments)
        assert result.code == 0, result.err
    assert '"x": "\\ud800"' in (tmp_path / "y.jsonl").read_text()
