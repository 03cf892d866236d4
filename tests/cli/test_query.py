"""`ccrank rank --query`, first stages, runs, and a study of documents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

DOCUMENTS = ("The tower is high.", "The dog is small.", "Most students selected blue.")
ROWS = "id,text\nx1,The tower is high.\nx2,The dog is small.\nx3,Most students selected blue.\n"
TASKS = [
    {"id": "q1", "query": "high tower", "items": list(DOCUMENTS), "values": [1, 0, 0], "bm25": [1, 3, 2]},
    {"id": "q2", "query": "small fox", "items": list(DOCUMENTS), "values": [0, 2, 1]},
]


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in TASKS), encoding="utf-8")
    return str(path)


@pytest.fixture
def search(ccrank, model_folder):
    return lambda *arguments: ccrank("rank", *arguments, "--model", model_folder, "--no-cache")


def test_query(search):
    """Documents by relevance, with the query in JSON and the wordings in the line below the table."""
    result = search(*DOCUMENTS, "--query", "high tower", "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert (found["query"], found["method"], found["directed"]) == ("high tower", "auto", True)
    assert sorted(row["item"] for row in found["items"]) == sorted(DOCUMENTS)
    table = search(*DOCUMENTS, "--query", "high tower", "--first-stage", "bm25", "--verbose")
    assert 'by relevance to the query "high tower": most relevant first' in table.out
    assert "query likelihood, 3 wordings; plus the first stage" in table.out
    assert "first-stage" in table.out


def test_runs_go_out_and_come_back_as_first_stage(search, tmp_path):
    """A run names rows by --id; read as the first stage of tasks with these ids, its scores are added."""
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    run = str(tmp_path / "run.txt")
    done = search("-f", "rows.csv", "--column", "text", "--id", "id", "--query", "high tower", "--run", run)
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in (tmp_path / "run.txt").read_text(encoding="utf-8").splitlines()]
    assert sorted(line[2] for line in lines) == ["x1", "x2", "x3"]
    assert [line[3] for line in lines] == ["1", "2", "3"]
    task = {"id": "ranking by relevance", "query": "high tower", "items": list(DOCUMENTS)}
    (tmp_path / "t.jsonl").write_text(json.dumps({**task, "item_ids": ["x1", "x2", "x3"]}), encoding="utf-8")
    found = json.loads(search("--tasks", "t.jsonl", "--first-stage", run, "--json").out)
    signals = found["details"]["signals"]
    ranked = [line[2] for line in lines]
    by_run = sorted(DOCUMENTS, key=lambda item: -signals["first-stage"][item])
    assert [f"x{DOCUMENTS.index(item) + 1}" for item in by_run] == ranked


def test_words_are_counted_in_a_collection(search, tmp_path):
    """BM25 with a file's document frequencies: a word that all of the file has says nothing of the documents."""
    (tmp_path / "all.txt").write_text("\n".join([*DOCUMENTS, *["The tower of a town."] * 3, "A high hill."]))
    given = [*DOCUMENTS, "--query", "tower small", "--first-stage", "bm25", "--json"]
    alone, counted = (
        json.loads(search(*given, *more).out)["details"]["signals"]
        for more in ([], ["--collection", "all.txt"])
    )
    assert alone["query-likelihood"] == counted["query-likelihood"]
    tower, small = DOCUMENTS[:2]
    assert alone["first-stage"][small] == pytest.approx(alone["first-stage"][tower], abs=1e-3)
    assert counted["first-stage"][small] > counted["first-stage"][tower] + 0.5
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in TASKS), encoding="utf-8")
    tasks = search("--tasks", "tasks.jsonl", *given[5:], "--collection", "all.txt")
    assert (tasks.code, tasks.err) == (0, "")
    assert len(tasks.out.splitlines()) == 2
    assert "is for --first-stage bm25" in search(*given[:5], "--collection", "all.txt").err


@pytest.mark.parametrize("flag", ["--run", "--out"])
def test_the_run_of_the_first_stage_is_not_replaced(search, flag):
    """A run that is read as the first stage is not written over."""
    task = {"id": "q", "query": "high tower", "items": list(DOCUMENTS), "item_ids": ["x1", "x2", "x3"]}
    Path("t.jsonl").write_text(json.dumps(task), encoding="utf-8")
    run = "".join(f"q Q0 x{place} {place} {-place}.0 tag\n" for place in (1, 2, 3))
    Path("run.csv").write_text(run, encoding="utf-8")
    done = search("--tasks", "t.jsonl", "--first-stage", "run.csv", flag, "run.csv")
    assert done.code == 2
    assert f"{flag} run.csv is a file that this command reads" in done.err
    assert Path("run.csv").read_text(encoding="utf-8") == run


def test_tasks_with_queries_have_metrics_of_retrieval(search, tasks):
    """In JSON for each task, as means below the tables."""
    first, second = map(json.loads, search("--tasks", tasks, "--json").out.splitlines())
    assert set(first["against_gold"]) >= {"ndcg_10", "mrr", "map", "recall_10", "chance_ndcg_10"}
    assert "signals" in first["details"]
    assert "signals" not in second["details"]
    shown = search("--tasks", tasks)
    assert "2 queries with grades: nDCG@10" in shown.out
    assert "(chance 0." in shown.out


def test_a_study_of_documents(ccrank, model_folder, tasks, tmp_path):
    """`bench` runs methods on queries; `results` has nDCG@10 beside chance, as a table and as JSON."""
    folder = tmp_path / "study"
    methods = "first-stage,query-likelihood,auto"
    done = ccrank(
        "bench", "--datasets", tasks, "--methods", methods, "--models", model_folder, "--out", folder
    )
    assert done.code == 0, done.err
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "nDCG@10" in page
    assert "query-likelihood" in page
    entries = json.loads(ccrank("results", folder, "--json").out)
    assert [entry["method"] for entry in entries] == ["first-stage", "query-likelihood", "auto"]
    for entry in entries:
        assert entry["queries"] == 2
        assert 0 < entry["ndcg_10"] <= 1
        assert entry["chance_recall_10"] == 1.0
    # By the scores given, q1's relevant document is the last of three; BM25 finds those of q2.
    assert entries[0]["mrr"] == pytest.approx((1 / 3 + 1) / 2)
    table = ccrank("results", folder)
    assert "nDCG@10" in table.out
    assert "query-likelihood" in table.out
    ccrank("results", folder, "--qrels", folder / "qrels.txt")
    judged = (folder / "qrels.txt").read_text(encoding="utf-8").split()
    assert judged[:4] == ["tasks/q1", "0", "1", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "b", "--query", "x", "--by", "size"), "a query is the criterion; leave out by, or the query"),
        (("a", "b"), "no criterion: give one .*--by size.*, or a query"),
        (("a", "b", "--query", " "), "query must be a question or keywords"),
        (("a", "b", "--by", "size", "--first-stage", "bm25"), "has none: give --query"),
        (("a", "b", "--query", "x", "--first-stage", "no.run"), "there is no file 'no.run'"),
        (
            ("a", "b", "--query", "x", "--run", "no/such/run.txt"),
            "the folder of no/such/run.txt does not exist",
        ),
        (("a", "b", "--query", "x", "--first-stage", "given"), "has no scores of a first stage"),
        (("a", "b", "--query", "x", "--method", "poles", "--first-stage", "bm25"), "poles has no option"),
    ],
)
def test_wrong_arguments_are_refused(search, arguments, message):
    """With exit code 2, and a message that says what to do."""
    result = search(*arguments)
    assert result.code == 2
    assert re.search(message, " ".join(result.err.split())), result.err
