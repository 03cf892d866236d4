"""Labels through `ccrank.rank` and `ccrank.ask`, on a tiny model."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank import Criterion, Task, ask, rank, rank_tasks
from ccrank.errors import CcrankError
from ccrank.labels import Labels
from ccrank.methods.labelled import observations
from ccrank.methods.labelled.session import Belief, best_grade, best_pair
from ccrank.metrics.order import tau_b

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Monaco", "Peru", "Cuba", "Japan", "France")
LABELS = {"Russia": 17.1, "Canada": 10.0, "Chad": 1.3, "Monaco": 0.0}


@pytest.fixture(scope="module")
def reader():
    return tiny_reader()


def test_no_label_is_exactly_auto(reader):
    """Empty labels give the very scores of `auto`, and its intervals."""
    plain = rank(ITEMS, "size", model=reader)
    empty = rank(ITEMS, "size", model=reader, labels={})
    assert (empty.scores == plain.scores).all()
    assert plain.uncertainty is not None
    assert empty.uncertainty is not None
    assert (empty.uncertainty.deviation == plain.uncertainty.deviation).all()


@pytest.mark.parametrize("context", [None, "Chad is large."])
def test_order_of_items_and_labels_does_not_matter(reader, context):
    """The same scores, deviations and intervals, with and without a context."""
    labels = [{name: LABELS[name]} for name in LABELS] + [("Peru", "Cuba"), ("Japan", "France")]
    one = rank(ITEMS, "size", model=reader, labels=labels, context=context)
    two = rank(ITEMS[::-1], "size", model=reader, labels=labels[::-1], context=context)
    assert one.uncertainty is not None
    assert two.uncertainty is not None
    for name in ("deviation", "rank_low", "rank_high"):
        assert (getattr(one.uncertainty, name) == getattr(two.uncertainty, name)[::-1]).all()
    assert (one.scores == two.scores[::-1]).all()
    json.dumps(one.to_json())


def test_labelled_items_follow_their_labels(reader):
    """The labelled items are in the order of their values, whatever `auto` says."""
    plain = rank(ITEMS, "size", model=reader)
    opposite = {item: float(place) for place, item in enumerate(plain.items)}
    found = rank(ITEMS, "size", model=reader, labels=opposite)
    assert tau_b(found.scores, plain.scores) < -0.9
    assert found.details["labels"]["label_free_tau"] == -1


def test_two_labels_do_not_overrule_exemplars(reader):
    """Labels that contradict the label-free order take less of its weight where exemplars were written."""
    weights = {}
    for answer in ("no", "yes"):
        plain = rank(ITEMS, "size", model=reader, options={"exemplars": answer})
        assert ("exemplars" in plain.details["signals"]) == (answer == "yes")
        labels = {plain.items[0]: 0.0, plain.items[-1]: 1.0}
        labelled = rank(ITEMS, "size", model=reader, labels=labels, options={"exemplars": answer})
        weights[answer] = labelled.details["labels"]["label_free_weight"]
    assert weights["yes"] > weights["no"]
    session = ask(
        ITEMS, "size", model=reader, answers=[("value", name, str(value)) for name, value in labels.items()]
    )
    assert session.fitted is not None
    assert session.fitted.expected("prior_weight") == pytest.approx(weights["yes"], abs=1e-4)


def test_labels_are_for_one_list_and_for_auto(reader):
    """Several tasks or another method are refused, not silently ranked without the labels."""
    tasks = [Task(Criterion("size"), ITEMS, id=str(number)) for number in range(2)]
    with pytest.raises(CcrankError, match="one list; there are 2 tasks"):
        rank_tasks(tasks, reader, options={"labels": LABELS})
    with pytest.raises(CcrankError, match="poles uses no labels"):
        rank(ITEMS, "size", model=reader, method="poles", labels=LABELS)
    with pytest.raises(CcrankError, match="labels contain 'Mars'"):
        rank(ITEMS, "size", model=reader, labels={"Mars": 1, "Chad": 2})
    with pytest.raises(CcrankError, match="labels='rows'"):
        rank_tasks(tasks, reader, options={"labels": "rows"})


def test_one_path_for_one_list_and_for_many(reader):
    """A list's own values as labels give what the same labels give when they come from outside."""
    task = Task(Criterion("size"), ITEMS, values=tuple(range(9)), id="one")
    [inside] = rank_tasks([task], reader, options={"labels": "tasks"})
    outside = rank(ITEMS, "size", model=reader, labels=dict(zip(ITEMS, range(9), strict=True)))
    assert inside.scores == pytest.approx(outside.scores)


def test_a_session_settles(reader):
    """Every item is asked about once; intervals shrink, the order becomes that of the answers, and undo goes back."""
    truth = {item: place for place, item in enumerate(ITEMS)}
    session = ask(ITEMS, "size", model=reader, kind="grade")
    start = session.ranking
    asked = []
    for question in session:
        asked += question.items
        question.answer(truth[question.items[0]])
    assert sorted(asked) == sorted(ITEMS)
    end = session.ranking
    assert tau_b(end.scores, [truth[item] for item in end.task.items]) > 0.9
    assert end.uncertainty is not None
    assert (end.uncertainty.rank_high - end.uncertainty.rank_low).mean() < 4
    rows = list(session.rows)
    assert ask(ITEMS, "size", model=reader, kind="grade", answers=rows).ranking.scores == pytest.approx(
        end.scores
    )
    while session.undo():
        pass
    assert (session.ranking.scores == start.scores).all()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("value", "Mars", "1"), "answer 2 of the earlier ones: labels contain 'Mars'"),
        (("pair", ITEMS[1], "Mars"), "answer 2 of the earlier ones: labels contain 'Mars'"),
        (
            ("value", ITEMS[1], "much"),
            "answer 2 of the earlier ones: the value of .* is not a number: 'much'",
        ),
    ],
)
def test_bad_earlier_answers_are_named(reader, row, message):
    """By their number."""
    with pytest.raises(CcrankError, match=message):
        ask(ITEMS, "size", model=reader, answers=[("value", ITEMS[0], "1"), row])


def test_undo_leaves_earlier_answers(reader):
    """Without a word `undo` takes back this session's answers alone; `earlier=True` goes on to those given to it."""
    rows = [("value", ITEMS[0], "1"), ("pair", ITEMS[1], ITEMS[2])]
    session = ask(ITEMS, "size", model=reader, kind="grade", answers=rows)
    session.question().answer(3)
    assert session.undo()[2] == "3"
    assert session.undo() is None
    assert session.rows == rows
    assert session.undo(earlier=True) == rows[1]
    session.question().answer(2)
    assert session.undo()[2] == "2"
    assert session.undo() is None
    assert session.rows == rows[:1]


def test_answers_are_checked(reader):
    """A pair is answered by one of its items, a grade by a number."""
    question = ask(ITEMS, "size", model=reader, kind="pair").question()
    assert question is not None
    with pytest.raises(CcrankError, match="the higher item is"):
        question.answer("Mars")
    question.answer(question.items[1])
    assert question.session.rows == [("pair", question.items[1], question.items[0])]
    grade = ask(ITEMS, "size", model=reader, kind="grade").question()
    assert grade is not None
    with pytest.raises(CcrankError, match="a grade is a number"):
        grade.answer("high")
    with pytest.raises(CcrankError, match="grade, pair or both"):
        ask(ITEMS, "size", model=reader, kind="all")


def test_questions_are_about_what_is_unknown():
    """An item that moves many others teaches more than one that is known or that moves itself alone; a pair whose
    order is open more than one that is settled."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal(4000)
    draws = np.stack([
        common, common + 0.1 * rng.standard_normal(4000), common - 0.1 * rng.standard_normal(4000),
        1e-3 * rng.standard_normal(4000), 5 + rng.standard_normal(4000), -5 + 1e-3 * rng.standard_normal(4000),
    ])  # fmt: skip
    belief = Belief(draws.mean(axis=1), np.cov(draws), 0.05)
    assert best_grade(belief, np.arange(6))[0][0] in (0, 1, 2)
    (high, low), _ = best_pair(belief, np.ones((6, 6), bool))
    assert {high, low} & {0, 1, 2}
    assert not {high, low} & {4, 5}


def test_a_repeated_pair_is_one_observation(reader):
    """4,000 copies of a pair, which would fill gigabytes, give the scores of the pair alone."""
    once = rank(ITEMS, "size", model=reader, labels=[("Peru", "Cuba")])
    often = rank(ITEMS, "size", model=reader, labels=[("Peru", "Cuba")] * 4000)
    assert (often.scores == once.scores).all()


def test_labels_beyond_the_bound_or_the_memory_are_refused(monkeypatch):
    """Too many rows, also those of best × worst picks, and a fit beyond the free memory, are refused unallocated."""
    items = [f"item {one}" for one in range(200)]
    with pytest.raises(CcrankError, match=r"10,200 observations"):
        observations.observations_of([Labels(best=tuple(items[:100]), worst=tuple(items[100:]))], [items])
    monkeypatch.setattr(observations, "available_memory", lambda _: 1_000_000)
    with pytest.raises(CcrankError, match="GB are free"):
        observations.observations_of([Labels.parse(dict.fromkeys(items, 1))], [items])


def test_many_unknown_labels_are_refused_quickly():
    """100,000 labels of unknown items are parsed and refused in seconds: the time is linear."""
    start = time.process_time()
    labels = Labels.parse({f"unknown {one}": one for one in range(100_000)})
    with pytest.raises(CcrankError, match="unknown 0"):
        labels.check(ITEMS)
    assert time.process_time() - start < 8
