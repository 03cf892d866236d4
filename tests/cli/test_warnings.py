"""`ccrank rank`: warnings arrive in every form of output, and results stay free of them."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

ITEMS = ("Russia", "Canada", "Brazil", "Chad")
UNKNOWN = "no words are known for the poles of 'zorb'"


@pytest.fixture
def auto(rank):
    """`ccrank rank … --method auto` by a criterion without known poles."""
    return lambda *arguments: rank(*ITEMS, "--by", "zorb", "--method", "auto", *arguments)


@pytest.mark.parametrize("form", [(), ("--json",), ("--csv",), ("--out", "x.json"), ("--out", "x.csv")])
def test_warnings_are_on_stderr(auto, form):
    """For every form of output, one line each, with what to do; none of it on stdout but in JSON."""
    result = auto(*form)
    assert result.code == 0
    lines = result.err.splitlines()
    assert lines
    assert all(line.startswith("ccrank: warning: ") for line in lines)
    assert UNKNOWN in lines[0]
    assert "--poles LOW HIGH" in lines[0]
    assert ("no words are known" in result.out) == (form == ("--json",))


def test_json_has_warnings_and_confidence(auto, rank):
    """The same texts as on stderr; another method has none and no confidence."""
    result = auto("--json")
    found = json.loads(result.out)
    assert [f"ccrank: warning: {text}" for text in found["warnings"]] == result.err.splitlines()
    assert found["confidence"]["level"] in ("low", "medium", "high")
    assert 0 < found["confidence"]["probability"] < 1
    plain = rank(*ITEMS, "--by", "size", "--json")
    assert plain.err == ""
    assert (json.loads(plain.out)["warnings"], json.loads(plain.out)["confidence"]) == ([], None)


def test_csv_stays_plain(auto):
    """Header and rows alone, so that any reader of CSV takes it."""
    rows = list(csv.reader(io.StringIO(auto("--csv").out)))
    assert rows[0][:3] == ["rank", "item", "score"]
    assert len(rows) == 1 + len(ITEMS)


def test_a_csv_file_has_its_warnings_beside(auto, rank, tmp_path):
    """`x.csv.warnings.txt`; it goes when the file is written again without warnings. JSON has its own."""
    result = auto("--out", "x.csv")
    beside = tmp_path / "x.csv.warnings.txt"
    assert [f"ccrank: warning: {line}" for line in beside.read_text().splitlines()] == result.err.splitlines()
    assert rank(*ITEMS, "--by", "size", "--out", "x.csv").err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    auto("--out", "y.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "y.json"]


def test_the_table_ends_with_the_confidence(auto, rank):
    """The level in a plain sentence, with a probability beside the signals; nothing for a method that has none."""
    (above, last), (measures, numbers) = (auto(*more).out.splitlines()[-2:] for more in ((), ("--verbose",)))
    assert "signals_agree = " in measures
    assert not re.search("τ|signals", above)
    assert re.fullmatch(r"confidence: (low|medium|high): the order .*[a-z]", last)
    assert "P(τ > 0.3) = 0." in numbers
    assert numbers.endswith(last.rpartition(":")[2])
    assert "confidence" not in rank(*ITEMS, "--by", "size").out


def test_a_warning_of_several_tasks_is_shown_once(rank, tmp_path):
    """With their number; one of a single task has its id."""
    row = '{"id": "%s", "criterion": "%s", "items": ["Russia", "Chad", "Peru"]}\n'
    tasks = [("one", "zorb"), ("two", "zorb"), ("three", "blick")]
    (tmp_path / "tasks.jsonl").write_text("".join(row % task for task in tasks))
    lines = rank("--tasks", tmp_path / "tasks.jsonl", "--method", "auto", "--csv").err.splitlines()
    assert next(line for line in lines if UNKNOWN in line).startswith("ccrank: warning: 2 of 3 tasks: ")
    assert next(line for line in lines if "'blick'" in line).startswith("ccrank: warning: three: ")
    assert len(lines) == len(set(lines))
