"""`ccrank rank --labels`: labels from a file."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from completion_server import serving
from tiny import tiny_reader

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Monaco")


def test_labels_from_a_file(rank):
    """All forms of a file with the same labels give one result, which the details and the line for people speak of."""
    Path("labels.csv").write_text("country,area\nRussia,17\nChad,1.3\nMonaco,0\n")
    Path("labels.json").write_text('{"Monaco": 0, "Chad": 1.3, "Russia": 17}')
    Path("mixed.csv").write_text("kind,item,value\nvalue,Chad,1.3\nvalue,Russia,17\nvalue,Monaco,0\n")
    first, *others = (
        rank(*ITEMS, "--by", "size", "--json", "--labels", name)
        for name in ("labels.csv", "labels.json", "mixed.csv")
    )
    assert (first.code, first.err) == (0, "")
    assert {other.out for other in others} == {first.out}
    about = json.loads(first.out)["details"]["labels"]
    assert (about["labels"], about["labelled"]) == (3, 3)
    table, verbose = (
        " ".join(rank(*ITEMS, "--by", "size", "--labels", "labels.csv", *more).out.split())
        for more in ((), ("--verbose",))
    )
    assert "3 labels on 3 items" in table
    assert "τ" not in table
    assert "left_out_tau = " in verbose
    assert "labels" not in rank(*ITEMS, "--by", "size").out


def test_uncertainty_is_shown_everywhere(rank):
    """JSON, CSV and table have a deviation and an interval of ranks with labels, and none without; the plot works."""
    Path("labels.txt").write_text("Russia > Chad\nbest: Canada\nworst: Monaco\n")
    labelled = (*ITEMS, "--by", "size", "--labels", "labels.txt")
    rows = json.loads(rank(*labelled, "--json").out)["items"]
    assert all(1 <= row["rank_low"] <= row["rank_high"] <= len(ITEMS) for row in rows)
    assert all(row["deviation"] > 0 for row in rows)
    header, first, *_ = rank(*labelled, "--csv").out.splitlines()
    assert header == "rank,item,score,deviation,rank_low,rank_high"
    assert len(first.split(",")) == 6
    table = rank(*labelled, "--plot", "scale.png").out
    assert "80% of ranks" in table
    assert Path("scale.png").stat().st_size > 1000
    plain = rank(*ITEMS, "--by", "size", "--csv").out
    assert plain.splitlines()[0] == "rank,item,score"


def test_no_label_is_auto(rank):
    """A file without a label gives exactly what no file gives."""
    Path("labels.json").write_text("{}")
    auto = (*ITEMS, "--by", "size", "--json", "--method", "auto")
    assert rank(*auto, "--labels", "labels.json").out == rank(*auto).out


def test_a_scale_that_there_is_not_is_refused_first(ccrank):
    """`--save-scale` with a method that compares items is an error before any work; so is one that would replace a
    file."""
    given = ("rank", *ITEMS, "--by", "size", "--model", "no-such-model", "--save-scale", "labels.csv")
    assert "prompt-pair scores an item among the others" in ccrank(*given, "--method", "prompt-pair").err
    Path("labels.csv").write_text("Russia,17\n")
    assert (
        "--save-scale labels.csv is a file that this command reads"
        in ccrank(*given, "--labels", "labels.csv").err
    )


def test_the_ranking_is_written_where_its_scale_is_not(rank):
    """Items left out one by one have a probe each, which is no scale; the ranking, which took the time, is written all
    the same."""
    probe = ("--method", "margin", "-o", "protocol=leave-one-out", "-o", "epochs=5", "-o", "seeds=1")
    done = rank(*ITEMS, "--by", "size", *probe, "--out", "r.csv", "--save-scale", "p.scale")
    assert done.code == 2
    assert "its scale cannot score items" in " ".join(done.err.split())
    assert len(Path("r.csv").read_text().splitlines()) == 6


def test_a_cycle_is_ranked_and_named(rank):
    """Labels that contradict each other are no error; a pair that the order does not keep is named."""
    Path("labels.txt").write_text("Russia > Chad > Monaco > Russia\n")
    result = rank(*ITEMS, "--by", "size", "--labels", "labels.txt")
    assert result.code == 0
    assert "ccrank: warning: label is reversed in this order: " in result.err


def test_lists_with_values_serve_the_others(rank):
    """`--labels tasks` takes the tasks' values as labels; what served as a label is not measured against."""
    task = {"criterion": "size", "items": list(ITEMS)}
    known = {**task, "values": [17, 10, 8.5, 1.3, 0]}
    Path("tasks.jsonl").write_text(json.dumps(known) + "\n" + json.dumps(task) + "\n")
    result = rank("--tasks", "tasks.jsonl", "--labels", "tasks", "--json")
    assert (result.code, result.err) == (0, "")
    first, second = map(json.loads, result.out.splitlines())
    assert [row["item"] for row in first["items"]] == list(ITEMS)
    assert "against_gold" not in first
    assert second["details"]["labels"]["labels"] == 5
    assert second["items"][0]["rank_low"] >= 1
    plain = rank("--tasks", "tasks.jsonl", "--json")
    assert "against_gold" in json.loads(plain.out.splitlines()[0])


def test_a_session(ccrank, model_folder, rank):
    """Answers are saved one by one, undone, and continued by a later session; the file serves `rank`."""
    command = ("label", *ITEMS, "--by", "size", "--model", model_folder, "--labels", "asked.csv")
    first = ccrank(*command, stdin=b"9\n4\n1\nu\nq\n")
    assert first.code == 0
    assert "a grade from 1 to 5; d don't know" in first.out
    assert "undone: pair, " in first.out
    assert "1 answer in asked.csv" in first.out
    second = ccrank(*command, "--kind", "pair", stdin=b"2\n")
    assert "continuing with 1 answer in asked.csv" in second.out
    header, *rows = Path("asked.csv").read_text().splitlines()
    assert header == "kind,item,value"
    assert [row.split(",")[0] for row in rows] == ["value", "pair"]
    assert rank(*ITEMS, "--by", "size", "--labels", "asked.csv").code == 0
    Path("asked.csv").write_text("Russia,17\n")
    assert "asked.csv, line 1: the header of a file of answers is kind,item,value" in ccrank(*command).err
    Path("asked.csv").write_text("kind,item,value\npair,Russia,Mars\n")
    assert "asked.csv, line 2: labels contain 'Mars'" in ccrank(*command).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--method", "prompt-pair"),
            "prompt-pair uses no labels; leave them out, or use the method auto",
        ),
        (("--scale", "x.scale"), "--scale states how items are ranked; remove --by, --labels"),
        (
            ("--method", "auto", "--labels", "other.csv"),
            "labels contain 'Mars', which is not one of the items",
        ),
        (("--labels", "none.csv"), "there is no file none.csv"),
    ],
)
def test_what_does_not_go_together(rank, arguments, message):
    """Bad input ends with code 2 and a message, before a model is loaded."""
    Path("labels.csv").write_text("Russia,17\nChad,1.3\n")
    Path("other.csv").write_text("Russia,17\nMars,1.3\n")
    result = rank(*ITEMS, "--by", "size", "--labels", "labels.csv", *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.split())


def test_nothing_to_undo_writes_nothing(ccrank, model_folder):
    """Undoing before the first answer leaves no file behind."""
    done = ccrank("label", *ITEMS, "--by", "size", "--model", model_folder, stdin=b"u\nq\n")
    assert "nothing to undo" in done.out
    assert not Path("labels.csv").exists()


def test_answers_of_earlier_sessions_are_undone_after_a_yes(ccrank, model_folder):
    """Undo goes back over this session's answers; beyond them it asks, and only a yes removes the answer."""
    command = (
        "label",
        *ITEMS,
        "--by",
        "size",
        "--model",
        model_folder,
        "--labels",
        "asked.csv",
        "--kind",
        "grade",
    )
    ccrank(*command, stdin=b"4\n2\nq\n")
    before = Path("asked.csv").read_text()
    last = before.splitlines()[-1].replace(",", ", ")
    kept = ccrank(*command, stdin=b"5\nu\nu\nn\nu\n\nq\n")
    assert kept.out.count("undone: ") == 1
    assert f"no answer of this session is left; undo one of an earlier session, {last}? (y or n)" in kept.out
    assert Path("asked.csv").read_text() == before
    undone = ccrank(*command, stdin=b"u\ny\n3\nu\nq\n")
    assert f"undone: {last}" in undone.out
    assert Path("asked.csv").read_text().splitlines() == before.splitlines()[:-1]


def test_where_files_are_is_checked_first(ccrank):
    """A folder or a probe that does not exist is an error before a model is looked for, not after the work."""
    given = (*ITEMS, "--by", "size", "--model", "no-such-model")
    for command, message in (
        (("label", *given, "--labels", "no/labels.csv"), "the folder of no/labels.csv does not exist"),
        (
            ("rank", *given, "--method", "ccr", "--save-scale", "no/p.scale"),
            "the folder of no/p.scale",
        ),
        (("rank", *ITEMS, "--scale", "p.scale"), "there is no file p.scale"),
    ):
        done = ccrank(*command)
        assert done.code == 2
        assert message in " ".join(done.err.split())


def test_a_session_needs_a_criterion_and_items(ccrank):
    """Code 2 and a remedy, before a model is loaded."""
    assert "no criterion: give one (by='size', --by size)" in ccrank("label", *ITEMS).err
    assert "arguments or with --file" in ccrank("label", "--by", "size").err


def test_a_session_checks_its_arguments_first(ccrank):
    """A kind of question that there is not and a list of one item are errors before a model is looked for."""
    given = ("--by", "size", "--model", "no-such-model")
    assert (
        "questions are grade, pair or both, not 'stars'"
        in ccrank("label", *ITEMS, *given, "--kind", "stars").err
    )
    assert "a ranking needs at least 2 items, got 1" in ccrank("label", "Russia", *given).err


def test_a_session_goes_on_after_an_empty_line(ccrank, model_folder):
    """Only q or the end of the input ends it; when every item is graded, it says so."""
    command = ("label", *ITEMS, "--by", "size", "--model", model_folder, "--kind", "grade")
    done = ccrank(*command, stdin=b"4\n\n2\n")
    assert done.out.startswith("d don't know, u undo, o show the order, q quit\n")
    assert "expected a grade from 1 to 5; d don't know" in done.out
    assert "2 answers in labels.csv" in done.out
    assert "no question is left" not in done.out
    done = ccrank(*command, stdin=b"1\n" * 9)
    assert "no question is left" in done.out
    assert "5 answers in labels.csv" in done.out


def test_people_answer_and_the_end_says_how_to_rank(ccrank, model_folder):
    """Two people are asked the same, and their answers are kept with their names; don't know and about equal too; the
    printed command ranks with them and says how far both agree."""
    command = (
        "label",
        *ITEMS,
        "--by",
        "size",
        "--model",
        model_folder,
        "--kind",
        "pair",
        "--labels",
        "l.csv",
    )
    ccrank(*command, "--annotator", "Ann", stdin=b"1\n=\nd\n1\nq\n")
    header, *rows = Path("l.csv").read_text().splitlines()
    assert header == "kind,item,value,annotator"
    assert [row.split(",")[0] for row in rows] == ["pair", "equal", "unknown", "pair"]
    assert all(row.endswith(",Ann") for row in rows)
    asked = ccrank(*command, "--annotator", "Bob", stdin=b"1\n" * 20)
    assert "no question is left" in asked.out
    [said] = re.findall(r"Ann and Bob agree on \d+% of \d+ pair", asked.out)
    done = ccrank(*command, stdin=b"q\n")
    assert said in done.out
    last = done.out.splitlines()[-1]
    assert last.startswith("to rank with these labels: ccrank rank --by size --labels l.csv --model ")
    ranked = ccrank(*shlex.split(last.partition(": ccrank ")[2]))
    assert ranked.code == 0
    assert said in " ".join(ranked.out.split())


def test_one_value_teaches_nothing(rank, ccrank, model_folder):
    """A value that is compared with no other is said to teach nothing, in a file and in a session."""
    Path("one.csv").write_text("item,value\nChad,5\n")
    words = "one value alone says nothing about the order"
    assert words in " ".join(rank(*ITEMS, "--by", "size", "--labels", "one.csv").err.split())
    asked = ccrank(
        "label", *ITEMS, "--by", "size", "--model", model_folder, "--kind", "grade", stdin=b"3\n2\n"
    )
    assert asked.out.count(words) == 1


def test_labels_are_for_one_list(rank):
    """A tasks file of several is refused; one of a single task is a list."""
    task = {"criterion": "size", "items": list(ITEMS)}
    Path("labels.csv").write_text("Russia,17\nChad,1.3\n")
    Path("one.jsonl").write_text(json.dumps(task) + "\n")
    Path("two.jsonl").write_text(2 * (json.dumps(task) + "\n"))
    assert rank("--tasks", "one.jsonl", "--labels", "labels.csv").code == 0
    result = rank("--tasks", "two.jsonl", "--labels", "labels.csv")
    assert result.code == 2
    assert "--labels FILE is for the items of one list; the tasks file has 2" in " ".join(result.err.split())


def test_labels_of_tasks_without_values(rank, tmp_path):
    """`--labels tasks` where no task has values is an error, on a tasks file and on a single list."""
    Path("bare.jsonl").write_text(json.dumps({"criterion": "size", "items": ["Russia", "Chad"]}) + "\n")
    for given in (["--tasks", "bare.jsonl"], ["Russia", "Chad", "--by", "size"]):
        result = rank(*given, "--labels", "tasks")
        assert result.code == 2
        assert "no task has values" in " ".join(result.err.split())


def test_a_model_answers(ccrank, model_folder, rank):
    """Its budget is said before it is asked, its answers are saved one by one, and the next run goes on from them."""
    with serving(tiny_reader(), "ollama") as server:
        server.chat = lambda body: (200, {"choices": [{"message": {"content": "A", "role": "assistant"}}]})
        command = (
            "label",
            *ITEMS,
            "--by",
            "size",
            "--model",
            model_folder,
            "--labels",
            "asked.csv",
            "--present",
            "random",
        )
        annotator = ("--annotator", f"openai:{server.url}#tiny")
        first = ccrank(*command, *annotator, "--calls", "2")
        assert first.code == 0, first.err
        assert "up to 2 calls of about " in first.err
        assert "2 answers in asked.csv, which now has 2 rows" in first.out
        assert first.out.splitlines()[-1].startswith("to rank with these labels: ccrank rank --by size")
        second = ccrank(*command, *annotator, "--calls", "1", "--max-tokens", "5000")
        assert "continuing with 2 answers in asked.csv" in second.out
        assert "at most 5,000" in second.err
    rows = [row.split(",") for row in Path("asked.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows] == ["pair"] * 3
    assert len({frozenset(row[1:]) for row in rows}) == 3
    assert rank(*ITEMS, "--by", "size", "--labels", "asked.csv").code == 0
    assert "has the form openai:" in ccrank(*command, "--annotator", "openai:nothing").err
