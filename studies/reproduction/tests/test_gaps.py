"""Gaps between neighbouring scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ccrank.methods.probing.fits import fit_each
from ccrank.methods.probing.objectives import Settings
from studies.reproduction import gaps as script


def test_equal_gaps_have_no_variation() -> None:
    """Whatever the order and the scale of the scores; of a random order the gaps vary."""
    assert script.variation(np.array([0.4, 0.0, 0.2, 0.6])) == pytest.approx(0)
    assert script.variation(np.array([0.0, 0.1, 0.5])) == pytest.approx(0.6)
    assert np.isnan(script.variation(np.zeros(4)))


def test_the_table_has_means_over_seeds_then_tasks() -> None:
    """A trained margin probe on random states has gaps of the margin; a random direction has not."""
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(5, 64)) for _ in range(12)]
    rows = []
    for method in ("margin", "random"):
        fits = fit_each(states, method, seeds=(0, 1), settings=Settings(learning_rate=0.01))
        for number, scores in enumerate(fits.scores(states)):
            rows += [
                {
                    "model": "m",
                    "dataset": "d",
                    "split": "none",
                    "method": method,
                    "task": number,
                    "scores": one,
                }
                for one in scores
            ]
    table = script.table_of(pd.DataFrame(rows)).set_index("method")
    assert table.loc["margin", "tasks"] == 12
    assert table.loc["margin", "mean_gap"] == pytest.approx(0.22, abs=0.04)
    assert table.loc["margin", "high"] < table.loc["random", "low"]
