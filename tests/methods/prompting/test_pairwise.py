"""prompt-pair against plain loops over logits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fake import FakeReader, logits_among, make_task, random_logits
from hypothesis import given, settings
from hypothesis import strategies as st

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import CONTENT_FREE
from ccrank.methods.prompting.pairwise import MAX_ITEMS_OF_ALL_PAIRS, prompt_pair
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates

EXTREME = [0.0, 0.0, 1.0, -1.0, 1e30, -1e30, 3e38, 1e-30]


def question(first, second):
    return f"Is {first} more in terms of size than {second}? _"


def all_logits(task, logit):
    """(first, second) → the logits of Yes and No, asked one by one."""
    return {
        (i, j): (logit(question(a, b), "Yes"), logit(question(a, b), "No"))
        for i, a in enumerate(task.items)
        for j, b in enumerate(task.items)
        if i != j
    }


def order_by_wins(count, answers):
    """The paper's rule: a Yes is a point for the first, a No one for the second; equal points, summed logits."""
    points, sums = [0.0] * count, [0.0] * count
    for (first, second), (yes, no) in answers.items():
        if yes > no:
            points[first] += 1
        elif no > yes:
            points[second] += 1
        sums[first] += yes - no
        sums[second] += no - yes
    return points, sorted(range(count), key=lambda item: (-points[item], -sums[item]))


def minus_means(answers):
    """Each token loses the mean of its logits over all prompts of the task."""
    mean_yes = sum(yes for yes, _ in answers.values()) / len(answers)
    mean_no = sum(no for _, no in answers.values()) / len(answers)
    return {pair: (yes - mean_yes, no - mean_no) for pair, (yes, no) in answers.items()}


@given(st.integers(2, 9), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_the_default_is_the_papers(count, seed):
    """Mean calibration, win counts and the tie-break by summed logits are the paper's, step by step."""
    task, logit = make_task(count), random_logits(seed)
    [answer] = prompt_pair([task], Prompter(FakeReader(logit)))
    points, order = order_by_wins(count, minus_means(all_logits(task, logit)))
    assert np.argsort(-answer.scores, kind="stable").tolist() == order
    assert np.floor(answer.scores).tolist() == points
    assert answer.details["comparisons"] == count * (count - 1) == answer.cost.prompts


@given(st.integers(2, 7), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_without_calibration_the_plain_answers_count(count, seed):
    """calibration=none counts the more likely word of each prompt."""
    task, logit = make_task(count), random_logits(seed)
    [answer] = prompt_pair([task], Prompter(FakeReader(logit)), calibration="none")
    _, order = order_by_wins(count, all_logits(task, logit))
    assert np.argsort(-answer.scores, kind="stable").tolist() == order


def log_odds(yes, no, share):
    """log p(Yes)/p̄(Yes) − log p(No)/p̄(No), with p̄(Yes) = share."""
    p_yes = 1 / (1 + math.exp(no - yes))
    return math.log(p_yes / share) - math.log((1 - p_yes) / (1 - share))


def yes_share(pairs):
    return sum(1 / (1 + math.exp(no - yes)) for yes, no in pairs) / len(pairs)


@pytest.mark.parametrize("calibration", ["contextual", "batch", "pmi"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_other_calibrations_are_their_formulas(calibration, seed):
    """The margins come from the right reference prompts: content-free items, all prompts, or the bare end."""
    task, logit = make_task(4), random_logits(seed)
    answers = all_logits(task, logit)
    ends = {
        "contextual": [question(word, word) for word in CONTENT_FREE],
        "pmi": ["? _"],
        "batch": [question(task.items[i], task.items[j]) for i, j in answers],
    }[calibration]
    share = yes_share([(logit(end, "Yes"), logit(end, "No")) for end in ends])
    expected = [0.0] * 4
    for (first, second), (yes, no) in answers.items():
        margin = log_odds(yes, no, share)
        expected[first] += margin / 2 / 3
        expected[second] -= margin / 2 / 3
    [answer] = prompt_pair([task], Prompter(FakeReader(logit)), calibration=calibration, aggregate="margins")
    np.testing.assert_allclose(answer.scores, expected, atol=1e-5)


@pytest.mark.parametrize("aggregate", ["wins", "margins", "bradley-terry", "kemeny"])
@given(constant=st.floats(-30, 30), seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_a_liking_for_yes_changes_no_order(aggregate, constant, seed):
    """With mean calibration a constant on the logits of Yes leaves every aggregation's scores."""
    task, logit = make_task(5), random_logits(seed)
    liked = FakeReader(lambda text, word: logit(text, word) + (constant if word == "Yes" else 0))
    [plain] = prompt_pair([task], Prompter(FakeReader(logit)), aggregate=aggregate)
    [found] = prompt_pair([task], Prompter(liked), aggregate=aggregate)
    np.testing.assert_allclose(found.scores, plain.scores, atol=1e-3)


@pytest.mark.parametrize("aggregate", ["wins", "margins", "bradley-terry", "kemeny"])
@pytest.mark.parametrize("pairs", ["all", "sort", 3])
def test_a_consistent_model_is_followed(aggregate, pairs):
    """Where the answers follow one scale, every aggregation of all pairs or a sort finds it, biased or not."""
    task = make_task(12)
    level = {item: float(np.random.default_rng(index).normal()) for index, item in enumerate(task.items)}

    def logit(text, word):
        first, second = (text[3:12], text[-12:-3])
        return (level[first] - level[second] + 0.3) * (word == "Yes")

    [answer] = prompt_pair([task], Prompter(FakeReader(logit)), aggregate=aggregate, pairs=pairs)
    gold = [level[item] for item in task.items]
    agree = np.corrcoef(np.argsort(np.argsort(gold)), np.argsort(np.argsort(answer.scores)))[0, 1]
    # A sort trusts each answer alone, and a few opponents do not meet everyone.
    assert agree > (0.99 if pairs == "all" else 0.6 if pairs == 3 else 0.9)


@given(st.integers(2, 60), st.lists(st.sampled_from(EXTREME), min_size=1, max_size=4), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_a_sort_is_a_permutation_whatever_the_answers(count, values, seed):
    """Ties, cycles and extremes included; and it asks O(N log N) questions, all of them counted."""
    task, reader = make_task(count), FakeReader(logits_among(values, seed))
    [answer] = prompt_pair([task], Prompter(reader), pairs="sort")
    assert sorted(answer.scores.tolist()) == list(range(count))
    assert answer.details["comparisons"] == len(reader.asked)
    assert len(reader.asked) <= 4 * count * math.log2(count) + 100
    assert all(first != second for first, second in map(words_of, reader.asked))


def words_of(text):
    first, _, second = text.removeprefix("Is ").removesuffix("? _").partition(" more in terms of size than ")
    return first, second


@pytest.mark.parametrize("seed", range(12))
def test_a_sort_of_two_items_works_for_every_seed(seed):
    """The pairs that set the calibration are never of an item and itself, and never none."""
    [answer] = prompt_pair([make_task(2)], Prompter(FakeReader(random_logits(3))), pairs="sort", seed=seed)
    assert sorted(answer.scores) == [0, 1]


@pytest.mark.parametrize("count", [200, 400])
def test_long_lists_are_sorted_with_few_questions(count):
    """auto sorts lists of more than 50 items: at most 2 N log2 N questions in O(log N) rounds."""
    reader = FakeReader(lambda text, word: float(words_of(text)[0] > words_of(text)[1]) * (word == "Yes"))
    [answer] = prompt_pair([make_task(count)], Prompter(reader))
    assert answer.scores.tolist() == list(range(count))
    assert len(reader.asked) <= 2 * count * math.log2(count)
    assert answer.details["rounds"] <= 4 * math.log2(count)


@pytest.mark.parametrize("calibration", ["mean", "none", "contextual", "batch", "pmi"])
def test_every_round_of_a_sort_is_calibrated_alike(calibration):
    """With any calibration but none, a sort recovers the order of a model with a strong bias for one answer."""

    def logit(text, word):
        first, second = words_of(text) if "more" in text else ("", "")
        return (30.0 + (first > second) - (first < second)) * (word == "Yes")

    [answer] = prompt_pair(
        [make_task(20)], Prompter(FakeReader(logit)), pairs="sort", calibration=calibration
    )
    assert (answer.scores.tolist() == list(range(20))) == (calibration != "none")


@pytest.mark.parametrize(("count", "opponents"), [(10, 2), (10, 3), (9, 4), (30, 6)])
def test_few_opponents(count, opponents):
    """pairs=k asks each item about k others, each pair once, and ranks all items."""
    reader = FakeReader(random_logits(1))
    [answer] = prompt_pair([make_task(count)], Prompter(reader), pairs=opponents)
    pairs = [words_of(text) for text in reader.asked]
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == count * opponents / 2
    for item in make_task(count).items:
        assert sum(item in pair for pair in pairs) == opponents
    assert len(answer.scores) == count
    assert np.isfinite(answer.scores).all()


def test_more_opponents_than_items_are_all_pairs():
    """pairs=k with k ≥ N − 1 asks every ordered pair."""
    reader = FakeReader(random_logits(1))
    prompt_pair([make_task(5)], Prompter(reader), pairs="9")
    assert len(reader.asked) == 20


def test_auto_changes_over_where_it_says():
    """50 items are asked in all pairs, 51 are sorted."""
    for count, all_pairs in ((MAX_ITEMS_OF_ALL_PAIRS, True), (MAX_ITEMS_OF_ALL_PAIRS + 1, False)):
        reader = FakeReader(lambda text, word: float(text < word))
        prompt_pair([make_task(count)], Prompter(reader))
        assert (len(reader.asked) == count * (count - 1)) == all_pairs


@pytest.mark.parametrize("pairs", ["all", "sort", 2])
def test_tasks_together_are_as_tasks_alone(pairs):
    """Ranking several tasks in one call gives each what it gets by itself."""
    tasks = [make_task(count, name) for count, name in ((3, "size"), (6, "age"), (4, "weight"))]
    reader = FakeReader(random_logits(5))
    together = prompt_pair(tasks, Prompter(reader), pairs=pairs)
    for task, answer in zip(tasks, together, strict=True):
        [alone] = prompt_pair([task], Prompter(FakeReader(random_logits(5))), pairs=pairs)
        assert alone.scores.tolist() == answer.scores.tolist()


def test_all_tasks_are_read_at_once():
    """All pairs of all tasks are one reading, so that they share model passes."""
    reader = FakeReader(random_logits(5))
    prompt_pair([make_task(3), make_task(4)], Prompter(reader))
    assert reader.readings == 1


def test_the_single_answers_are_kept_with_their_items():
    """A ranking's margins are the calibrated answers, in the order of the items as they were given; a sort has none."""
    task, logit = make_task(5), random_logits(9)
    turned = replace(task, items=tuple(task.items[index] for index in (3, 0, 4, 2, 1)))
    answers = minus_means(all_logits(turned, logit))
    [ranking] = rank_tasks([turned], FakeReader(logit), "prompt-pair")
    assert np.isnan(np.diag(ranking.pair_margins)).all()
    for (first, second), (yes, no) in answers.items():
        assert ranking.pair_margins[first, second] == pytest.approx(yes - no, abs=1e-5)
    [ranking] = rank_tasks([turned], FakeReader(logit), "prompt-pair", options={"pairs": "sort"})
    assert ranking.pair_margins is None


def test_consistency_of_a_perfect_model():
    """A model that follows a scale agrees in both orders, has no circular triads and no liking for the first."""
    reader = FakeReader(lambda text, word: float(words_of(text)[0] > words_of(text)[1]) * (word == "Yes"))
    [ranking] = rank_tasks([make_task(6)], reader, "prompt-pair")
    assert ranking.consistency == {
        "both_orders_agree": 1.0,
        "circular_triads": 0.0,
        "circular_triads_by_chance": 5.0,
        "first_wins": 0.5,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregate": "magic"}, "unknown aggregation 'magic'; choose one of wins"),
        ({"calibration": "magic"}, "unknown calibration 'magic'"),
        ({"calibration": "magic", "pairs": "sort"}, "unknown calibration 'magic'"),
        ({"pairs": "some"}, "not 'some'"),
        ({"pairs": 0}, "0 opponents"),
        ({"pairs": -1}, "-1 opponents"),
        ({"seed": -1}, "got -1"),
        ({"template": "single"}, "two candidates"),
        ({"template": "nowhere"}, "no template 'nowhere'"),
    ],
)
def test_bad_options_are_refused(options, message):
    """The message has the value."""
    with pytest.raises(CcrankError, match=message):
        prompt_pair([make_task(4)], Prompter(FakeReader(random_logits(1))), **options)


def test_a_template_without_one_of_the_items_is_refused():
    """It would ask the same of every pair."""
    templates = load_templates(changes=["pair=Is {item_a} large? {slot}"])
    with pytest.raises(CcrankError, match="item_b"):
        prompt_pair([make_task(3)], Prompter(FakeReader(random_logits(1)), templates))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad):
    """A model that overflows in half precision gives no order, and is named as the cause."""
    with pytest.raises(CcrankError, match=r"task 'task'.*not all finite.*float32"):
        prompt_pair([make_task(3)], Prompter(FakeReader(lambda text, word: bad)))
