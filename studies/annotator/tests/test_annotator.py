"""The study of annotators: stored answers are replayed, hold no texts, and the page shows what they give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_reader

from ccrank import Criterion, Task
from ccrank.errors import CcrankError
from ccrank.metrics.order import kendall_tau
from ccrank.models.remote.chat import Choice
from studies.annotator import annotator as script

HERE = Path(__file__).parents[1]
SIZES = {"ant": 1.0, "cat": 2.0, "dog": 3.0, "pig": 4.0, "cow": 5.0, "elk": 6.0}
TASK = Task(
    Criterion("size", "larger", category="animal"), tuple(SIZES), values=tuple(SIZES.values()), id="animals"
)


class Knowing:
    """A chat model that knows the sizes, and how often it was asked."""

    asked = 0

    def choose(self, question: str, first: str, second: str) -> Choice:
        self.asked += 1
        pair = [line[3:] for line in question.splitlines() if line[:3] in ("A: ", "B: ")]
        return Choice(SIZES[pair[0]] - SIZES[pair[1]], 0)


@pytest.fixture
def rating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "rating", lambda chat, task, item: SIZES[item])


def run(path: Path, chat: Any) -> list[tuple[str, int, float]]:
    return [*script.curves(script.NAMES, TASK, script.Annotator(TASK, path, chat), tiny_reader())]


@pytest.mark.usefixtures("rating")
def test_an_annotator_that_knows_orders_the_list_in_every_way(tmp_path: Path) -> None:
    """All ways start alike and end at τ = 1, and each pair is asked about once in each order."""
    chat = Knowing()
    found = run(tmp_path / "answers.csv", chat)
    last = {way: tau for way, _, tau in found}
    assert set(last) == {*script.WAYS, script.ALL, script.RATINGS}
    assert [*last.values()] == pytest.approx([1] * len(last))
    before = {way: tau for way, calls, tau in found if calls == 0}
    assert before["chosen"] == before["random"] == before["one order"]
    assert before["random alone"] == 0
    assert chat.asked == len(SIZES) * (len(SIZES) - 1)


@pytest.mark.usefixtures("rating")
def test_stored_answers_are_replayed(tmp_path: Path) -> None:
    """A second run asks nothing and finds the same; one that was cut short asks for what is missing."""
    path = tmp_path / "answers.csv"
    found = run(path, Knowing())
    assert run(path, None) == found
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:8]), encoding="utf-8")
    with pytest.raises(CcrankError, match="give --annotator"):
        run(path, None)
    chat = Knowing()
    assert run(path, chat) == found
    assert chat.asked == len(SIZES) * (len(SIZES) - 1) - 7
    assert sorted(path.read_text(encoding="utf-8").splitlines(keepends=True)) == sorted(lines)


def test_answers_that_contradict_each_other_are_none(tmp_path: Path) -> None:
    """Both orders are summed; a missing answer leaves the pair open."""
    path = tmp_path / "answers.csv"
    rows = [
        "list,first,second,answer",
        "animals,0,1,0.5",
        "animals,1,0,0.5",
        "animals,0,2,2",
        "animals,2,0,-1.5",
    ]
    path.write_text(
        "\n".join([*rows, "animals,1,2,", "animals,2,1,inf", "animals,3,4,inf", "animals,4,3,0.0"])
    )
    annotator = script.Annotator(TASK, path, None)
    assert [annotator.odds(*pair) for pair in ((0, 1), (0, 2), (2, 0), (1, 2))] == [0, 3.5, -3.5, 0]
    assert annotator.odds(3, 4) == script.SURE
    assert [script.row_of(pair, annotator)[:3] for pair in ((0, 1), (2, 0))] == [
        ("unknown", "ant", "cat"),
        ("pair", "ant", "dog"),
    ]


def names() -> Iterator[tuple[Task, script.Annotator]]:
    """The lists of names, whose items are in the repository, with their stored answers."""
    for task in script.names():
        yield task, script.Annotator(task, HERE / "answers.csv", None)


def test_stored_answers_hold_numbers_alone() -> None:
    """Beside the names of lists, so that no text of others is in the repository; of names, all pairs are there."""
    rows = script.read_rows(HERE / "answers.csv")
    assert all(re.fullmatch(r"\d*", row["first"] + row["second"]) for row in rows)
    assert all(row["answer"] == "" or float(row["answer"]) for row in rows)
    stored = {(row["list"], row["first"], row["second"]) for row in rows}
    assert len(stored) == len(rows)
    for task, _ in names():
        wanted = permutations(range(len(task.items)), 2)
        assert stored >= {(task.id, str(first), str(second)) for first, second in wanted}


def test_stored_curves_are_those_of_the_stored_answers() -> None:
    """τ of all pairs and of the ratings, which need no small model."""
    rows = script.read_rows(HERE / "taus.csv")
    for task, annotator in names():
        assert task.values is not None
        every = [*combinations(range(len(task.items)), 2)]
        scores = script.order_of(every, annotator)
        ratings = [annotator.rating(place) for place in range(len(task.items))]
        for way, table in ((script.ALL, scores), (script.RATINGS, ratings)):
            [stored] = [row["tau"] for row in rows if (row["list"], row["way"]) == (task.id, way)]
            assert float(stored) == pytest.approx(kendall_tau(table, task.values), abs=1e-4)


def test_the_page_shows_the_stored_curves() -> None:
    """Its table and the numbers beside it."""
    page = (HERE / "README.md").read_text(encoding="utf-8")
    rows = script.read_rows(HERE / "taus.csv")
    assert script.table(rows) in page
    for cell in [*script.facts(rows).values(), *script.right_answers(HERE).values()]:
        assert cell in page
