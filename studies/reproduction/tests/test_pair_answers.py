"""The benchmark of what pairwise answers follow: its regression, and its numbers against the method's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank import CcrankError
from ccrank.api import rank_tasks
from ccrank.metrics.order import kendall_tau
from ccrank.task import Criterion, Task
from studies.reproduction import pair_answers as script
from studies.reproduction import prompting as page

GOLD = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
TASKS = [
    Task(
        Criterion("size", "larger", poles=("small", "large"), category="thing"),
        items,
        values=tuple(float((3 * place) % 7) for place in range(len(items))),
        id=f"task {number}",
    )
    for number, items in enumerate(
        [("Russia", "Canada", "Brazil", "Chad"), ("red", "fox", "dog", "tower", "bridge")]
    )
]


def answers(first: float, second: float, bias: float = 0.7) -> np.ndarray:
    """Margins that follow the first and the second item's gold."""
    margins = bias + first * GOLD[:, None] + second * GOLD[None, :]
    np.fill_diagonal(margins, np.nan)
    return margins


@pytest.mark.parametrize(("first", "second"), [(1.0, -1.0), (0.25, 0.75), (0.0, 2.0)])
def test_coefficients_are_those_that_made_the_answers(first: float, second: float) -> None:
    """The regression tells the two items apart, though each list pairs an item with all others but itself."""
    found = script.coefficients(answers(first, second), GOLD)
    assert found == pytest.approx((first * GOLD.std(), second * GOLD.std()))


def test_answers_that_follow_the_second_item_are_reversed() -> None:
    """A model that compares ranks as gold does; one that follows the second text more than the first has τ = −1, and
    keeps its answers under the opposite question."""
    task = replace(TASKS[1], items=tuple("abcde"), values=tuple(GOLD))
    comparing, following = (script.row_of([task], [one]) for one in (answers(1, -1), answers(0.25, 0.75)))
    assert (comparing["tau"], following["tau"]) == (1.0, -1.0)
    assert comparing["first_less_second"] > 0 > following["first_less_second"]
    assert script.correlation(answers(1, -1), answers(-1, 1)) == pytest.approx(-1)
    assert script.correlation(answers(0.25, 0.75), answers(0.25, 0.75, bias=3)) == pytest.approx(1)


def test_numbers_are_those_of_the_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """τ is that of `prompt-pair`; the second row asks the opposite question; the program writes both."""
    reader = tiny_reader()
    own, other = script.measure(TASKS, reader)
    for row, tasks in ((own, TASKS), (other, [script.opposite(task) for task in TASKS])):
        rankings = rank_tasks(tasks, reader, "prompt-pair")
        taus = [kendall_tau(one.scores, one.task.values) for one in rankings]
        assert row["tau"] == pytest.approx(np.mean(taus), abs=1e-4)
        assert (row["lists"], row["answers"]) == (2, 4 * 3 + 5 * 4)
        assert row["first_low"] <= row["first"] <= row["first_high"]
    assert (own["comparative"], other["comparative"]) == ("larger", "more small")
    assert "correlation" not in own
    assert -1 <= other["correlation"] <= 1

    monkeypatch.setattr(script, "load_dataset", lambda name, folder: TASKS)
    monkeypatch.setattr(script.Reader, "open", lambda *given: reader)
    monkeypatch.setattr("sys.argv", ["pair_answers.py", "mine", "--json", str(tmp_path / "found.json")])
    script.main()
    stored = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert stored["rows"] == [{"dataset": "mine", **own}, {"dataset": "mine", **other}]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == stored["rows"]
    shown = page.pair_answers({"pair_answers": stored}).splitlines()
    assert shown[2].startswith("| mine (2) | larger |")
    assert shown[2].endswith("| – |")
    assert shown[3].startswith("| mine (2) | more small |")


def test_a_criterion_without_poles_is_refused() -> None:
    """There is no opposite question without a word for the low pole."""
    task = replace(TASKS[0], criterion=Criterion("size", "larger"))
    with pytest.raises(CcrankError, match=r"task 0.*poles"):
        script.opposite(task)
