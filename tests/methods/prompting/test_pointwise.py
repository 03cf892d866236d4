"""prompt-point against plain loops over logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fake import FakeReader, logits_among, make_task, random_logits
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_prompts import probabilities

from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import CONTENT_FREE
from ccrank.methods.prompting.pointwise import RATINGS, argmax_ratings, prompt_point
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task


def question(item):
    return f"On a scale from 0 to 10, the size of {item} is _"


def most_likely(logits):
    """(rating, its logit) of the most likely rating, the lowest of equal ones."""
    best = 0
    for rating in range(1, len(logits)):
        if logits[rating] > logits[best]:
            best = rating
    return best, logits[best]


@given(st.integers(2, 40), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_the_default_is_the_papers(count, seed):
    """Items are ordered by their most likely rating, those with the same rating by its logit."""
    task, logit = make_task(count), random_logits(seed)
    [answer] = prompt_point([task], Prompter(FakeReader(logit)))
    keys = [most_likely([logit(question(item), rating) for rating in RATINGS]) for item in task.items]
    expected = sorted(range(count), key=lambda item: keys[item], reverse=True)
    assert np.argsort(-answer.scores, kind="stable").tolist() == expected
    assert np.floor(answer.scores).tolist() == [rating for rating, _ in keys]


@given(
    st.integers(2, 30),
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=5),
    st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_ties_and_extremes_keep_the_order(count, values, seed):
    """Whatever the logits, a higher (rating, logit) has a higher score and an equal one the same."""
    task, logit = make_task(count), logits_among(values, seed)
    [answer] = prompt_point([task], Prompter(FakeReader(logit)))
    keys = [most_likely([logit(question(item), rating) for rating in RATINGS]) for item in task.items]
    for first in range(count):
        for second in range(count):
            assert (answer.scores[first] > answer.scores[second]) == (keys[first] > keys[second])


def calibrated(table, how, reference):
    """The calibrations as loops: (items, ratings) lists in and out."""
    ratings = range(len(table[0]))
    if how == "none":
        return table
    if how == "mean":
        means = [sum(row[r] for row in table) / len(table) for r in ratings]
        return [[row[r] - means[r] for r in ratings] for row in table]
    compared = table if how == "batch" else reference
    shares = [sum(probabilities(row)[r] for row in compared) / len(compared) for r in ratings]
    return [[math.log(probabilities(row)[r] / shares[r]) for r in ratings] for row in table]


@pytest.mark.parametrize("how", ["none", "mean", "contextual", "batch", "pmi"])
@pytest.mark.parametrize("score", ["argmax", "expected"])
@pytest.mark.parametrize("seed", range(3))
def test_calibrations_and_scores_are_their_formulas(how, score, seed):
    """Each calibration compares with the right prompts; the expected rating is Σ p(r) r."""
    task, logit = make_task(5), random_logits(seed)
    ends = [question(word) for word in CONTENT_FREE] if how == "contextual" else [" is _"]
    rows = calibrated(
        [[logit(question(item), rating) for rating in RATINGS] for item in task.items],
        how,
        [[logit(end, rating) for rating in RATINGS] for end in ends],
    )
    [answer] = prompt_point([task], Prompter(FakeReader(logit)), score=score, calibration=how)
    if score == "expected":
        expected = [sum(p * r for r, p in enumerate(probabilities(row))) for row in rows]
        np.testing.assert_allclose(answer.scores, expected, atol=1e-5)
    else:
        expected = sorted(range(5), key=lambda item: most_likely(rows[item]), reverse=True)
        assert np.argsort(-answer.scores, kind="stable").tolist() == expected


@given(st.data(), st.floats(-30, 30), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_a_liking_for_one_rating_changes_nothing(data, constant, seed):
    """With mean calibration a constant on one rating's logits leaves the scores."""
    liked = data.draw(st.sampled_from(RATINGS))
    task, logit = make_task(6), random_logits(seed)
    biased = FakeReader(lambda text, word: logit(text, word) + (constant if word == liked else 0.0))
    for score in ("argmax", "expected"):
        options = {"score": score, "calibration": "mean"}
        [plain] = prompt_point([task], Prompter(FakeReader(logit)), **options)
        [found] = prompt_point([task], Prompter(biased), **options)
        np.testing.assert_allclose(found.scores, plain.scores, atol=1e-4)


def test_own_ratings_in_any_order():
    """A template's own candidates are the ratings: their numbers count, not their places."""
    rows = np.array([[0.0, 5.0, 1.0], [5.0, 0.0, 1.0], [0.0, 1.0, 5.0], [6.0, 0.0, 1.0]])
    scores = argmax_ratings(rows, np.array([2.0, -1.0, 0.5]))
    assert np.argsort(-scores).tolist() == [3, 1, 2, 0]
    # What is added to order equal ratings is less than half the smallest step between ratings.
    extra = scores - [-1.0, 2.0, 0.5, 2.0]
    assert ((extra >= 0) & (extra < 0.75)).all()


def test_the_scale_can_be_left_out():
    """scale=no asks without naming the scale."""
    reader = FakeReader(random_logits(0))
    prompt_point([make_task(2)], Prompter(reader), scale=False)
    assert reader.asked == ["The size of thing 000 is _", "The size of thing 001 is _"]


def test_all_tasks_are_read_at_once_and_keep_their_own_calibration():
    """Several tasks are read together, and each is calibrated with its own prompts only."""
    tasks = [
        make_task(3),
        Task(Criterion("age"), ("x", "y")),
        Task(Criterion("size"), ("p", "q"), "A story."),
    ]
    for how in ("mean", "contextual", "pmi", "batch"):
        reader = FakeReader(random_logits(4))
        together = prompt_point(tasks, Prompter(reader), score="expected", calibration=how)
        assert reader.readings == 1
        for task, answer in zip(tasks, together, strict=True):
            alone = FakeReader(random_logits(4))
            [single] = prompt_point([task], Prompter(alone), score="expected", calibration=how)
            assert single.scores.tolist() == answer.scores.tolist()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ("", {"score": "median"}, "not 'median'"),
        ("", {"calibration": "magic"}, "unknown calibration 'magic'"),
        ("", {"template": "pair"}, "ratings must be numbers"),
        ("single-scale=The size is {slot}", {}, r"'single-scale' needs \{item\}"),
        ('candidates = ["1"]', {}, "two or more different"),
        ('candidates = ["1", "2", "1.0"]', {}, "two or more different"),
        ('candidates = ["1", "nan"]', {}, "two or more different"),
    ],
)
def test_bad_options_and_templates_are_refused(change, options, message, tmp_path):
    """The message has the value."""
    file = None
    if change.startswith("candidates"):
        file = tmp_path / "own.toml"
        file.write_text(f"[single-scale]\n{change}\n")
        change = ""
    templates = load_templates(file, [change] if change else [])
    with pytest.raises(CcrankError, match=message):
        prompt_point([make_task(3)], Prompter(FakeReader(random_logits(1)), templates), **options)
