"""The order that labels leave: what was said holds, moved items stay, and others move only with evidence."""

from __future__ import annotations

import numpy as np
import pytest

from ccrank import Criterion, Task
from ccrank.labels import Labels
from ccrank.methods.labelled.lists import agreements, score_lists
from ccrank.methods.labelled.settled import best_order, implied, monotone, moved_order
from ccrank.ranking import Answer

NAMES = tuple("abcdefgh")


def scored(labels: object, seed: int = 0) -> Answer:
    """Eight items on random states, whose label-free order is that of their letters."""
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((8, 4, 16)).astype(np.float32)
    start = Answer(np.linspace(1.5, -1.5, 8))
    task = Task(Criterion("size"), NAMES)
    [answer], _ = score_lists([task.items], [Labels.parse(labels)], [start], [(states, states)])
    return answer


def order_of(answer: Answer) -> str:
    return "".join(NAMES[place] for place in np.argsort(-answer.scores))


@pytest.mark.parametrize("seed", range(5))
def test_a_moved_item_stays_and_no_other_moves(seed):
    """A few moves give the order that the user made, whatever the states of the other items suggest."""
    moves = [["h", "below", "a"], ["h", "above", "b"], ["b", "below", "f"], ["b", "above", "g"]]
    assert order_of(scored({"moves": moves[:2]}, seed)) == "ahbcdefg"
    assert order_of(scored({"moves": moves}, seed)) == "ahcdefbg"
    assert order_of(scored({"moves": [["h", "above", "a"]]}, seed)) == "habcdefg"


def test_a_move_is_made_in_the_order_by_all_other_labels():
    """Answers change the order first; the item that is moved in it is the only one that moves."""
    pairs = [["g", "a"], ["h", "b"]]
    before = order_of(scored({"orders": pairs}))
    moved = [item for item in before if item != "d"]
    after = order_of(scored({"orders": pairs, "moves": [["d", "above", moved[0]]]}))
    assert after == "d" + "".join(moved)


def test_answers_hold_unless_they_contradict_each_other():
    """Orders that follow from answers hold too; answers in a cycle do not bind."""
    order = order_of(scored([("h", "e"), ("e", "a")]))
    assert order.index("h") < order.index("e") < order.index("a")
    above = implied([(0, 1), (1, 2), (2, 0), (2, 3)], np.arange(8))
    assert not above[:3, :3].any()
    assert above[:3, 3].all()


def test_the_best_order_is_that_of_all_orders():
    """Moving single items finds the order of the highest gain, compared with all 720 orders."""
    from itertools import permutations

    rng = np.random.default_rng(0)
    for _ in range(5):
        mean = rng.standard_normal(6)
        probability = 1 / (1 + np.exp(mean - mean[:, None] + 0.3 * rng.standard_normal((6, 6))))
        probability = (probability + 1 - probability.T) / 2
        above = np.zeros((6, 6), bool)
        above[5, 0] = True
        gain = 2 * probability - 1 + 0.1 * np.sign(np.arange(6) - np.arange(6)[:, None])
        gains = {
            order: sum(gain[one, other] for place, one in enumerate(order) for other in order[place + 1 :])
            for order in permutations(range(6))
            if order.index(5) < order.index(0)
        }
        found = tuple(best_order(list(range(6)), probability, 0.55, above).tolist())
        assert gains[found] == pytest.approx(max(gains.values()), abs=0.05)


def test_without_evidence_the_order_stays():
    """Pairs whose new order is less probable than the threshold keep their places, others change them."""
    none = np.zeros((3, 3), bool)
    unsure = np.full((3, 3), 0.5) + 0.04 * np.sign(np.arange(3)[:, None] - np.arange(3))
    assert best_order([0, 1, 2], unsure, 0.55, none).tolist() == [0, 1, 2]
    sure = np.full((3, 3), 0.5) + 0.1 * np.sign(np.arange(3)[:, None] - np.arange(3))
    assert best_order([0, 1, 2], sure, 0.55, none).tolist() == [2, 1, 0]


def test_scores_fall_along_the_order():
    """Scores that are in order stay as they are; others meet in the middle, a little apart."""
    mean = np.array([3.0, 1.0, 2.0, 0.0])
    assert monotone(mean, np.array([0, 2, 1, 3])) == pytest.approx(mean)
    found = monotone(mean, np.array([0, 1, 2, 3]))
    assert found == pytest.approx([3, 1.5, 1.5, 0], abs=1e-3)
    assert (np.diff(found) < 0).all()
    assert moved_order([0, 1, 2], [(2, True, 0), (0, False, 1)]) == [2, 1, 0]


def test_annotators_are_weighed_by_their_agreement():
    """Agreement counts the pairs about which two people spoke; who contradicts all others counts less."""
    grades = {name: 8.0 - place for place, name in enumerate(NAMES)}
    wrong = dict(
        zip(NAMES, np.random.default_rng(0).permutation(list(grades.values())).tolist(), strict=True)
    )
    labels = {"annotators": {"ann": grades, "bob": grades, "eve": wrong}}
    found = {tuple(entry["annotators"]): entry for entry in agreements(Labels.parse(labels))}
    assert found["ann", "bob"]["agreement"] == 1
    assert found["ann", "bob"]["pairs"] == 28
    assert found["ann", "eve"]["agreement"] < 0.75
    answer = scored(labels)
    noise = answer.details["labels"]["annotator_noise"]
    assert noise["ann"] == noise["bob"] == 1 < noise["eve"]
    assert order_of(answer) == "abcdefgh"
