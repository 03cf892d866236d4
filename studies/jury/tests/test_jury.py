"""The tables of the jury, from the folders of studies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from studies.jury import jury as script

GOLD = (1.0, 2.0, 3.0)


def folder(path: Path, parameters: int, scores: list[list[float]], signals: float = 0.5) -> str:
    """A study's folder as far as it is read: results, models, and tasks of three items in the order of their gold."""
    path.mkdir()
    about = {"dataset": "everyday", "half": "report"}
    list_ = {"criterion": "size", "items": ["a", "b", "c"], "values": GOLD, "about": about}
    tasks = [{"id": str(at), **list_} for at in range(len(scores))]
    (path / "tasks.jsonl").write_text("\n".join(json.dumps(task) for task in tasks), encoding="utf-8")
    known = {"models": {path.name: {"parameters": parameters}}}
    (path / "environment.json").write_text(json.dumps(known), encoding="utf-8")
    shared = {"dataset": "everyday", "method": "auto", "model": path.name, "consistency": signals}
    rows = [{**shared, "task": str(at), "scores": one} for at, one in enumerate(scores)]
    pd.DataFrame(rows).to_parquet(path / "results.parquet")
    return str(path)


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results without the columns that are not read."""
    monkeypatch.setattr(script, "load_results", lambda name: pd.read_parquet(Path(name, "results.parquet")))


def test_members_with_other_scales_count_alike(tmp_path: Path) -> None:
    """Scores are standardised first, so large numbers do not decide alone; errors that differ cancel."""
    first = folder(tmp_path / "first", 100, [[0.0, 2.0, 1.9], [3.0, 2.0, 1.0]])
    second = folder(tmp_path / "second", 100, [[100.0, 90.0, 300.0], [1.0, 2.0, 3.0]])
    models, lists = script.lists_of([first, second])
    assert models == ["first", "second"]
    assert {(one.group, one.half) for one in lists} == {("everyday", "report")}
    assert script.Choice((0,)).taus(lists).tolist() == pytest.approx([1 / 3, -1])
    assert script.Choice((1,)).taus(lists).tolist() == pytest.approx([1 / 3, 1])
    assert script.Choice((0, 1)).taus(lists)[0] == pytest.approx(1)
    assert [one.agreement((0, 1)) for one in lists] == pytest.approx([-1 / 3, -1])
    shown = script.report_table(models, lists, [script.Choice((0, 1))])
    assert "| first + second, equal | everyday, 2 | second 0.667 |" in shown


def test_rules_weigh_what_they_name(tmp_path: Path) -> None:
    """Of three members, the larger one, the one with more agreement of its signals, the one that is not alone."""
    right, wrong = [[1.0, 2.0, 3.0]], [[3.0, 2.0, 1.0]]
    folders = [
        folder(tmp_path / "a", 100, right, 0.4),
        folder(tmp_path / "b", 100, right, 0.4),
        folder(tmp_path / "c", 400, wrong, 0.8),
    ]
    _, [one] = script.lists_of(folders)
    everyone = (0, 1, 2)
    np.testing.assert_allclose(one.weights(everyone, "equal", 1), [1, 1, 1])
    np.testing.assert_allclose(one.weights(everyone, "size", 0.5), [10, 10, 20])
    np.testing.assert_allclose(one.weights(everyone, "signals", 2), [0.16, 0.16, 0.64])
    np.testing.assert_allclose(one.weights(everyone, "size and signals", 1), [40, 40, 320])
    np.testing.assert_allclose(one.weights(everyone, "others", 1), [script.LEAST, script.LEAST, script.LEAST])
    assert one.tau(everyone, "size", 1) == -1
    assert one.tau(everyone, "equal") == 1


def test_power_and_jury_are_those_of_the_highest_mean(tmp_path: Path) -> None:
    """A good large member and a bad small one: size with the highest power is chosen."""
    good = folder(tmp_path / "good", 120, [[1.0, 2.0, 3.0]] * 2)
    bad = folder(tmp_path / "bad", 100, [[3.0, 2.0, 1.0]] * 2)
    models, lists = script.lists_of([good, bad])
    table, best = script.choose_table(models, lists)
    assert best.rule == "size"
    assert best.taus(lists).tolist() == [1, 1]
    assert "| good + bad | 0.000 | 1.000 (0.25) |" in table


def test_area_is_that_of_scikit_learn() -> None:
    """The area under the curve of rates, by its definition as a share of pairs."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    sign, right = rng.integers(0, 5, 40).astype(float), rng.random(40) < 0.5
    assert script.area(sign, right) == pytest.approx(roc_auc_score(right, sign))
