"""Do a probe's distances mean anything? The gaps between neighbouring scores of a task.

    ccrank bench --datasets scalaradj,wikilists --methods triplet,margin,ccs,ordreg,random,pca --out study
    python -m studies.reproduction.gaps study [--items 6]

The paper reads the distances between items on a probe's scale as interpretable. If they are, the gaps within a task
vary with the items; if the loss makes them, they are its margin, whatever the items. Reported for each method: the mean
gap between neighbouring scores and its variation within a task (deviation over mean), means over seeds and tasks with a
bootstrap interval over tasks. --items keeps tasks of one size, on which a margin gives one gap.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from ccrank.metrics.tasks import mean_with_interval
from ccrank.study.results.load import load_studies


def gaps_of(scores: np.ndarray) -> np.ndarray:
    """The distances between neighbouring scores, from the lowest. (N,) -> (N − 1,)"""
    return np.diff(np.sort(scores))


def variation(scores: np.ndarray) -> float:
    """The deviation of the gaps over their mean; 0 for equal gaps."""
    gaps = gaps_of(scores)
    return float(gaps.std() / gaps.mean()) if gaps.mean() > 0 else float("nan")


def table_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean gap and variation of each model, dataset and method: means over seeds, then over tasks, with an interval."""
    scores = [np.asarray(one, dtype=float) for one in rows["scores"]]
    measured = rows.assign(
        gap=[float(gaps_of(one).mean()) for one in scores], variation=[variation(one) for one in scores]
    )
    by_task = measured.groupby(["model", "dataset", "method", "split", "task"], sort=False)[
        ["gap", "variation"]
    ]
    lines = []
    for key, tasks in by_task.mean().groupby(level=[0, 1, 2, 3], sort=False):
        known = tasks.dropna()
        if known.empty:
            continue
        spread = mean_with_interval(known["variation"], np.random.default_rng(0))
        lines.append([*key, len(known), known["gap"].mean(), spread.mean, spread.low, spread.high])
    names = ["model", "dataset", "method", "split", "tasks", "mean_gap", "variation", "low", "high"]
    return pd.DataFrame(lines, columns=names)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="+", type=Path, help="folders of studies")
    parser.add_argument("--items", type=int, default=None, help="only tasks of so many items")
    asked = parser.parse_args()
    results, _ = load_studies(asked.studies)
    rows = results[results["family"].isin(["probing", "baseline"]) & (results["n_items"] > 2)]
    if asked.items is not None:
        rows = rows[rows["n_items"] == asked.items]
    if rows.empty:
        raise SystemExit("no probes with such tasks")
    sys.stdout.write(table_of(rows).to_string(index=False, float_format=lambda value: f"{value:.3f}") + "\n")


if __name__ == "__main__":
    main()
