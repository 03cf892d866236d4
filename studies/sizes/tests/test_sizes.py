"""The table of models by size: its cells equal the rows of the studies, and the page shows what the table holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from studies.sizes import sizes as script

HERE = Path(__file__).parents[1]


def rows(shift: float, tasks: int = 12) -> pd.DataFrame:
    """Results of two methods, one of them directed, with two seeds each."""
    generator = np.random.default_rng(3)
    lines = []
    for task in range(tasks):
        for seed in range(2):
            for method, directed in (("auto", True), ("pca", False)):
                tau = float(np.clip(generator.normal(0.1, 0.2) + shift, -1, 1))
                lines.append(
                    {
                        "dataset": "scalaradj",
                        "task": str(task),
                        "method": method,
                        "split": "none",
                        "seed": seed,
                        "tau": tau,
                        "abs_tau": abs(tau),
                        "chance_abs_tau": 0.25,
                        "directed": directed,
                        "family": "label-free" if directed else "baseline",
                    }
                )
    return pd.DataFrame(lines)


def test_cells_are_means_over_tasks_and_survive_the_file(tmp_path: Path) -> None:
    """A cell is the mean over tasks of the mean over seeds, and a CSV file returns the same cells."""
    for name, shift in (("small", 0.0), ("large", 0.4)):
        (tmp_path / name).mkdir()
        rows(shift).to_parquet(tmp_path / name / "results.parquet")
    studies = script.read_studies([f"big:1500={tmp_path / 'large'}", f"little:135={tmp_path / 'small'}"])
    assert list(studies) == [("little", 135.0), ("big", 1500.0)]
    cells = [cell for (name, size), one in studies.items() for cell in script.cells_of(name, size, one)]
    for cell in cells:
        own = rows(0.0 if cell.model == "little" else 0.4).query("method == @cell.method")
        assert cell.tau == pytest.approx(own["tau"].mean(), abs=1e-4)
        assert cell.abs_tau == pytest.approx(own["abs_tau"].mean(), abs=1e-4)
        assert cell.tau_low < cell.tau < cell.tau_high
    script.write_csv(cells, tmp_path / "cells.csv")
    assert script.read_csv(tmp_path / "cells.csv") == cells
    table = script.tests(studies)
    assert "big less little, 2 tests" in table
    assert float(table.splitlines()[-2].split("|")[-2]) < 0.01
    assert script.figure_sizes(cells) is not None


def test_the_page_shows_the_stored_table() -> None:
    """The tables of studies/sizes/README.md are those of studies/sizes/sizes.csv."""
    summary = script.summary(script.read_csv(HERE / "sizes.csv"))
    page = (HERE / "README.md").read_text(encoding="utf-8")
    for table in summary.split("\n\n"):
        assert table in page
