"""Tables, bars and progress as terminals of all kinds show them."""

from __future__ import annotations

import io
import sys

import pytest
from rich.cells import cell_len
from rich.console import Console

from ccrank.cli.commands.results import fitted_rows
from ccrank.cli.screen import bar, fitted_table, reading_progress, spelled_out, terminal_text
from ccrank.models import Cost
from ccrank.study.results.tables import RESULTS
from ccrank.util.text import Column

ROW = {
    "method": "sup-ccs-pair", "split": "leave-one-out", "layer": 30, "graded": 69, "tau": 0.5123, "tau_low": 0.41,
    "tau_high": 0.61, "abs_tau": 0.5301, "abs_tau_low": 0.44, "abs_tau_high": 0.62, "abs_tau_sd": 0.021,
    "chance_abs_tau": 0.2112, "accuracy": 0.756,
    "free_accuracy": 0.77, "chance_free_accuracy": 0.6, "free_pair_accuracy": 0.71, "chance_free_pair_accuracy": 0.58,
    "consistency": 0.9, "seconds": 1.25, "distinct_tokens": 12345.0, "directed": True,
}  # fmt: skip


def printed(table, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(table)
    return stream.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_results_fit_every_terminal(width):
    """Each row is one line that fits, no word is broken, and the numbers that matter stay."""
    rows = [ROW, {**ROW, "method": "auto", "split": "none", "layer": -1}]
    lines = printed(fitted_rows(RESULTS, rows, width), width)
    assert len(lines) == 3
    assert all(cell_len(line) <= width for line in lines)
    assert {"method", "τ", "|τ|", "chance"} <= set(lines[0].split())
    assert "+0.512" in lines[1]
    assert "0.530" in lines[1]
    assert "0.211" in lines[1]
    if width >= 80:
        assert "sup-ccs-pair" in lines[1]
        assert "leave-one-out" in lines[1]


def test_a_method_without_direction_has_no_signed_numbers():
    """The sign of its τ is arbitrary: neither τ, its interval nor the accuracy is shown."""
    cells = {column.title: column.text({**ROW, "directed": False}) for column in RESULTS}
    assert (cells["τ"], cells["95 %"], cells["accuracy"], cells["|τ|"]) == ("–", "–", "–", "0.530")


def test_columns_go_by_their_importance():
    """The least important go first, all of one importance together; long cells are cut with an ellipsis at last."""
    columns = [Column("name"), Column("a", drop=2), Column("b", drop=1), Column("c", drop=2)]
    cells = [*zip(columns, (["word"], ["aaaa"], ["bbbb"], ["cccc"]), strict=True)]
    assert fitted_table(cells, 40)[1] == {"name", "a", "b", "c"}
    assert fitted_table(cells, 20)[1] == {"name", "b"}
    assert fitted_table(cells, 8)[1] == {"name"}
    table, _ = fitted_table([(Column("item"), ["x" * 60]), (Column("n", number=True), ["1.00"])], 30)
    lines = printed(table, 30)
    assert lines[1].endswith("1.00")
    assert "…" in lines[1]


def test_bars_start_at_zero():
    """Scores that nearly tie have bars that nearly tie; negative ones go to the left of a common middle."""
    assert bar(10.0, 9.9, 10.0, 20) == "█" * 20
    assert len(bar(9.9, 9.9, 10.0, 20)) == 20
    assert bar(0.0, 0.0, 3.0, 20) == ""
    left, right = bar(-2.0, -2.0, 1.0, 20), bar(1.0, -2.0, 1.0, 20)
    assert left == "█" * 10
    assert right == " " * 10 + "█" * 5
    assert bar(0.0, 0.0, 0.0, 20) == ""
    for value in (-2.0, -1.3, -0.1, 0.0, 0.1, 0.9):
        assert len(bar(value, -2.0, 1.0, 20)) <= 20


def test_ascii_terminals_read_words(monkeypatch):
    """What the encoding lacks of our own symbols is spelled out; other characters become escapes."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert terminal_text("|τ| – █▌") == "|tau| - ##"
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    import codecs

    codecs.register_error("ccrank", spelled_out)
    stream.reconfigure(errors="ccrank")
    stream.write("τ = 0.5 … é")
    stream.flush()
    assert stream.buffer.getvalue() == b"tau = 0.5 ... \\xe9"
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert terminal_text("|τ| – █▌") == "|τ| – █▌"


def test_a_long_job_says_so_beforehand(capsys):
    """Tokens, time and speed are named on stderr if more than ten seconds are expected, and only then."""
    with reading_progress(Cost(computed_tokens=60_000), 500.0) as advance:
        advance(100)
    assert (
        "reading about 60,000 tokens takes about 2 minutes on this machine (500 tokens/s)"
        in capsys.readouterr().err
    )
    with reading_progress(Cost(distinct_tokens=60_000, computed_tokens=1_000), 500.0) as advance:
        advance(1_000)
    assert capsys.readouterr().err == ""
