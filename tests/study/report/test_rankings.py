from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccrank.metrics.order import kendall_tau
from ccrank.study.report import page_data as rankings
from ccrank.study.report.page_data import DIGITS, LEVELS, pack_rankings, pack_scores, script_json
from ccrank.task import Task


def unpacked(text: str) -> list[int]:
    return [64 * DIGITS.index(text[i]) + DIGITS.index(text[i + 1]) for i in range(0, len(text), 2)]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=True), min_size=2, max_size=40))
@example([0.0, 5e-324])
@settings(max_examples=150, deadline=None)
def test_packed_scores_keep_order_and_ties(scores: list[float]) -> None:
    """Any two scores compare as their packed levels do, for any distance."""
    levels = unpacked(pack_scores(scores))
    values = np.nan_to_num(np.asarray(scores), posinf=1e300, neginf=-1e300)
    for a, x in zip(levels, values, strict=True):
        assert 0 <= a < LEVELS
        for b, y in zip(levels, values, strict=True):
            assert np.sign(a - b) == np.sign(float(x > y) - float(x < y))


def test_packed_scores_keep_distances() -> None:
    """Well-spread scores are unchanged up to one level."""
    scores = np.random.default_rng(0).random(30)
    share = (scores - scores.min()) / np.ptp(scores)
    np.testing.assert_allclose(
        np.asarray(unpacked(pack_scores(scores))) / (LEVELS - 1), share, atol=2 / LEVELS
    )


@given(
    st.recursive(
        st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
@settings(max_examples=100, deadline=None)
def test_script_json_is_json_and_cannot_leave_its_element(value: object) -> None:
    """It parses to the original value and contains no character that is special in HTML."""
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_packed_rankings_give_back_each_tau(
    results: pd.DataFrame, tasks_by_key: dict[tuple[str, str], Task]
) -> None:
    """τ recomputed from the packed scores and gold equals the packed τ."""
    packed = pack_rankings(results, tasks_by_key)
    assert len(packed["tasks"]) == len(tasks_by_key)
    assert packed["left_out"] == 0
    for task in packed["tasks"]:
        assert len(task["rankings"]) == len(packed["columns"])
        for column, scores, tau, low, high in task["rankings"]:
            again = kendall_tau(unpacked(scores), [-place for place in task["gold"]])
            assert abs(100 * again - tau) <= 0.5 + 1e-9
            assert low <= tau <= high
            assert packed["columns"][column]["directed"] or tau >= 0


def test_too_many_tasks_are_thinned_evenly(
    results: pd.DataFrame, tasks_by_key: dict[tuple[str, str], Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a small budget fewer tasks are kept, from the first to the last, and the rest is counted."""
    everything = pack_rankings(results, tasks_by_key)
    size = len(script_json(everything["tasks"]))
    monkeypatch.setattr(rankings, "MAX_BYTES", size // 3)
    packed = pack_rankings(results, tasks_by_key)
    assert 0 < len(packed["tasks"]) < len(everything["tasks"])
    assert len(packed["tasks"]) + packed["left_out"] == len(everything["tasks"])
    assert len(script_json(packed["tasks"])) <= size // 3 + 100
    assert packed["tasks"][0]["id"] == everything["tasks"][0]["id"]
    assert packed["tasks"][-1]["id"] == everything["tasks"][-1]["id"]
