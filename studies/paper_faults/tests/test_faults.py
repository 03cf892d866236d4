"""The demonstrations of studies/paper_faults/faults.py, small: each shows what its conclusion says."""

from __future__ import annotations

import numpy as np
import pytest
import transformers
from packaging.version import Version
from tiny import tiny_reader

from ccrank.metrics.chance import chance_abs_tau
from ccrank.task import Criterion, Task
from studies.paper_faults import faults as script

WORDS = (
    "Russia",
    "Canada",
    "Brazil",
    "Chad",
    "Peru",
    "Monaco",
    "fox",
    "dog",
    "tower",
    "bridge",
    "blue",
    "red",
)


@pytest.fixture(scope="module")
def given():
    generator = np.random.default_rng(0)
    tasks = [
        Task(
            Criterion("size", poles=("small", "large")),
            tuple(generator.choice(WORDS, 5, replace=False).tolist()),
            values=tuple(generator.permutation(5).astype(float).tolist()),
            id=f"task {number}",
        )
        for number in range(8)
    ]
    return script.material(tasks, tiny_reader())


def by_name(finding):
    assert str(finding).startswith(finding.title)
    assert str(finding).endswith(finding.conclusion)
    assert all(len(row) == len(finding.columns) for row in finding.rows)
    return {row[0]: row[1:] for row in finding.rows}


def test_the_printed_loss_is_lowest_at_ones():
    """As printed, all ones is below a ranking and any other matrix; with a square, the ranking is."""
    rows = by_name(script.loss(items=4, steps=300))
    printed, squared = ({name: row[place] for name, row in rows.items()} for place in (1, 2))
    assert min(printed, key=printed.get) == "all scores 1"
    assert squared["a perfect ranking"] == squared["its reverse"] == 0 == min(squared.values())
    assert squared["gradient descent, squared"] < squared["gradient descent, printed"]


def test_the_printed_biases_break():
    """Cut points at 0 and 1 give infinite or tied biases off α = β = 1; midpoints give K − 1 usable ones."""
    rows = by_name(script.biases(ranks=6))
    assert rows["midpoints of K − 1 pieces (ccrank)"] == (5, "yes", "yes", "yes")
    assert rows["all cut points of K − 1 pieces"] == (6, "yes", "infinite", "ties")
    assert rows["inner cut points of K − 1 pieces"][0] == 4


def test_the_printed_rule_says_nothing():
    """For a consistent probe the printed prediction is 0 and that of CCS is f(x⁺)."""
    for plus, _, printed, original in script.rule().rows:
        assert printed == pytest.approx(0)
        assert original == pytest.approx(plus)


def test_chance_is_what_is_drawn():
    """Enumerated or drawn, random orders reach the exact chance levels, which fall with the number of items."""
    rows = script.chance(most=7, draws=4000).rows
    for _, exact, drawn, *_ in rows:
        assert drawn == pytest.approx(exact, abs=0.02)
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)


def test_a_missing_head_is_random():
    """Without its head a checkpoint loads without an error and answers differently each time; ccrank refuses it."""
    rows = by_name(script.head(inputs=100))
    assert rows["BERT, complete"] == ("none", 0, "100%", "answers")
    error, missing, equal, ours = rows["BERT, saved without its head"]
    assert (error, ours) == ("none", "refuses")
    assert missing > 0
    assert equal != "100%"
    if Version(transformers.__version__) >= Version("5.20"):  # earlier ones cannot load it; the error says so
        assert rows["DeBERTa, its own head's names"][3] == "answers"


def test_gold_chooses_the_direction(given):
    """A direction for each task is at least as good as one for all tasks, which is at least as good as none."""
    rows = by_name(script.direction(given, seeds=3))
    for free, for_all, for_each, floor in rows.values():
        assert free <= for_all <= for_each
        assert floor == pytest.approx(chance_abs_tau(5))


def test_probes_stay_near_their_start(given):
    """Training lowers every loss, and margin keeps the order of its start more than ordreg does."""
    rows = by_name(script.start(given, seeds=3))
    for name in ("ccs", "margin", "triplet", "ordreg"):
        before, after, _, agreement, _ = rows[name]
        assert after < before
        assert agreement <= 1
    assert rows["margin"][3] > rows["ordreg"][3]
    assert rows["chance"][-1] == pytest.approx(chance_abs_tau(5))


def test_a_ceiling_fits_noise(given):
    """With fewer items than dimensions a supervised probe fits gold and shuffled gold alike."""
    for row in by_name(script.ceiling(given)).values():
        assert row[:2] == ("+1.00", "+1.00")
