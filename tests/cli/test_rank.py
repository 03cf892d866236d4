"""`ccrank rank`: what it prints and writes."""

from __future__ import annotations

import csv
import io
import json

import pytest

ITEMS = ("Russia", "Canada", "Brazil", "Chad")
PRICES = '{"criterion": "size", "items": ["b", "a", "c"]}\n'
GOLD = (
    '{"id": "one", "criterion": "size", "items": ["b", "a", "c"], "values": [1, 3, 2]}\n'
    '\n{"id": "two", "criterion": {"name": "age"}, "items": ["x", "y"], "order": ["y", "x"], "context": "Hm."}\n'
)


def test_json(rank):
    """The documented keys, best first, and nothing but JSON on stdout."""
    result = rank(*ITEMS, "--by", "size", "--comparative", "larger", "--poles", "small", "large", "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert {"criterion", "model", "method", "directed", "items", "consistency"} <= set(found)
    assert found["criterion"] == {"name": "size", "comparative": "larger", "poles": ["small", "large"]}
    assert found["method"] == "prompt-pair"
    assert found["directed"] is True
    assert [row["rank"] for row in found["items"]] == [1, 2, 3, 4]
    assert sorted(row["item"] for row in found["items"]) == sorted(ITEMS)
    scores = [row["score"] for row in found["items"]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("method", ["prompt-pair", "prompt-point", "prompt-list"])
def test_the_order_given_does_not_matter(rank, method):
    """The very same output for the items in another order."""
    first = rank(*ITEMS, "--by", "size", "--method", method, "--json")
    assert first.code == 0
    assert rank(*ITEMS[::-1], "--by", "size", "--method", method, "--json").out == first.out


def test_top_and_reverse_hold_for_csv(rank):
    """The lines are those of the whole table, cut or turned over."""
    head, *whole = rank(*ITEMS, "--by", "size", "--csv").out.splitlines()
    assert rank(*ITEMS, "--by", "size", "--csv", "--top", "2").out.splitlines() == [head, *whole[:2]]
    turned = rank(*ITEMS, "--by", "size", "--csv", "--top", "2", "--reverse").out.splitlines()
    assert turned == [head, *whole[::-1][:2]]


def test_the_table_says_if_the_direction_is_unknown(rank):
    """A probe without labels may have found the order reversed; an answer to a prompt has a direction."""
    probed = rank(*ITEMS, "--by", "size", "--method", "triplet", "-o", "epochs=1")
    asked = rank(*ITEMS, "--by", "size")
    assert "direction unknown" in probed.out
    assert "direction unknown" not in asked.out


def test_top_and_reverse(rank):
    """--top cuts what is shown, --reverse turns it over, ranks stay."""
    whole = json.loads(rank(*ITEMS, "--by", "size", "--json").out)["items"]
    assert json.loads(rank(*ITEMS, "--by", "size", "--json", "--top", "2").out)["items"] == whole[:2]
    turned = json.loads(rank(*ITEMS, "--by", "size", "--json", "--top", "3", "--reverse").out)["items"]
    assert turned == whole[:0:-1]


def test_csv(rank):
    """A header and one row per item; what needs quotes gets them."""
    items = ('say "no", please', "two\nlines", "x")
    result = rank(*items, "--by", "size", "--csv")
    rows = list(csv.reader(io.StringIO(result.out)))
    assert rows[0] == ["rank", "item", "score"]
    assert sorted(row[1] for row in rows[1:]) == sorted(items)
    assert [row[0] for row in rows[1:]] == ["1", "2", "3"]


def test_table(rank):
    """For people: one line per item, best first, and a word on consistency."""
    result = rank(*ITEMS, "--by", "size")
    lines = result.out.splitlines()
    assert lines[0] == "by size: largest first"
    assert lines[1].split() == ["rank", "item", "score"]
    best = json.loads(rank(*ITEMS, "--by", "size", "--json").out)["items"]
    assert [line.split()[1] for line in lines[2:6]] == [row["item"] for row in best]
    assert "both orders agree on" in lines[6]
    assert "12 comparisons" in lines[6]


def test_what_was_understood(rank):
    """The first line and the JSON say what comes first, also where --reverse shows the other end."""
    assert rank(*ITEMS, "--by", "lowest price").out.startswith("by price: cheapest first\n")
    assert rank(*ITEMS, "--by", "lowest price", "--reverse").out.startswith(
        "by price: most expensive first\n"
    )
    found = json.loads(rank(*ITEMS, "--by", "price (low to high)", "--json").out)
    assert found["understood"] == {
        "phrase": "price (low to high)",
        "first": "cheapest first",
        "poles": ["expensive", "cheap"],
        "comparative": "cheaper",
        "source": "lexicon",
        "certain": True,
        "alternatives": [],
    }
    refused = rank(*ITEMS, "--by", "A to Z")
    assert (refused.code, refused.out) == (2, "")
    assert "'A to Z' is an order that needs no model" in refused.err


def test_the_table_shows_items_as_they_are(rank):
    """Brackets and colons are no markup, breaks are folded, long items cut, terminal codes taken out."""
    items = ("[red]x[/red]", ":smile:", "[/]", "two\nlines", "long " * 30, "\x1b[31mred\x07", "🗼 מגדל")
    out = rank(*items, "--by", "size").out
    for shown in ("[red]x[/red]", ":smile:", "[/]", "two lines", "long long", "�[31mred�", "🗼 מגדל"):
        assert shown in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 250


def test_few_opponents_say_no_more_than_they_know(rank):
    """Pairs asked once have no second order to agree with: the line leaves it out, JSON has null."""
    items = [f"thing {number}" for number in range(8)]
    result = rank(*items, "--by", "size", "-o", "pairs=2")
    assert "nan" not in result.out
    assert "both orders" not in result.out
    assert "8 comparisons" in result.out
    found = json.loads(rank(*items, "--by", "size", "-o", "pairs=2", "--json").out)
    assert found["consistency"]["both_orders_agree"] is None


@pytest.mark.parametrize(
    ("name", "content", "arguments"),
    [
        ("items.txt", "b\n\n a \nc\n", []),
        ("items.csv", "name,size\nb,1\na,2\nc,3\n", ["--column", "name"]),
        ("items.tsv", "name\nb\na\nc\n", []),
        ("items.jsonl", '"b"\n{"name": "a"}\n"c"\n', ["--column", "name"]),
        ("items.data", "name\nb\na\nc\n", ["--format", "csv"]),
    ],
)
def test_files(rank, tmp_path, name, content, arguments):
    """Lines, tables and JSON lines give the items that arguments would."""
    (tmp_path / name).write_text(content)
    result = rank("--file", tmp_path / name, "--by", "size", "--json", *arguments)
    assert result.code == 0, result.err
    found = [(row["rank"], row["item"], row["score"]) for row in json.loads(result.out)["items"]]
    expected = json.loads(rank("a", "b", "c", "--by", "size", "--json").out)["items"]
    assert found == [(row["rank"], row["item"], row["score"]) for row in expected]


def test_stdin(rank):
    """Items on stdin, one per line."""
    result = rank("--by", "size", "--json", stdin="c\nä\nb\n".encode())
    assert sorted(row["item"] for row in json.loads(result.out)["items"]) == ["b", "c", "ä"]


def test_context(rank, tmp_path):
    """A text, or that of a file, precedes each prompt: more tokens, possibly other scores, the same items."""
    (tmp_path / "story.txt").write_text("The tower is high. " * 5)
    plain = json.loads(rank("a", "b", "--by", "size", "--json").out)
    found = json.loads(rank("a", "b", "--by", "size", "--json", "--context", f"@{tmp_path}/story.txt").out)
    assert found["cost"]["prompt_tokens"] > plain["cost"]["prompt_tokens"] + 2 * 20
    text = rank("a", "b", "--by", "size", "--json", "--context", "The tower is high. " * 5).out
    assert json.loads(text)["items"] == found["items"]


def test_own_templates(rank, tmp_path):
    """--templates and --template change what is asked."""
    plain = rank(*ITEMS, "--by", "size", "--json").out
    own = "pair=Is {item_a} older than {item_b}? {slot}"
    changed = rank(*ITEMS, "--by", "size", "--json", "--template", own).out
    (tmp_path / "own.toml").write_text(f'[pair]\ntext = "{own[5:]}"\n')
    from_file = rank(*ITEMS, "--by", "size", "--json", "--templates", tmp_path / "own.toml").out
    assert changed == from_file
    assert changed != plain


@pytest.mark.parametrize("name", ["result.json", "result.csv"])
def test_out_writes_what_would_be_printed(rank, tmp_path, name):
    """The suffix chooses the form; nothing is printed, and an old file is replaced."""
    (tmp_path / name).write_text("old")
    result = rank(*ITEMS, "--by", "size", "--out", tmp_path / name)
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / name).read_text() == rank(*ITEMS, "--by", "size", f"--{name[7:]}").out
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_out_with_another_suffix(rank, tmp_path):
    """--json or --csv chooses the format if the suffix does not."""
    assert rank("a", "b", "--by", "size", "--out", tmp_path / "x.txt", "--csv").code == 0
    assert (tmp_path / "x.txt").read_text().startswith("rank,item,score")


def test_nothing_is_left_behind_when_writing_fails(rank, tmp_path, monkeypatch):
    """The old file is unchanged, and no partial file remains."""
    from pathlib import Path

    target = tmp_path / "result.json"
    target.write_text("old")

    def full(self, other):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = rank("a", "b", "--by", "size", "--out", target)
    assert result.code == 2
    assert "cannot write" in result.err
    assert "No space left" in result.err
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert target.read_text() == "old"


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_plot(rank, tmp_path, suffix):
    """An image is written in addition to the printed result, for any item text."""
    image = tmp_path / f"scale.{suffix}"
    result = rank("$5 or $6", "$^{x$", "🗼", "long " * 50, "--by", "$^{x$", "--json", "--plot", image)
    assert result.code == 0, result.err
    assert len(json.loads(result.out)["items"]) == 4
    start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix]
    assert image.read_bytes().startswith(start)
    assert image.stat().st_size > 2000


def test_tasks_with_gold(rank, tmp_path):
    """One JSON line per task, each with its metrics against gold."""
    (tmp_path / "tasks.jsonl").write_text(GOLD)
    result = rank("--tasks", tmp_path / "tasks.jsonl", "--json")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["task"] for row in rows] == ["one", "two"]
    for row in rows:
        assert -1 <= row["against_gold"]["tau"] <= 1
        assert row["against_gold"]["abs_tau"] == abs(row["against_gold"]["tau"])
    table = rank("--tasks", tmp_path / "tasks.jsonl").out
    assert "one, by size" in table
    assert "2 tasks with gold: τ " in table
    rows = list(csv.reader(io.StringIO(rank("--tasks", tmp_path / "tasks.jsonl", "--csv").out)))
    assert rows[0] == ["task", "rank", "item", "score"]
    assert [row[0] for row in rows[1:]] == ["one"] * 3 + ["two"] * 2


def test_tasks_without_gold(rank, tmp_path):
    """Nothing is said against a gold that is not there; one task can be drawn."""
    (tmp_path / "tasks.jsonl").write_text(PRICES)
    result = rank("--tasks", tmp_path / "tasks.jsonl", "--json", "--plot", tmp_path / "x.png")
    [row] = [json.loads(line) for line in result.out.splitlines()]
    assert row["task"] == "line-1"
    assert "against_gold" not in row
    assert "gold" not in rank("--tasks", tmp_path / "tasks.jsonl").out
    assert (tmp_path / "x.png").stat().st_size > 2000


def test_one_task_with_gold_is_told_in_the_table(rank, tmp_path):
    """τ and accuracy, without an interval that one task cannot have."""
    (tmp_path / "tasks.jsonl").write_text(GOLD.splitlines()[0])
    table = rank("--tasks", tmp_path / "tasks.jsonl").out
    assert "1 task with gold: τ " in table
    assert "[" not in table.splitlines()[-1]


def test_long_lists_are_sorted(rank):
    """More than 50 items need no quadratic number of questions."""
    items = [f"thing {number}" for number in range(60)]
    found = json.loads(rank(*items, "--by", "size", "--json").out)
    assert len(found["items"]) == 60
    assert found["details"]["comparisons"] < 60 * 59 / 2


def test_no_cache_leaves_no_readings(rank, monkeypatch, tmp_path):
    """--no-cache writes no readings; without it they are kept and nothing is computed twice."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    assert rank("a", "b", "--by", "size").code == 0
    assert not list(tmp_path.glob("cache/readings/*"))
    first = json.loads(rank("a", "b", "--by", "size", "--json", cache=True).out)
    again = json.loads(rank("a", "b", "--by", "size", "--json", cache=True).out)
    assert first["cost"]["computed_tokens"] > 0 == again["cost"]["computed_tokens"]
    assert first["items"] == again["items"]


def test_several_criteria_are_columns_of_one_table(rank, tmp_path):
    """A rank and a score for each --by, the same as by it alone; all other columns stay."""
    (tmp_path / "x.csv").write_text("name,n,age_rank\nRussia,1,a\nChad,2,b\n,3,c\nPeru,4,d\n")
    by = ("--by", "size", "--by", "age")
    whole = rank("--file", "x.csv", "--column", "name", *by, "--csv")
    head, *lines = list(csv.reader(io.StringIO(whole.out)))
    added = ["size_rank", "size_score", "ccrank_age_rank", "age_score"]
    assert (whole.code, head) == (0, ["name", "n", "age_rank", *added])
    for place, name in ((3, "size"), (5, "age")):
        alone = json.loads(rank("--file", "x.csv", "--column", "name", "--by", name, "--json").out)["items"]
        ranks = {line[0]: line[place] for line in lines if line[0]}
        assert ranks == {one["item"]: str(one["rank"]) for one in alone}
        scores = {line[0]: float(line[place + 1]) for line in lines if line[0]}
        assert scores == pytest.approx({one["item"]: one["score"] for one in alone}, abs=1e-5)
    assert lines[-1] == ["", "3", "c", "", "", "", ""]
    found = json.loads(rank("--file", "x.csv", "--column", "name", *by, "--json", "--top", "1").out)
    assert found["items"][0]["item"] == lines[0][0]
    assert set(found["items"][0]["by"]) == set(found["criteria"]) == {"size", "age"}
    written = rank("--file", "x.csv", "--column", "name", *by, "--out", "y.parquet")
    assert (written.code, written.out) == (0, "")
    shown = rank(*ITEMS, *by, "--top", "2").out.splitlines()
    assert shown[:2] == ["by size: largest first", "by age: oldest first"]
    assert shown[2].split() == ["item", "size", "score", "age", "score"]
    assert len(shown) == 7


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--by", "size"), "'size' and 'size' are the same criterion"),
        (("--by", "age", "--plot", "x.png"), "--plot cannot be combined with several --by"),
        (("--by", "age", "--poles", "a", "b"), "--poles cannot be combined with several --by"),
        (("--by", "age", "--verbose", "--run", "r"), "--verbose, --run cannot be combined with several --by"),
    ],
)
def test_what_several_criteria_do_not_take(rank, flags, message):
    """Flags that are about a single ranking are refused, by name."""
    refused = rank(*ITEMS, "--by", "size", *flags)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err


def test_groups_are_ranked_apart(rank, tmp_path):
    """In every format: all columns stay, each group is ranked as alone, and --top is of each."""
    (tmp_path / "x.csv").write_text(
        "name;kind;n\nRussia;A;1\nx;B;2\nChad;A;3\n;A;4\ny;B;5\nz;C;6\nChad;B;7\n"
    )
    grouped = ("--file", "x.csv", "--column", "name", "--by", "size", "--group-by", "kind", "--id", "n")
    whole = rank(*grouped, "--csv")
    head, *lines = list(csv.reader(io.StringIO(whole.out), delimiter=";"))
    assert (whole.code, head) == (0, ["name", "kind", "n", "rank", "score"])
    assert "1 group of one item: rank 1, without score: kind C" in whole.err
    assert "repeated" not in whole.err
    assert [line[1] for line in lines] == ["A", "A", "B", "B", "B", "C", "A"]
    assert lines[-2:] == [["z", "C", "6", "1", ""], ["", "A", "4", "", ""]]
    alone = json.loads(rank("x", "y", "Chad", "--by", "size", "--json").out)["items"]
    assert [line[0] for line in lines[2:5]] == [one["item"] for one in alone]
    assert [float(line[4]) for line in lines[2:5]] == [one["score"] for one in alone]
    found = json.loads(rank(*grouped, "--json", "--top", "1").out)
    assert found["group_by"] == "kind"
    assert [one["group"] for one in found["groups"]] == ["A", "B", "C"]
    assert found["groups"][1]["items"][0]["score"] == alone[0]["score"]
    assert found["groups"][2]["items"] == [
        {"rank": 1, "item": "z", "score": None, "id": "6", "row": {"kind": "C", "n": "6"}}
    ]
    shown = rank(*grouped, "--top", "1").out
    assert [line for line in shown.splitlines() if ", by size" in line] == [
        f"kind {kind}, by size: largest first" for kind in "AB"
    ]
    for name in ("y.parquet", "y.jsonl", "y.tsv"):
        pytest.importorskip("pyarrow")
        assert rank(*grouped, "--out", name).code == 0
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "y.parquet").to_pydict()
    assert table["rank"] == [int(line[3]) if line[3] else None for line in lines]
    again = rank("--file", "y.parquet", *grouped[2:], "--out", "z.parquet")
    assert again.code == 0
    assert parquet.read_table(tmp_path / "z.parquet").column_names[-2:] == ["ccrank_rank", "ccrank_score"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--by", "age"), "--group-by cannot be combined with several --by"),
        (("--plot", "x.png"), "--plot cannot be combined with --group-by"),
        (("--query", "q", "--labels", "l"), "--query, --labels cannot be combined with --group-by"),
        (("--save-scale", "s", "--run", "r"), "--save-scale, --run cannot be combined with --group-by"),
        (("--tasks", "t"), "--tasks cannot be combined with --group-by"),
        (("--input", "t"), "--input cannot be combined with --group-by"),
        (("--scale", "t"), "--scale cannot be combined with --group-by"),
        (("a", "b"), "items cannot be combined with --group-by"),
    ],
)
def test_what_groups_do_not_take(rank, flags, message):
    """Flags that are about a single list are refused, by name."""
    refused = rank("--by", "size", "--group-by", "kind", *flags)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
