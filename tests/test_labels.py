"""Labels: all their forms, in Python and in files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ccrank.errors import CcrankError
from ccrank.io.labelfiles import possible_items, read_answers, read_labels, write_labels
from ccrank.labels import Labels

ITEMS = ("Russia", "Canada", "Chad", "Monaco")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"Russia": 17, " Chad ": 1.3}, Labels((("Russia", 17.0), ("Chad", 1.3)))),
        ({"ranks": {"Russia": 1, "Chad": 2}}, Labels((("Russia", -1.0), ("Chad", -2.0)))),
        ({"best": "Russia", "worst": ["Chad", "Monaco"]}, Labels(best=("Russia",), worst=("Chad", "Monaco"))),
        ([("Russia", "Chad", "Monaco")], Labels(pairs=(("Russia", "Chad"), ("Chad", "Monaco")))),
        ([["Russia", "Chad"], {"Chad": 3}], Labels((("Chad", 3.0),), (("Russia", "Chad"),))),
        ({"orders": [["Russia", "Chad"]], "Monaco": 2}, Labels((("Monaco", 2.0),), (("Russia", "Chad"),))),
        ({"best": 4.5}, Labels((("best", 4.5),))),
        ({}, Labels()),
    ],
)
def test_forms_in_python(given, expected):
    """Each form means what it says; an item may be called "best"."""
    assert Labels.parse(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("labels.csv", "labels map items to values"),
        (["Russia", "Chad"], "labels map items to values"),
        ({"Russia": "2"}, "the value of 'Russia' is not a finite number: '2'"),
        ({"Russia": float("nan")}, "not a finite number"),
        ({"Russia": True}, "not a finite number"),
        ({1: 1}, "labels must refer to items by their texts, got 1"),
        ([["Russia"]], "an order needs at least 2 items"),
        ([["Russia", "Russia"]], "above itself"),
    ],
)
def test_bad_labels_are_refused(given, message):
    """With the value and the remedy."""
    with pytest.raises(CcrankError, match=message):
        Labels.parse(given)


def test_contradictions_are_kept():
    """Ties, cycles and two values for one item are labels like any others."""
    assert len(Labels.parse({"Russia": 1, "Chad": 1})) == 2
    assert len(Labels.parse([("Russia", "Chad"), ("Chad", "Russia")]).pairs) == 2
    assert len(Labels.parse([{"Russia": 1}, {"Russia": 5}]).values) == 2


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "item,value\nRussia,17\nChad,1.3\n", Labels((("Russia", 17.0), ("Chad", 1.3)))),
        ("a.csv", "Russia,17\nRussia,3\n", Labels((("Russia", 17.0), ("Russia", 3.0)))),
        ("a.csv", "country,area\nRussia,17\n", Labels((("Russia", 17.0),))),
        ("a.tsv", "item\trank\nRussia\t1\n", Labels((("Russia", -1.0),))),
        ("a.csv", "higher,lower\nRussia,Chad\n", Labels(pairs=(("Russia", "Chad"),))),
        (
            "a.csv",
            "kind,item,value\nvalue,Russia,5\npair,Russia,Chad\nbest,Canada,\nworst,Monaco,\nrank,Chad,3\n",
            Labels((("Russia", 5.0), ("Chad", -3.0)), (("Russia", "Chad"),), ("Canada",), ("Monaco",)),
        ),
        ("a.json", '{"Russia": 5, "Russia": 1, "best": ["Canada"]}',
         Labels((("Russia", 5.0), ("Russia", 1.0)), best=("Canada",))),
        ("a.json", '[["Russia", "Chad"]]', Labels(pairs=(("Russia", "Chad"),))),
        ("a.txt", "Russia > Canada > Chad\n\nworst: Monaco\n",
         Labels(pairs=(("Russia", "Canada"), ("Canada", "Chad")), worst=("Monaco",))),
        ("a.txt", "best: Russia\n", Labels(best=("Russia",))),
        ("a.txt", "Russia\t3\nChad\t1\n", Labels((("Russia", 3.0), ("Chad", 1.0)))),
        ("a.txt", "Chad < Canada < Russia\n", Labels(pairs=(("Russia", "Canada"), ("Canada", "Chad")))),
        ("a.csv", "higher,lower,annotator\nRussia,Chad,Ann\nChad,Russia,Bob\nRussia,Monaco,\n",
         Labels(pairs=(("Russia", "Monaco"),), annotators=(
             ("Ann", Labels(pairs=(("Russia", "Chad"),))), ("Bob", Labels(pairs=(("Chad", "Russia"),)))))),
        ("a.csv", "item,value,annotator\nRussia,17,Ann\n", Labels(annotators=(("Ann", Labels((("Russia", 17.0),))),))),
        ("a.csv", "kind,item,value\nequal,Russia,Canada\nunknown,Chad,\nabove,Chad,Monaco\nbelow,Chad,Canada\n",
         Labels(equal=(("Russia", "Canada"),), unknown=(("Chad", ""),),
                moves=(("Chad", "above", "Monaco"), ("Chad", "below", "Canada")))),
    ],
)  # fmt: skip
def test_forms_in_files(tmp_path: Path, name, text, expected):
    """Tables with and without a header, JSON and lines."""
    path = tmp_path / name
    path.write_text(text)
    assert read_labels(path, ITEMS) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "Russia,17\nMars,1\n",
            "a.csv, line 2: labels contain 'Mars', which is not one of the items",
        ),
        ("a.csv", "Russia,17\nChad,much\n", "line 2: the value of 'Chad' is not a number: 'much'"),
        ("a.csv", "Russia,17,3\n", "line 1: labels have 2 columns here, got 3 cells"),
        ("a.csv", "a,b,c\nRussia,17,3\n", "line 1: a table of three columns has the header kind,item,value"),
        ("a.csv", "kind,item,value\nlike,Russia,1\n", "line 2: a label's kind is value, rank, pair"),
        ("a.csv", 'Chad,2\n\nRussia,"1\n\n', "line 3: not a well-formed table"),
        ("a.csv", 'item,value\n"Russia\n",17\nMars,1\n', "line 4: labels contain 'Mars'"),
        ("a.json", "{", "not JSON"),
        ("a.json", "3", "labels are a JSON object of items and values"),
        ("a.json", '[["Russia", "Chad"], ["Mars", "Chad"]]', "a.json, entry 2: labels contain 'Mars'"),
        ("a.json", '[["Russia", "Chad"], ["Chad"]]', "entry 2: an order needs at least 2 items"),
        ("a.txt", "Russia > Chad\n\nMonaco\n", "a.txt, line 3: a line reads A > B"),
        ("a.txt", "Russia > Chad\nMars > Chad\n", "a.txt, line 2: labels contain 'Mars'"),
        ("a.txt", "best: Russia\nworst:\n", "line 2: labels must refer to items"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name, text, message):
    """With the file, the line and the remedy."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CcrankError, match=message) as caught:
        read_labels(path, ITEMS)
    assert str(path) in str(caught.value)


def test_what_is_written_is_read(tmp_path: Path):
    """A table of mixed labels comes back, commas and quotes in items and all."""
    items = ('a "quoted", text', "plain")
    rows = [("value", items[0], "3"), ("pair", items[0], items[1]), ("best", items[1], "")]
    write_labels(rows, tmp_path / "a.csv")
    assert read_labels(tmp_path / "a.csv", items) == Labels.of_rows(rows)


def test_answers_keep_their_order(tmp_path: Path):
    """The rows of a session's file come back one by one; a hand-written grade is a value, an empty file no answer."""
    path = tmp_path / "a.csv"
    path.write_text("Kind,item,value\npair,Russia,Chad\n\nGrade ,Monaco,1\nbest,Canada,\n")
    assert read_answers(path, ITEMS) == [
        ("pair", "Russia", "Chad"),
        ("value", "Monaco", "1"),
        ("best", "Canada", ""),
    ]
    path.write_text("")
    assert read_answers(path, ITEMS) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Russia,17\n",
            "line 1: the header of a file of answers is kind,item,value or kind,item,value,annotator, got 'Russia,17'",
        ),
        ("value,Mars,1\n", "line 2: labels contain 'Mars', which is not one of the items"),
        ("value,Chad,1\npair,Russia,Mars\n", "line 3: labels contain 'Mars'"),
        ("value,Chad,much\n", "line 2: the value of 'Chad' is not a number: 'much'"),
        ("value,Chad,nan\n", "line 2: labels: the value of 'Chad' is not a finite number: nan"),
        ("value,Chad\n", "line 2: labels have 3 columns here, got 2 cells"),
        (
            "like,Chad,1\n",
            "line 2: a label's kind is value, rank, pair, equal, unknown, above, below, best or worst, not 'like'",
        ),
        ("pair,Chad,Chad\n", "line 2: an order has 'Chad' above itself"),
    ],
)
def test_bad_answers_are_refused(tmp_path: Path, text, message):
    """An edited file of answers is refused with its name, the line and the value."""
    path = tmp_path / "asked.csv"
    path.write_text(text if text.startswith("Russia") else f"kind,item,value\n{text}")
    with pytest.raises(CcrankError, match=f"^{re.escape(f'{path}, {message}')}"):
        read_answers(path, ITEMS)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_possible_items_of_any_file(end, tmp_path):
    """Line ends of any system, quotes in the middle of a cell and cells of any length."""
    path, long = tmp_path / "labels.csv", "a" * 200_000
    path.write_text(f'item,value{end}5" disk,1{end}{long},2{end}"Chad, the state",3{end}', newline="")
    assert {'5" disk', long, "Chad, the state"} <= possible_items(path)


def test_all_labels_survive_a_file(tmp_path: Path):
    """Rows of every kind, from nobody and from two people, are written and read without loss."""
    labels = Labels.parse(
        {
            "Russia": 5,
            "orders": [["Russia", "Chad"]],
            "equal": [["Chad", "Monaco"]],
            "unknown": [["Canada", "Chad"]],
            "moves": [["Monaco", "above", "Chad"]],
            "best": ["Russia"],
            "annotators": {"Ann": {"orders": [["Canada", "Chad"]]}, "Bob": {"Chad": 2, "worst": ["Monaco"]}},
        }
    )
    path = tmp_path / "all.csv"
    write_labels(labels.rows, path)
    assert Labels.of_rows(read_answers(path, ITEMS)) == labels
    assert read_labels(path, ITEMS) == labels
    assert len(labels) == 8
    assert labels.orders == (("Russia", "Chad"), ("Monaco", "Chad"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"moves": [["Chad", "beside", "Russia"]]}, "above or below another, not 'beside'"),
        ({"moves": [["Chad", "above"]]}, "is (item, 'above' or 'below', other)"),
        ({"equal": [["Chad", "Chad"]]}, "'equal' has 'Chad' twice"),
        ({"annotators": {"Ann": {"annotators": {"Bob": {"Chad": 1}}}}}, "have annotators themselves"),
    ],
)
def test_bad_answers_in_python_are_refused(labels, message):
    """What cannot be meant is refused with the value."""
    with pytest.raises(CcrankError, match=re.escape(message)):
        Labels.parse(labels)
