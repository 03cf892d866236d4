"""The table of the jury, from the folders of two studies."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from studies.jury import jury as script


def folder(path: Path, scores: list[list[float]]) -> str:
    """A study's folder as far as it is read: results, and tasks of three items in the order of their gold."""
    path.mkdir()
    about = {"dataset": "everyday", "half": "report"}
    list_ = {"criterion": "size", "items": ["a", "b", "c"], "values": [1, 2, 3], "about": about}
    tasks = [{"id": str(at), **list_} for at in range(len(scores))]
    (path / "tasks.jsonl").write_text("\n".join(json.dumps(task) for task in tasks), encoding="utf-8")
    rows = [{"dataset": "everyday", "task": str(at), "scores": one} for at, one in enumerate(scores)]
    pd.DataFrame(rows).to_parquet(path / "results.parquet")
    return str(path)


def test_members_with_other_scales_count_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are standardised first, so large numbers do not decide alone; errors that differ cancel."""
    monkeypatch.setattr(script, "load_results", lambda name: pd.read_parquet(Path(name, "results.parquet")))
    first = folder(tmp_path / "first", [[0.0, 2.0, 1.9], [3.0, 2.0, 1.0]])
    second = folder(tmp_path / "second", [[100.0, 90.0, 300.0], [1.0, 2.0, 3.0]])
    rows = script.lists_of(first, second)
    assert rows["first"].tolist() == pytest.approx([1 / 3, -1])
    assert rows["second"].tolist() == pytest.approx([1 / 3, 1])
    assert rows["together"].tolist()[0] == pytest.approx(1)
    assert rows["agreement"].tolist() == pytest.approx([-1 / 3, -1])
    assert "| everyday report, 2 | -0.333 | 0.667 |" in script.table(rows)
