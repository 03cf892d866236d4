"""Prompts with and without the chat template, and both readings of a rating: from studies of each model.

    ccrank bench --models MODEL --methods prompt-pair,prompt-point,prompt-point@expected,prompt-list \\
        --datasets scalaradj,wikilists,reviews,entsalience --dtype bfloat16 [--chat] --out FOLDER
    python -m studies.chat.chat NAME=RAW,CHAT …

Prints, for each model and prompt, the mean τ raw and with the template by dataset; a star marks a change whose p, by
sign-flip tests over tasks, is below 0.05 after Holm's correction for all of the table. Then the same for the expected
rating less the most likely digit. A second pair of folders of one NAME replaces the datasets that it has.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ccrank.metrics.tasks import PairedTest, holm, paired_test
from ccrank.study.results.load import load_results

FORMS = ("raw", "chat")
LEVEL = 0.05
RULES = ("prompt-point", "prompt-point@expected")
"""How a rating is read: the most likely digit, and the expected one."""


def read(given: Sequence[str]) -> pd.DataFrame:
    """τ by name, form, dataset, method and task."""
    found: dict[tuple[str, str, str], pd.DataFrame] = {}
    for text in given:
        name, _, folders = text.partition("=")
        for form, folder in zip(FORMS, folders.split(","), strict=True):
            for dataset, frame in load_results(folder).groupby("dataset"):
                found[name, form, str(dataset)] = frame.assign(name=name, form=form)
    return pd.concat(found.values())


def compared(frame: pd.DataFrame, rows: Sequence[str], column: str, sides: Sequence[str]) -> pd.DataFrame:
    """For each combination of rows and each dataset: mean τ of both sides, the paired test, and Holm's p."""
    records = []
    for key, part in frame.groupby([*rows, "dataset"], sort=False):
        taus = part.pivot(index="task", columns=column, values="tau").dropna()
        test: PairedTest = paired_test(taus[sides[1]], taus[sides[0]], np.random.default_rng(0))
        low, high = (float(taus[side].mean()) for side in sides)
        records.append([*key, len(taus), low, high, test.difference.low, test.difference.high, test.p_value])
    table = pd.DataFrame(records, columns=[*rows, "dataset", "tasks", *sides, "low", "high", "p"])
    return table.assign(holm=holm(table["p"].tolist()))


def markdown(table: pd.DataFrame, rows: Sequence[str], sides: Sequence[str]) -> str:
    """The means over datasets of both sides, then both for each dataset, with a star."""
    tasks = table.groupby("dataset", sort=False)["tasks"].first()
    titles = [*rows, *sides, *(f"{name}, {count}" for name, count in tasks.items())]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for key, part in table.groupby([*rows], sort=False):
        means = [signed(float(part[side].mean())) for side in sides]
        cells = [
            f"({signed(row[sides[0]])} → {signed(row[sides[1]])}){'*' if row['holm'] < LEVEL else ''}"
            for row in part.set_index("dataset").loc[tasks.index].to_dict("records")
        ]
        lines.append(f"| {' | '.join([*key, *means, *cells])} |")
    return "\n".join(lines)


def signed(value: float) -> str:
    """
    >>> signed(-0.123)
    '−0.12'
    """
    return f"{value:+.2f}".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="+", help="NAME=RAW,CHAT")
    frame = read(parser.parse_args().studies)
    changes = compared(frame, ("name", "method"), "form", FORMS)
    ratings = compared(frame[frame["method"].isin(RULES)], ("name", "form"), "method", RULES)
    for table, rows, sides in ((changes, ("name", "method"), FORMS), (ratings, ("name", "form"), RULES)):
        print(markdown(table, rows, sides))
        better = [
            int(((table[sides[1]] - table[sides[0]]) * sign > 0)[table["holm"] < LEVEL].sum())
            for sign in (1, -1)
        ]
        print(f"\n{len(table)} tests: {better[0]} up, {better[1]} down at {LEVEL} after correction\n")
        print(table.round(3).to_csv(index=False))


if __name__ == "__main__":
    main()
