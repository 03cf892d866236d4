"""Are several models together better than each? From a study of each model, list by list.

    ccrank bench --models default --dtype bfloat16 --methods auto --datasets everyday,unseen.jsonl --out first
    ccrank bench --models gemma-3-270m-q4 --dtype bfloat16 --methods auto --datasets everyday,unseen.jsonl --out second
    python -m studies.jury.jury first second

Prints, for each dataset and half, the mean τ of each model and of the mean of their Z-scores, and the paired difference
from the better one. Last, the share of right orders (τ > 0.3) by quarters of the models' agreement.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from ccrank.metrics import kendall_tau, paired_test
from ccrank.metrics.order import tau_b
from ccrank.study.results import load_results
from ccrank.study.results.load import load_tasks
from ccrank.util.zscores import z_scores

RIGHT = 0.3


def lists_of(first: str, second: str) -> pd.DataFrame:
    """A row for each list that both studies have: τ of both, of their mean, and of one with the other."""
    tasks = load_tasks(first)
    rows = load_results(first).merge(load_results(second), on=["dataset", "task"], suffixes=("", "_other"))
    found = []
    for row in rows.itertuples():
        task = tasks[row.dataset, row.task]
        own, other = (z_scores(np.asarray(scores)) for scores in (row.scores, row.scores_other))
        found.append(
            {
                "data": " ".join(filter(None, (row.dataset, task.about.get("half", "")))),
                "first": kendall_tau(own, task.values),
                "second": kendall_tau(other, task.values),
                "together": kendall_tau(own + other, task.values),
                "agreement": tau_b(own, other),
            }
        )
    return pd.DataFrame(found)


def gain(rows: pd.DataFrame) -> str:
    """The difference of both together from the better one, with its interval and p."""
    better = max(("first", "second"), key=lambda name: rows[name].mean())
    test = paired_test(rows["together"], rows[better], np.random.default_rng(0))
    one = test.difference
    return f"{one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}], p = {test.p_value:.3f}"


def table(rows: pd.DataFrame) -> str:
    """The Markdown table by dataset and half."""
    lines = ["| lists | first | second | together | together − better |", "|---|---|---|---|---|"]
    for name, part in [*rows.groupby("data"), ("all", rows)]:
        means = " | ".join(f"{part[one].mean():.3f}" for one in ("first", "second", "together"))
        lines.append(f"| {name}, {len(part)} | {means} | {gain(part)} |")
    return "\n".join(lines)


def right_by_agreement(rows: pd.DataFrame) -> list[float]:
    """The share of right orders in each quarter of the models' agreement, the lowest first."""
    quarter = pd.qcut(rows["agreement"].rank(method="first"), 4, labels=False)
    return (rows["together"] > RIGHT).groupby(quarter).mean().tolist()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs=2, help="the study of each model")
    rows = lists_of(*parser.parse_args().folders)
    print(table(rows))
    print("right by quarters of agreement:", ", ".join(f"{one:.0%}" for one in right_by_agreement(rows)))


if __name__ == "__main__":
    main()
