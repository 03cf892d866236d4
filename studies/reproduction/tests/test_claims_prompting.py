"""The benchmark of the paper's claims about prompting: measures against plain counts, numbers against the methods."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations, permutations, product

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy
from ccrank.metrics.order import kendall_tau, pair_accuracy, tau_b
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task
from studies.reproduction import claims_measures as measures
from studies.reproduction import claims_prompting as script

ITEMS = [("Russia", "Canada", "Brazil", "Chad"), ("red", "fox", "dog", "tower", "bridge")]
TASKS = [
    Task(
        Criterion("size", "larger", category="thing"),
        tuple(sorted(items)),
        values=tuple(float((3 * place) % 7) for place in range(len(items))),
        id=f"task {number}",
    )
    for number, items in enumerate(ITEMS)
]
GOLDS = [np.asarray(task.values) for task in TASKS]


def random_margins(count: int, seed: int) -> np.ndarray:
    margins = np.random.default_rng(seed).normal(size=(count, count))
    np.fill_diagonal(margins, np.nan)
    return margins


def test_permuted_chance_is_that_of_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampled chance level is the mean over all orders of gold; of answers on one scale it is that of orders."""
    monkeypatch.setattr(measures, "PERMUTATIONS", 20_000)
    margins = random_margins(4, 3)
    levels = [pair_accuracy(margins, gold) for gold in permutations(range(4))]
    wanted = np.mean([max(one, 1 - one) for one in levels])
    found = measures.permuted_accuracy(margins, np.random.default_rng(0))
    assert found == pytest.approx(wanted, abs=0.005)
    scale = np.subtract.outer(np.arange(4.0), np.arange(4.0))
    np.fill_diagonal(scale, np.nan)
    found = measures.permuted_accuracy(scale, np.random.default_rng(0))
    assert found == pytest.approx(chance_free_accuracy(4), abs=0.005)


def test_accuracies_of_answers_are_counts() -> None:
    """Means over tasks and runs of the better direction; the gap is that of order and answers."""
    margins = [[random_margins(4, 1), random_margins(4, 2)], [random_margins(5, 3), random_margins(5, 4)]]
    runs = [np.random.default_rng(5).normal(size=(2, count)) for count in (4, 5)]
    found = measures.accuracy_of_answers(margins, runs, GOLDS)
    single, final = [], []
    for answers, scores, gold in zip(margins, runs, GOLDS, strict=True):
        for one, row in zip(answers, scores, strict=True):
            right = [(one[i, j] > 0) == (gold[i] > gold[j]) for i, j in permutations(range(len(gold)), 2)]
            ordered = [(row[i] > row[j]) == (gold[i] > gold[j]) for i, j in combinations(range(len(gold)), 2)]
            single.append(max(np.mean(right), 1 - np.mean(right)))
            final.append(max(np.mean(ordered), 1 - np.mean(ordered)))
    assert found["single"] == pytest.approx(np.mean(single))
    assert found["final"] == pytest.approx(np.mean(final))
    assert found["gap"] == pytest.approx(np.mean(final) - np.mean(single))
    coins = [sum(max(k, n - k) * math.comb(n, k) for k in range(n + 1)) / n / 2**n for n in (12, 20)]
    assert found["single_coins"] == pytest.approx(np.mean(coins))


def test_calibrations_are_shifts() -> None:
    """Without calibration a model that always says Yes does so; with its own mean it follows the scale beneath."""
    margins = []
    for number, gold in enumerate(GOLDS):
        scale = np.subtract.outer(gold, gold) + 100.0 * (number + 1)
        np.fill_diagonal(scale, np.nan)
        margins.append(scale)
    found = measures.calibrations(margins, GOLDS)
    assert (found["none"]["yes"], found["none"]["one_answer"]) == (1.0, 1.0)
    assert (found["task"]["yes"], found["task"]["one_answer"], found["task"]["tau"]) == (0.5, 0.0, 1.0)
    assert found["dataset"]["one_answer"] == 1.0  # the two tasks differ by more than their scales
    assert math.isnan(found["none"]["p"])


def circular(beats: dict[tuple[int, int], bool], count: int) -> int:
    return sum(beats[a, b] == beats[b, c] == beats[c, a] for a, b, c in combinations(range(count), 3))


def test_triads_are_counts_over_all_presentations() -> None:
    """In single answers: the mean over every choice of an order of presentation; in the net: of the mean margin. The
    mean and the variance of all tournaments are those of z."""
    margins = random_margins(4, 8)
    pairs = list(combinations(range(4), 2))
    counts = []
    for turned in product((False, True), repeat=len(pairs)):
        beats = {}
        for (i, j), other in zip(pairs, turned, strict=True):
            beats[i, j] = bool(margins[j, i] < 0 if other else margins[i, j] > 0)
            beats[j, i] = not beats[i, j]
        counts.append(circular(beats, 4))
    net = {(i, j): bool(margins[i, j] > margins[j, i]) for i, j in permutations(range(4), 2)}
    found = measures.transitivity([[margins, margins]])  # a run that is repeated changes nothing
    assert found["single"] == pytest.approx(np.mean(counts))
    assert found["net"] == circular(net, 4)
    every = []
    for wins in product((False, True), repeat=len(pairs)):
        beats = dict(zip(pairs, wins, strict=True))
        every.append(circular(beats | {(j, i): not one for (i, j), one in beats.items()}, 4))
    assert found["by_chance"] == pytest.approx(np.mean(every))
    assert found["z"] == pytest.approx((found["net"] - np.mean(every)) / np.std(every))
    assert found["coefficient"] == pytest.approx(1 - found["net"] / max(every))
    assert [measures.most_circular_triads(size) for size in (3, 4, 5)] == [1, max(every), 5]
    margins[0, 1] = margins[1, 0] = np.nan
    assert math.isnan(measures.transitivity([[margins]])["coefficient"])  # its maximum is not known
    assert found["coefficient_by_chance"] == pytest.approx(1 - np.mean(every) / max(every))


def test_lists_and_wordings_are_means_and_deviations() -> None:
    """Deviations are over runs or wordings of the mean over tasks; runs are not averaged before that."""
    generator = np.random.default_rng(4)
    wordings = [[generator.normal(size=(3, len(gold))) for gold in GOLDS] for _ in range(4)]
    runs = wordings[0]
    found = measures.listwise([own[0] for own in runs], runs, [0.5, 1.0], GOLDS)
    by_run = [
        np.mean([abs(kendall_tau(own[run], gold)) for own, gold in zip(runs, GOLDS, strict=True)])
        for run in range(3)
    ]
    assert found["single_abs_tau"] == pytest.approx(np.mean(by_run))
    assert found["single_sd"] == pytest.approx(np.std(by_run, ddof=1))
    within = [
        np.std([kendall_tau(row, gold) for row in own], ddof=1) for own, gold in zip(runs, GOLDS, strict=True)
    ]
    assert found["within"] == pytest.approx(np.mean(within))
    assert found["labels"] == 0.75
    found = measures.sensitivity(wordings, GOLDS)
    table = [
        [
            np.mean([abs(kendall_tau(own[run], gold)) for own, gold in zip(one, GOLDS, strict=True)])
            for one in wordings
        ]
        for run in range(3)
    ]
    assert found["sd"] == pytest.approx(np.mean([np.std(row, ddof=1) for row in table]))
    np.testing.assert_allclose(measures.abs_tau_by_wording(wordings, GOLDS), np.transpose(table))
    agree = [
        abs(tau_b(first[task][run], second[task][run]))
        for first, second in combinations(wordings, 2)
        for task in range(2)
        for run in range(3)
    ]
    assert found["between"] == pytest.approx(np.mean(agree))
    same = measures.sensitivity([runs, runs, runs], GOLDS)
    assert (same["sd"], same["between"]) == pytest.approx((0.0, 1.0))


def test_deviation_by_chance_is_that_of_random_orders() -> None:
    """`sd_by_chance` is the deviation of the mean |τ| over all orders of each task."""
    found = measures.sensitivity([[np.arange(4.0)[None]], [np.arange(4.0)[None]]], [np.arange(4.0)])
    sizes = [abs(kendall_tau(order, range(4))) for order in permutations(range(4))]
    assert found["sd_by_chance"] == pytest.approx(np.std(sizes))


def test_a_model_that_ignores_the_direction_is_reversed() -> None:
    """The same choices under both directions are reversed rankings: τ between them is −1."""
    rows = [np.arange(4.0), np.arange(5.0)]
    turned = [-row for row in rows]
    found = measures.directions({"none": rows, "descending": rows, "ascending": turned}, GOLDS)
    assert found["both"]["agree"] == -1.0
    assert found["descending"]["tau"] == pytest.approx(-found["ascending"]["tau"])
    assert found["descending"]["p"] == 1.0


def test_there_are_several_wordings_of_each_prompt() -> None:
    """At least four each, all different, the method's own first; no list states a direction."""
    wordings, templates = script.wordings_of(script.WORDINGS), load_templates(script.WORDINGS)
    assert [names[0] for names in wordings.values()] == ["pair", "single-scale", "list"]
    for names in wordings.values():
        for form in ("causal", "masked"):
            assert len({templates[name].wording(form) for name in names}) == len(names) >= 5
    assert not any("highest" in templates[name].text for name in wordings["list"])


def test_numbers_are_those_of_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    """On a tiny model the script's |τ| equals that of the methods' own rankings, for prompts and for probes."""
    reader, templates = tiny_reader(), load_templates(script.WORDINGS)
    dataset = script.Dataset(TASKS, reader, templates, seeds=2, shuffles=2)
    wordings = {
        "pair": ["pair", "pair-statement"],
        "single": ["single-scale", "single"],
        "list": ["list", "list-lines"],
    }
    probes = ["pca", "random", "ccs-pair"]
    found = script.measure(dataset, wordings, probes, script.QUESTIONS)

    def mean_size(method: str, **options: object) -> float:
        rankings = rank_tasks(TASKS, reader, method, templates, options=options)
        return float(
            np.mean([abs(kendall_tau(one.scores, gold)) for one, gold in zip(rankings, GOLDS, strict=True)])
        )

    assert found["calibration"]["task"]["abs_tau"] == pytest.approx(mean_size("prompt-pair"))
    assert found["calibration"]["none"]["abs_tau"] == pytest.approx(
        mean_size("prompt-pair", calibration="none")
    )
    assert found["lists"]["prompt-list"]["joined_abs_tau"] == pytest.approx(
        mean_size("prompt-list", shuffles=2)
    )
    letters = {"shuffles": 2, "calibration": "letters", "direction": "ascending"}
    assert found["direction"]["ascending, letters calibrated"]["abs_tau"] == pytest.approx(
        mean_size("prompt-list", **letters)
    )
    for method, wording, options in (
        ("prompt-pair", "pair-statement", {"template": "pair-statement"}),
        ("prompt-point", "single-scale", {}),
        ("prompt-point", "single", {"template": "single"}),
        ("prompt-list", "list-lines", {"template": "list-lines", "shuffles": 2}),
        ("pca", "single", {"template": "single"}),
    ):
        assert found["by_wording"][method][wording] == pytest.approx(mean_size(method, **options))
    assert found["pairs"]["prompt-pair"]["final_chance"] == pytest.approx(
        np.mean([chance_free_accuracy(len(gold)) for gold in GOLDS])
    )
    assert found["wordings"]["random"]["chance"] == pytest.approx(
        np.mean([chance_abs_tau(len(gold)) for gold in GOLDS])
    )
    script.print_tables({"mine": found}, script.QUESTIONS)
    tables = [block.splitlines() for block in capsys.readouterr().out.split("\n\n") if block.startswith("|")]
    assert len(tables) == len(script.QUESTIONS) + 1
    for lines in tables:
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in lines}) == 1
        assert all(line.startswith("| mine |") for line in lines[2:]) or "mine" in lines[0]
    json.loads(json.dumps(script.plain(found), allow_nan=False))
