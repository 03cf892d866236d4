"""Which items are asked about first."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from ccrank.methods.labelled.lists import agreements
from ccrank.methods.labelled.prior import grid
from ccrank.methods.labelled.session import Belief, Session, best_grade, best_pair, representative
from ccrank.ranking import Ranking
from ccrank.task import Criterion, Task
from ccrank.util.zscores import z_scores


def clusters(seed=0, sizes=(12, 9, 6), width=60):
    """Kernel of items in groups of different sizes, and the group of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    states = 3 * rng.standard_normal((len(sizes), width))[group] + rng.standard_normal((len(group), width))
    return states @ states.T / width, group


def test_the_first_items_stand_for_groups_by_their_size():
    """The largest group is asked about first, then the next ones: an item tells little about what is known."""
    for seed in range(5):
        kernel, group = clusters(seed)
        known: list[int] = []
        for _ in range(3):
            left = [item for item in range(len(group)) if item not in known]
            known.append(representative(kernel, np.zeros(len(group)), known, left))
        assert group[known].tolist() == [0, 1, 2]


def test_an_outlier_does_not_stand_for_others():
    """However large its states are; and only candidates are chosen."""
    kernel, group = clusters()
    size = len(group)
    larger = np.zeros((size + 1, size + 1))
    larger[:size, :size] = kernel
    larger[size, size] = 1000 * kernel.max()
    assert representative(larger, np.zeros(size + 1), [], range(size + 1)) < size
    assert representative(larger, np.zeros(size + 1), [], [size]) == size


def test_the_label_free_score_counts():
    """Where states say nothing, an item far from the middle tells more about the weight of the label-free score."""
    prior = np.array([0.1, -0.2, 2.5, 0.3, -0.1])
    assert representative(np.eye(5), prior, [], range(5)) == 2
    assert representative(np.eye(5), prior, [2], [0, 1, 3, 4]) == pytest.approx(3)


def beliefs(seed=0, count=9):
    """A distribution of scores, and many draws of it: (N, T)."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((count, 5)) / 2
    belief = Belief(rng.standard_normal(count), root @ root.T + 0.2 * np.eye(count), noise=0.1)
    return belief, rng.multivariate_normal(belief.mean, belief.covariance, 400_000).T


def test_covariances_of_ranks_are_exact():
    """The covariance of ranks with scores is that of draws."""
    belief, draws = beliefs()
    ranks = np.argsort(np.argsort(draws, axis=0), axis=0)
    sampled = np.cov(ranks, draws)[: len(ranks), len(ranks) :]
    assert belief.rank_covariance() == pytest.approx(sampled, abs=0.015)
    assert np.abs(sampled).max() > 1


@pytest.mark.parametrize("seed", range(3))
def test_the_best_questions_are_those_of_draws(seed):
    """The grade and the pair that are chosen, and their gains, are those that follow from draws of the scores."""
    belief, draws = beliefs(seed)
    candidates = np.array([0, 2, 3, 5, 8])
    ranks = np.argsort(np.argsort(draws, axis=0), axis=0)
    ranks = ranks - ranks.mean(axis=1, keepdims=True)

    def told(answer):
        return np.sum((ranks @ (answer - answer.mean()) / len(answer)) ** 2)

    grades = {item: told(draws[item]) / (draws[item].var() + 0.1) for item in candidates}
    pairs = {}
    for first, second in combinations(candidates, 2):
        difference = draws[first] - draws[second]
        spread = difference.var() + 0.2
        z = difference.mean() / np.sqrt(spread)
        open_order = norm.pdf(z) ** 2 / (norm.cdf(z) * norm.cdf(-z))
        pairs[first, second] = open_order * told(difference) / spread
    allowed = np.zeros((len(draws), len(draws)), bool)
    allowed[np.ix_(candidates, candidates)] = True
    both = (
        (best_grade, candidates, {(item,): gain for item, gain in grades.items()}),
        (best_pair, allowed, pairs),
    )
    for best, among, gains in both:
        chosen, gain = best(belief, among)
        assert gain == pytest.approx(max(gains.values()), rel=0.02)
        assert gains[chosen] == pytest.approx(max(gains.values()), rel=0.01)


def pair_session(seed: int, agreement: float, count=60) -> tuple[Session, np.ndarray]:
    """A session of pairs on random states, and the gold; the label-free score agrees with it so far."""
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((count, 2, 16))
    gold = states[:, 0, 0] + 0.3 * rng.standard_normal(count)
    auto = z_scores(agreement * z_scores(gold) + np.sqrt(1 - agreement**2) * states[:, 1, 1])
    task = Task(Criterion("size"), tuple(f"item {place}" for place in range(count)))
    return Session(Ranking(task, auto, "auto", "", True), (states, states), "pair"), gold


def answer_by(session: Session, gold: np.ndarray, most: int) -> list[tuple[int, ...]]:
    """Answer up to so many questions by the gold; the items that each was about."""
    asked = []
    while len(asked) < most and (question := session.question()) is not None:
        places = tuple(session.items.index(item) for item in question.items)
        question.answer("first" if gold[places[0]] > gold[places[1]] else "second")
        asked.append(places)
    return asked


def test_questions_end_when_the_order_is_settled():
    """Each item is compared once before any is compared again; no order that follows from answers is asked for; right
    answers end in the right order, and all of them hold in every order on the way."""
    session, gold = pair_session(0, 0.5, count=12)
    asked = answer_by(session, gold, 6)
    assert sorted(np.ravel(asked)) == list(range(12))
    while pairs := answer_by(session, gold, 1):
        asked += pairs
        scores = session.ranking.scores
        assert all(
            scores[session.items.index(row[1])] > scores[session.items.index(row[2])] for row in session.rows
        )
    assert len({frozenset(pair) for pair in asked}) == len(asked) < 12 * 11 / 2
    assert list(session.ranking.order) == np.argsort(-gold).tolist()
    assert session.right_pairs == 1
    assert session.good_enough


def test_a_graded_item_is_compared_too():
    """A session of pairs that goes on from one of grades ends in the right order of all items, the graded ones among
    them, and the intervals of ranks leave nothing open."""
    session, gold = pair_session(0, 0.5, count=8)
    session.resume([("value", session.items[place], "3") for place in (0, 1)])
    answer_by(session, gold, 100)
    assert list(session.ranking.order) == np.argsort(-gold).tolist()
    doubt = session.ranking.uncertainty
    assert doubt is not None
    assert (doubt.rank_low == doubt.rank_high).all()


def test_every_annotator_is_asked():
    """The answers of one annotator keep no question from another, and their agreement over the same pairs counts."""
    session, gold = pair_session(0, 0.5, count=6)
    session.annotator = "Ann"
    first = answer_by(session, gold, 100)
    session.annotator = "Bob"
    second = answer_by(session, -gold, 100)
    assert len(first) > 4
    assert len(second) > 4
    [entry] = agreements(session.labels)
    assert entry["annotators"] == ["Ann", "Bob"]
    assert entry["agreement"] == 0


def test_about_equal_and_unknown_are_answers():
    """Neither is asked again; equal items come closer, and an unknown order teaches nothing."""
    session, _ = pair_session(1, 0.5, count=2)
    session.question().answer("unknown")
    assert session.question() is None
    assert session.ranking is session.start
    other, _ = pair_session(1, 0.5, count=2)
    other.question().answer("equal")
    assert other.question() is None
    before, after = (abs(np.diff(one.scores))[0] for one in (other.start, other.ranking))
    assert after < 0.7 * before
    assert len(other.labels) == 1


def test_the_first_pairs_show_whether_the_label_free_score_is_right(monkeypatch):
    """With eight answers its weight differs more between right and wrong scores than if pairs were chosen by the
    model that the scores come from."""

    def difference() -> float:
        weights = []
        for agreement in (0.95, 0.0):
            own = []
            for seed in range(4):
                session, gold = pair_session(seed, agreement, count=100)
                answer_by(session, gold, 8)
                assert session.fitted is not None
                own.append(session.fitted.expected("prior_weight"))
            weights.append(np.mean(own))
        return float(weights[0] - weights[1])

    undecided = difference()
    monkeypatch.setattr(Session, "_undecided", lambda session: session.fitted)
    assert undecided > difference() + 0.1


def test_pairs_are_chosen_without_trust_in_the_label_free_score():
    """Every weight of the label-free score is equally probable where pairs are chosen, and all settings count."""
    total = {}
    for one in grid(undecided=True):
        total[one.prior_weight] = total.get(one.prior_weight, 0) + np.exp(one.log_prior)
    assert total[0.0] == pytest.approx(total[0.25]) == pytest.approx(total[0.5])
    assert {(one.prior_weight, one.kernel_share, one.mix) for one in grid(undecided=True)} == {
        (one.prior_weight, one.kernel_share, one.mix) for one in grid()
    }


@pytest.mark.parametrize("count", [2, 3, 8, 15])
def test_a_session_of_both_ends_when_all_items_are_graded(count):
    """Where no pair is left, the turn goes to a grade; items of one grade are still compared."""
    session, gold = pair_session(0, 0.5, count=count)
    session.kind = "both"
    while (question := session.question()) is not None:
        places = [session.items.index(item) for item in question.items]
        if question.kind == "pair":
            question.answer("first" if gold[places[0]] > gold[places[1]] else "second")
        else:
            question.answer(1 + (gold[places[0]] > 0))
        assert len(session.rows) < count * count
    assert len(session.labels.values) == count
    high = sum(gold > 0)
    assert [session.items.index(item) for item in session.ranking.items][:high] == np.argsort(-gold).tolist()[
        :high
    ]


def test_two_items_are_compared_once():
    """Where only two items are left that have been compared with each other, the session ends."""
    session, gold = pair_session(0, 0.5, count=2)
    assert len(answer_by(session, gold, 10)) == 1
