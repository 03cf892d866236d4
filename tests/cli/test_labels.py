"""`ccrank rank --labels`: labels from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Monaco")


def test_labels_from_a_file(rank):
    """Both file formats give the same result, and the details and the printed line mention the labels."""
    Path("labels.csv").write_text("country,area\nRussia,17\nChad,1.3\nMonaco,0\n")
    Path("labels.txt").write_text("Russia > Chad > Monaco\n")
    first, second = (
        rank(*ITEMS, "--by", "size", "--json", "--labels", f"labels.{form}") for form in ("csv", "txt")
    )
    assert (first.code, first.err) == (0, "")
    assert first.out == second.out
    assert json.loads(first.out)["details"]["labels"]["labelled"] == 3
    table = " ".join(rank(*ITEMS, "--by", "size", "--labels", "labels.csv").out.split())
    assert "3 labelled items: τ = " in table
    assert "where left out of the fit" in table
    assert "labelled" not in rank(*ITEMS, "--by", "size").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--method", "prompt-pair"),
            "prompt-pair uses no labels; remove --labels, or use --method auto",
        ),
        (("--probe", "probe.safetensors"), "probe uses no labels; remove --labels, or use --method auto"),
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


def test_labels_are_for_one_list(rank):
    """A tasks file of several is refused; one of a single task is a list."""
    task = {"criterion": "size", "items": list(ITEMS)}
    Path("labels.csv").write_text("Russia,17\nChad,1.3\n")
    Path("one.jsonl").write_text(json.dumps(task) + "\n")
    Path("two.jsonl").write_text(2 * (json.dumps(task) + "\n"))
    assert rank("--tasks", "one.jsonl", "--labels", "labels.csv").code == 0
    result = rank("--tasks", "two.jsonl", "--labels", "labels.csv")
    assert result.code == 2
    assert "--labels is for the items of one list; the tasks file has 2" in " ".join(result.err.split())


def test_old_spellings_still_work_with_a_notice(rank):
    """--gold, --more and --parts give what --labels, --comparative and --signals give, and name the new spelling."""
    Path("labels.csv").write_text("Russia,17\nChad,1.3\n")
    new = rank(*ITEMS, "--by", "size", "--comparative", "larger", "--signals", "--labels", "labels.csv")
    old = rank(
        *ITEMS, "--by", "size", "--more", "larger", "--parts", "--gold", "labels.csv", "--method", "auto"
    )
    assert (new.code, new.err) == (0, "")
    assert old.out == new.out
    for spelling in ("--gold is now --labels", "--more is now --comparative", "--parts is now --signals"):
        assert spelling in old.err
    both = rank(*ITEMS, "--by", "size", "--gold", "labels.csv", "--labels", "labels.csv")
    assert both.code == 2
    assert "--gold is the old spelling of --labels; give only one of them" in both.err
