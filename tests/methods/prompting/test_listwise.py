"""prompt-list against a picker that takes one step at a time."""

from __future__ import annotations

import string
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from fake import FakeReader, logits_among, make_task, random_logits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau
from tiny import tiny_model

from ccrank.errors import CcrankError
from ccrank.methods.prompting.listwise import MAX_OPTIONS, prompt_list, window_starts
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task

TEMPLATES = load_templates()
VALUES = st.lists(
    st.floats(-(2.0**127), 2.0**127, width=32) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=6
)


def labels_of(count):
    return list(string.ascii_uppercase[:count]) if count <= 26 else [str(n + 1) for n in range(count)]


def question(items, chosen, name="size"):
    labels = labels_of(len(items))
    options = ", ".join(f'"{label}" {item}' for label, item in zip(labels, items, strict=True))
    return (
        f"Order by {name}. Options: {options}. The correct ordering is: {''.join(c + ', ' for c in chosen)}_"
    )


def pick_step_by_step(items, logit, bias, name="size"):
    """The paper's: take the highest-scoring label left, append it to the prompt, and so on. Labels, best first."""
    labels, chosen = labels_of(len(items)), []
    left = list(labels)
    while left:
        text = question(items, chosen, name)
        scores = {label: logit(text, label) - bias[label] for label in left}
        best = next(label for label in left if scores[label] == max(scores.values()))
        chosen.append(best)
        left.remove(best)
    return chosen


def rankings_step_by_step(task, logit, shuffles, window, letters, seed=0):
    """One ranking (item indices, best first) per shuffle, windows sliding from the end of each to its head."""
    generator = np.random.default_rng(seed)
    count = len(task.items)
    orders = [generator.permutation(count).tolist() for _ in range(shuffles)]
    start = max(0, count - window)
    while True:
        parts = [order[start : start + window] for order in orders]
        shown = [[task.items[index] for index in part] for part in parts]
        labels = labels_of(len(parts[0]))
        bias = dict.fromkeys(labels, 0.0)
        if letters:
            for label in labels:
                firsts = [logit(question(items, [], task.criterion.name), label) for items in shown]
                bias[label] = float(np.mean(firsts))
        for order, part, items in zip(orders, parts, shown, strict=True):
            chosen = pick_step_by_step(items, logit, bias, task.criterion.name)
            order[start : start + window] = [part[labels.index(label)] for label in chosen]
        if start == 0:
            return orders
        start = max(0, start - max(1, window // 2))


def mean_ranks(orders):
    """The number of items below each, averaged over the orders."""
    count = len(orders[0])
    return [sum(count - 1 - order.index(item) for order in orders) / len(orders) for item in range(count)]


@given(
    count=st.integers(2, 30),
    values=VALUES,
    seed=st.integers(0, 10**6),
    shuffles=st.integers(1, 4),
    window=st.sampled_from([2, 3, 4, 7, 20, 60]),
    letters=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_guessing_ahead_is_picking_step_by_step(count, values, seed, shuffles, window, letters):
    """Whatever the logits, with ties and extremes, letters or numbers, windows or none, calibrated or not."""
    letters = letters and shuffles > 1
    task, logit = make_task(count), logits_among(values, seed)
    expected = rankings_step_by_step(task, logit, shuffles, window, letters)
    [answer] = prompt_list(
        [task],
        Prompter(FakeReader(logit)),
        shuffles=shuffles,
        window=window,
        calibration="letters" if letters else "none",
    )
    np.testing.assert_allclose(answer.scores, mean_ranks(expected), atol=1e-9)


@given(st.integers(2, 12), st.integers(0, 10**6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_random_logits_too(count, seed, letters):
    """The same with logits that never tie, where the guesses are almost always wrong."""
    task, logit = make_task(count), random_logits(seed)
    expected = rankings_step_by_step(task, logit, 3, 20, letters)
    calibration = "letters" if letters else "none"
    [answer] = prompt_list([task], Prompter(FakeReader(logit)), shuffles=3, calibration=calibration)
    np.testing.assert_allclose(answer.scores, mean_ranks(expected), atol=1e-9)


@pytest.mark.parametrize("window", [4, 20])
@given(count=st.integers(2, 60), values=VALUES, seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_one_shuffle_is_a_permutation(window, count, values, seed):
    """For any logits, from 2 items to 60, in windows that slide over the long lists."""
    reader = FakeReader(logits_among(values, seed))
    [answer] = prompt_list([make_task(count)], Prompter(reader), shuffles=1, window=window)
    assert sorted(answer.scores.tolist()) == list(range(count))


@pytest.mark.parametrize(("count", "values"), [(27, [0.0, 1.0]), (60, [0.0]), (35, [-1e30, 1e30, 1e38])])
def test_numbered_options_are_a_permutation(count, values):
    """Beyond 26 options at once the labels are numbers, some of which begin others."""
    reader = FakeReader(logits_among(values, 0))
    [answer] = prompt_list([make_task(count)], Prompter(reader), shuffles=1, window=60)
    assert sorted(answer.scores.tolist()) == list(range(count))
    assert f'"{count}" thing' in reader.asked[0]


def test_a_right_guess_saves_readings():
    """Where the first answer foretells the rest, the list takes two readings, not N − 1."""
    reader = FakeReader(lambda text, word: float(ord(word)))  # the last letter first, whatever was chosen
    prompt_list([make_task(15)], Prompter(reader), shuffles=2)
    assert reader.readings == 2


def test_a_window_covers_the_list_and_carries_the_best_along():
    """Windows overlap, the first ends at the end, the last begins at the head."""
    for count in range(2, 70):
        for window in range(2, 25):
            starts = window_starts(count, window)
            assert starts[-1] == 0
            assert starts[0] == max(0, count - window)
            assert all(0 < early - late < max(2, window) for early, late in pairwise(starts))


@pytest.mark.parametrize("count", [25, 41, 60])
def test_windows_bring_the_best_to_the_head(count):
    """With a model that knows the scale, the best half window of a long list comes first and in order."""

    def logit(text, label):
        listed = text.split("Options: ")[1].split(". The")[0].split(", ")
        return next(float(one[-3:]) for one in listed if one.startswith(f'"{label}"'))

    [answer] = prompt_list([make_task(count)], Prompter(FakeReader(logit)), shuffles=1)
    best = np.argsort(-answer.scores)[: MAX_OPTIONS // 2].tolist()
    assert best == list(range(count - 1, count - 1 - MAX_OPTIONS // 2, -1))


def test_letters_calibration_takes_a_liking_for_letters_out():
    """A constant on one letter changes the plain order and not the calibrated one."""
    task, logit = make_task(6), random_logits(2)
    biased = FakeReader(lambda text, word: logit(text, word) + (40.0 if word == "C" else 0.0))
    plain, liked = (
        [
            prompt_list([task], Prompter(reader), calibration=how)[0].scores.tolist()
            for how in ("none", "letters")
        ]
        for reader in (FakeReader(logit), biased)
    )
    assert plain[1] == liked[1]
    assert plain[0] != liked[0]


def test_single_runs_are_what_is_joined():
    """`runs` has the ranking of each shuffle; their mean rank is the score; least-first criteria are signed alike."""
    for criterion in (Criterion("size"), Criterion("size", reversed=True)):
        task, logit = replace(make_task(5), criterion=criterion), random_logits(4)
        orders = rankings_step_by_step(task, logit, 3, 20, False)
        [answer] = prompt_list([task], Prompter(FakeReader(logit)), shuffles=3)
        expected = [[criterion.sign * (4 - order.index(item)) for item in range(5)] for order in orders]
        assert answer.runs.tolist() == expected
        np.testing.assert_allclose(answer.runs.mean(axis=0), answer.scores)


def test_following_the_labels_is_reported():
    """τ with the labels' order is 1 for a model that reads off the letters, −1 backwards, also in windows; a model that
    follows the items has that of the shuffles."""
    for count in (6, 41):
        for sign in (1, -1):
            if (count, sign) == (41, -1):
                continue  # windows carry the end of the list to its head, and no further
            reader = FakeReader(lambda text, label, sign=sign: -sign * float(ord(label)))
            [answer] = prompt_list([make_task(count)], Prompter(reader), shuffles=3)
            assert answer.consistency["label_order"] == sign
    task, logit = make_task(5), random_logits(2)
    orders = rankings_step_by_step(task, logit, 4, 20, False)
    generator = np.random.default_rng(0)
    shown = [generator.permutation(5).tolist() for _ in range(4)]
    taus = [
        kendalltau([one.index(item) for item in range(5)], [other.index(item) for item in range(5)]).statistic
        for one, other in zip(orders, shown, strict=True)
    ]
    [answer] = prompt_list([task], Prompter(FakeReader(logit)), shuffles=4)
    assert answer.consistency["label_order"] == pytest.approx(np.mean(taus))


@pytest.mark.parametrize(
    ("direction", "words"),
    [("none", "."), ("descending", ", from highest to lowest."), ("ascending", ", from lowest to highest.")],
)
def test_a_stated_direction_is_followed(direction, words):
    """A model that does as it is told puts the same item first, whichever direction the prompt states; in a prompt
    without one the first choice counts as the highest."""

    def logit(text, label):
        assert text.startswith(f"Order by size{words} Options: ")
        listed = text.split("Options: ")[1].split(". The")[0].split(", ")
        value = next(float(one[-3:]) for one in listed if one.startswith(f'"{label}"'))
        return -value if "from lowest" in text else value

    for count in (6, 41):  # the longer list needs windows
        reader = FakeReader(logit)
        [answer] = prompt_list([make_task(count)], Prompter(reader), shuffles=2, direction=direction)
        extreme = count - 1 if direction != "ascending" else 0
        assert {int(run[extreme]) for run in answer.runs} == {extreme}
        if count == 6:
            assert answer.scores.tolist() == list(range(6))


def test_a_template_replaces_the_wording_and_not_the_direction():
    """With direction=ascending the first choice is the lowest in any wording."""
    templates = load_templates(changes=["own=Sort: {options}. First: {chosen}{slot}"])
    plain, turned = (
        prompt_list(
            [make_task(5)], Prompter(FakeReader(random_logits(3)), templates), template="own", direction=one
        )[0]
        for one in ("none", "ascending")
    )
    assert turned.runs.tolist() == (4 - plain.runs).tolist()


def test_kemeny_contradicts_the_shuffles_least():
    """Of all orders of five items none disagrees with fewer pairs of the shuffles' rankings."""
    task, logit = make_task(5), random_logits(8)
    rankings = rankings_step_by_step(task, logit, 5, 20, False)

    def disagreements(order):
        return sum(
            (ranking.index(a) < ranking.index(b)) != (order.index(a) < order.index(b))
            for ranking in rankings
            for a, b in combinations(range(5), 2)
        )

    [answer] = prompt_list([task], Prompter(FakeReader(logit)), aggregate="kemeny")
    found = np.argsort(-answer.scores).tolist()
    assert disagreements(found) == min(disagreements(order) for order in permutations(range(5)))


def test_tasks_together_are_as_tasks_alone():
    """Tasks of different lengths in one call, one of which needs smaller windows than the others."""
    tasks = [make_task(3), make_task(18, "age"), make_task(9, "weight"), make_task(6, "a " * 40 + "thing")]

    def reader():
        return FakeReader(random_logits(6), window=60)

    for calibration in ("none", "letters"):
        together = prompt_list(tasks, Prompter(reader()), shuffles=2, calibration=calibration)
        for task, answer in zip(tasks, together, strict=True):
            [alone] = prompt_list([task], Prompter(reader()), shuffles=2, calibration=calibration)
            assert alone.scores.tolist() == answer.scores.tolist()


@pytest.mark.parametrize("limit", [16, 20, 30])
def test_windows_shrink_until_they_fit_the_model(limit):
    """A list too long for the model's window is ranked by fewer options at once."""
    reader = FakeReader(random_logits(1), window=limit)
    [answer] = prompt_list([make_task(8)], Prompter(reader), shuffles=1)
    assert sorted(answer.scores.tolist()) == list(range(8))
    assert max(len(text.split()) for text in reader.asked) <= limit


def test_two_items_that_do_not_fit_are_an_error():
    """There is no smaller question than one of two options."""
    with pytest.raises(CcrankError, match="more than 9 words"):
        prompt_list([make_task(8)], Prompter(FakeReader(random_logits(1), window=9)))


def test_the_cost_is_what_was_read():
    """The tasks' shares add up to all prompts that were read, those of the calibration included."""
    reader = FakeReader(random_logits(1))
    tasks = [make_task(4), make_task(7, "age")]
    answers = prompt_list(tasks, Prompter(reader), calibration="letters")
    assert sum(answer.cost.prompts for answer in answers) == len(reader.asked)


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
@pytest.mark.parametrize("calibration", ["none", "letters"])
def test_a_model_picks_step_by_step(family, calibration):
    """On tiny models of each form, guessing ahead equals reading one step after the other."""
    reader = Reader(tiny_model(family), path="one")
    task = Task(Criterion("size"), ("Chad", "Peru", "Russia", "tower"))

    def logit(text, label):
        [prompt] = [p for p in steps if p.text.rstrip(".") == text]
        return float(reader.read([prompt], [label]).logits[0, 0])

    steps = _AllSteps(task, reader.form)
    expected = rankings_step_by_step(task, logit, 2, 20, calibration == "letters")
    [answer] = prompt_list([task], Prompter(Reader(tiny_model(family))), shuffles=2, calibration=calibration)
    assert answer.scores.tolist() == mean_ranks(expected)


class _AllSteps:
    """Every list prompt that picking from the two shuffles of four items can come to."""

    def __init__(self, task, form):
        generator = np.random.default_rng(0)
        shuffles = [generator.permutation(4).tolist() for _ in range(2)]
        self.prompts = [
            TEMPLATES.list(task, shown, chosen, form)
            for shown in shuffles
            for length in range(4)
            for chosen in permutations(range(4), length)
        ]

    def __iter__(self):
        return iter(self.prompts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregate": "magic"}, "unknown aggregation 'magic'"),
        ({"calibration": "mean"}, "not 'mean'"),
        ({"direction": "up"}, "unknown direction 'up'; choose one of none, descending, ascending"),
        ({"shuffles": 0}, "got 0 and"),
        ({"window": 1}, "and 1"),
        ({"seed": -1}, "got -1"),
        ({"calibration": "letters", "shuffles": 1}, "at least 2, got 1"),
        ({"template": "single"}, r"'single' needs \{options\}"),
    ],
)
def test_bad_options_are_refused(options, message):
    """The message has the value."""
    with pytest.raises(CcrankError, match=message):
        prompt_list([make_task(4)], Prompter(FakeReader(random_logits(1))), **options)


def test_logits_that_are_no_numbers_are_refused():
    """The candidates that a shorter list lacks are no trouble; a model's own NaN is."""
    tasks = [make_task(3), make_task(5, "age")]
    prompt_list(tasks, Prompter(FakeReader(random_logits(1))))
    with pytest.raises(CcrankError, match="not all finite"):
        prompt_list(tasks, Prompter(FakeReader(lambda text, word: float("nan"))))
