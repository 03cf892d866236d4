"""The tables of chat prompts, from studies of made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ccrank.metrics.tasks import holm, paired_test
from studies.chat import chat as script

TASKS = [f"t{at}" for at in range(12)]


def study(level: float, dataset: str = "facts") -> pd.DataFrame:
    """τ of both rules; those of the expected digit are higher by a half."""
    rng = np.random.default_rng(3)
    return pd.concat(
        pd.DataFrame(
            {"dataset": dataset, "method": rule, "task": TASKS, "tau": level + step + 0.01 * rng.random(12)}
        )
        for rule, step in zip(script.RULES, (0.0, 0.5), strict=True)
    )


def test_changes_are_paired_and_corrected_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks in another order are matched; p are those of the paired test, corrected over the table; a later pair of
    folders replaces the dataset."""
    stored = {"old": study(0.9), "raw": study(0.0), "chat": study(-0.2).iloc[::-1]}
    monkeypatch.setattr(script, "load_results", stored.__getitem__)
    frame = script.read(["m=old,old", "m=raw,chat"])
    table = script.compared(frame, ("name", "method"), "form", script.FORMS)
    merged = stored["raw"].merge(stored["chat"], on=["method", "task"])
    expected = [
        paired_test(part["tau_y"], part["tau_x"], np.random.default_rng(0)).p_value
        for _, part in merged.groupby("method", sort=False)
    ]
    assert table["p"].tolist() == pytest.approx(expected)
    assert table["holm"].tolist() == pytest.approx(holm(expected))
    assert (table["chat"] - table["raw"]).tolist() == pytest.approx([-0.2, -0.2], abs=0.01)
    shown = script.markdown(table, ("name", "method"), script.FORMS)
    assert "| name | method | raw | chat | facts, 12 |" in shown
    assert "(+0.00 → −0.20)* |" in shown
