"""What grows with the size of a model: one study per model, set side by side in a table and a figure.

    ccrank bench --preset sizes --models MODEL --out FOLDER           # once per model
    python -m studies.sizes.sizes NAME:MILLIONS=FOLDER[,FOLDER] ... [--csv FILE] [--figure FILE] [--tests]

NAME is what the figure calls the model, MILLIONS its number of parameters; several folders of one model are joined (the
text criteria are a study of their own). Without folders, the table is read from --csv. Directed methods are shown by
their signed τ; the others by |τ| less its chance level, since their sign is arbitrary. Intervals are 95 % bootstrap
intervals over tasks; a task's value is the mean over seeds. --summary prints the tables of README.md: the mean over
datasets by method, and `auto` by dataset. --tests compares the largest model with the smallest by sign-flip tests over
tasks, with Holm's correction for their number.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from ccrank.metrics.tasks import holm, mean_with_interval, paired_test
from ccrank.study.report.figures_style import (
    CHANCE_LINE,
    FAMILY_LOOKS,
    drawn,
    image_bytes,
    legend,
    panels,
    title,
)

COLUMNS = [
    "dataset",
    "task",
    "method",
    "split",
    "seed",
    "tau",
    "abs_tau",
    "chance_abs_tau",
    "directed",
    "family",
]
SHOWN = ("scalaradj", "wikilists", "worldlists", "everyday", "reviews", "entsalience")
DIRECTED = {
    "auto": ("label-free", "-"),
    "prompt-pair": ("prompting", "-"),
    "prompt-point": ("prompting", "--"),
    "prompt-list": ("prompting", ":"),
    "sup-ordreg": ("supervised", "-"),
}
UNDIRECTED = {"triplet": ("probing", "-"), "ordreg": ("probing", "--"), "pca": ("baseline", "-")}
STAR = " \\*"
"""Marks methods that are not directed, in Markdown."""
FEWEST_TASKS = 10
"""Datasets with fewer tasks are in the table, not in the tests."""


@dataclass(frozen=True)
class Cell:
    """One method on one dataset with one model."""

    model: str
    millions: float
    dataset: str
    method: str
    split: str
    tasks: int
    tau: float
    tau_low: float
    tau_high: float
    abs_tau: float
    abs_low: float
    abs_high: float
    chance: float
    """Of |τ|."""
    directed: bool
    family: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="NAME:MILLIONS=FOLDER[,FOLDER]")
    parser.add_argument(
        "--csv", type=Path, help="write the table here; read it from here if no model is named"
    )
    parser.add_argument("--figure", type=Path, help="draw the figure into this .png or .svg")
    parser.add_argument("--summary", action="store_true", help="print the means only")
    parser.add_argument("--tests", action="store_true", help="compare the largest model with the smallest")
    given = parser.parse_args(arguments)
    if not given.models and not (given.csv and given.csv.exists()):
        parser.error("name at least one model, or a --csv that exists")
    if given.models:
        studies = read_studies(given.models)
        cells = [
            cell for (name, millions), rows in studies.items() for cell in cells_of(name, millions, rows)
        ]
        if given.csv:
            write_csv(cells, given.csv)
    else:
        cells = read_csv(given.csv)
    print(summary(cells) if given.summary else markdown(cells))
    if given.figure:
        given.figure.write_bytes(image_bytes(figure_sizes(cells), given.figure.suffix.removeprefix(".")))
    if given.tests:
        if not given.models:
            parser.error("--tests needs the studies' folders")
        print(tests(studies))
    return 0


def read_studies(models: Sequence[str]) -> dict[tuple[str, float], pd.DataFrame]:
    """The rows of each model, by its name and millions of parameters, from the smallest model to the largest."""
    found = {}
    for text in models:
        label, _, folders = text.partition("=")
        name, _, millions = label.partition(":")
        rows = [
            pd.read_parquet(path / "results.parquet" if path.is_dir() else path, columns=COLUMNS)
            for path in map(Path, folders.split(","))
        ]
        found[name, float(millions)] = pd.concat(rows, ignore_index=True)
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


def cells_of(name: str, millions: float, rows: pd.DataFrame) -> list[Cell]:
    """One cell for each dataset, method and split of a model."""
    generator = np.random.default_rng(0)
    cells = []
    for (dataset, method, split), group in rows.groupby(["dataset", "method", "split"], sort=True):
        tasks = group.groupby("task")[["tau", "abs_tau", "chance_abs_tau"]].mean()
        signed = mean_with_interval(tasks["tau"], generator, resamples=2000)
        absolute = mean_with_interval(tasks["abs_tau"], generator, resamples=2000)
        cells.append(
            Cell(
                name,
                millions,
                str(dataset),
                str(method),
                str(split),
                len(tasks),
                *(round(value, 4) for value in (signed.mean, signed.low, signed.high)),
                *(round(value, 4) for value in (absolute.mean, absolute.low, absolute.high)),
                round(float(tasks["chance_abs_tau"].mean()), 4),
                bool(group["directed"].iloc[0]),
                str(group["family"].iloc[0]),
            )
        )
    return cells


def write_csv(cells: Sequence[Cell], path: Path) -> None:
    """The table as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [one.name for one in fields(Cell)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in cells)


def read_csv(path: Path) -> list[Cell]:
    """The table that `write_csv` wrote."""
    frame = pd.read_csv(path, keep_default_na=False)
    return [Cell(**row) for row in frame.to_dict("records")]


def markdown(cells: Sequence[Cell]) -> str:
    """One table per dataset: methods by models; signed τ of directed methods, |τ| less chance of the others."""
    models = _models(cells)
    lines = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        here = {(one.model, one.method, one.split): one for one in cells if one.dataset == dataset}
        tasks = next(iter(here.values())).tasks
        lines += [f"\n### {dataset} ({tasks} tasks)\n", "| method | " + " | ".join(models) + " |"]
        lines.append("|---" * (len(models) + 1) + "|")
        for method, split in dict.fromkeys((one.method, one.split) for one in here.values()):
            values = [here.get((model, method, split)) for model in models]
            lines.append(f"| {_name(method, split)} | " + " | ".join(_shown(one) for one in values) + " |")
    return "\n".join(lines)


def summary(cells: Sequence[Cell]) -> str:
    """The mean over the datasets of the figure by method and model, and `auto` by dataset and model."""
    models = _models(cells)
    values = {(one.model, one.dataset, one.method, one.split): _values(one)[1] for one in cells}
    header = ["| | " + " | ".join(models) + " |", "|---" * (len(models) + 1) + "|"]
    lines = list(header)
    for method, split, directed in dict.fromkeys((one.method, one.split, one.directed) for one in cells):
        found = [[values.get((model, name, method, split)) for name in SHOWN] for model in models]
        if all(value is not None for row in found for value in row):
            means = [f"{np.mean(row):+.3f}" for row in found]  # type: ignore[arg-type]
            lines.append(f"| {_name(method, split)}{'' if directed else STAR} | " + " | ".join(means) + " |")
    lines += ["", *header]
    for dataset in dict.fromkeys(one.dataset for one in cells):
        found = [values.get((model, dataset, "auto", "none")) for model in models]
        lines.append(
            f"| {dataset} | " + " | ".join("" if one is None else f"{one:+.2f}" for one in found) + " |"
        )
    return "\n".join(lines)


def _models(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.model for cell in sorted(cells, key=lambda cell: cell.millions)))


def _name(method: str, split: str) -> str:
    return f"`{method}`" + ("" if split == "none" else f" · {split}")


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    low, value, high = _values(cell)
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]" + ("" if cell.directed else STAR)


def _values(cell: Cell) -> tuple[float, float, float]:
    """Low, mean, high: of τ for a directed method, of |τ| less chance for another."""
    if cell.directed:
        return cell.tau_low, cell.tau, cell.tau_high
    return cell.abs_low - cell.chance, cell.abs_tau - cell.chance, cell.abs_high - cell.chance


@drawn
def figure_sizes(cells: Sequence[Cell]):
    """Signed τ of the directed methods above, |τ| less chance of the others below, against size, by dataset."""
    shown = [name for name in SHOWN if any(cell.dataset == name for cell in cells)]
    figure, axes = panels(2, len(shown), 4.2, sharey="row", sharex=True)
    for column, dataset in enumerate(shown):
        for row, methods in enumerate((DIRECTED, UNDIRECTED)):
            one = axes[row, column]
            one.axhline(0, color=CHANCE_LINE, linewidth=0.8)
            for place, (method, (family, style)) in enumerate(methods.items()):
                line = sorted(
                    (cell for cell in cells if cell.dataset == dataset and cell.method == method),
                    key=lambda cell: cell.millions,
                )
                # Intervals side by side: a shift of a few per cent on the logarithmic scale.
                x = np.array([cell.millions for cell in line]) * 1.035 ** (place - len(methods) / 2)
                low, value, high = np.array([_values(cell) for cell in line]).reshape(-1, 3).T
                look = FAMILY_LOOKS[family]
                one.errorbar(
                    x,
                    value,
                    [value - low, high - value],
                    color=look.colour,
                    linestyle=style,
                    marker=look.marker,
                    markersize=3,
                    linewidth=1,
                    elinewidth=0.6,
                )
            one.set_xscale("log")
            one.set_xticks([125, 250, 500, 1000, 1500], ["125M", "", "500M", "", "1.5B"])
            one.minorticks_off()
        title(axes[0, column], dataset)
    axes[0, 0].set_ylabel("τ")
    axes[1, 0].set_ylabel("|τ| − chance")
    legend(
        figure,
        [
            Line2D(
                [],
                [],
                color=FAMILY_LOOKS[family].colour,
                linestyle=style,
                marker=FAMILY_LOOKS[family].marker,
                markersize=3,
                linewidth=1,
                label=method,
            )
            for method, (family, style) in {**DIRECTED, **UNDIRECTED}.items()
        ],
        columns=8,
    )
    return figure


def tests(studies: Mapping[tuple[str, float], pd.DataFrame]) -> str:
    """The largest model against the smallest, method by method and dataset by dataset."""
    (small, few), *_, (large, many) = studies.items()
    generator = np.random.default_rng(0)
    found = []
    for (dataset, method, split), group in many.groupby(["dataset", "method", "split"], sort=True):
        directed = bool(group["directed"].iloc[0])
        measure = "tau" if directed else "abs_tau"
        other = few[(few["dataset"] == dataset) & (few["method"] == method) & (few["split"] == split)]
        big, little = (one.groupby("task")[measure].mean() for one in (group, other))
        shared = big.index.intersection(little.index)
        if len(shared) >= FEWEST_TASKS:
            test = paired_test(big[shared], little[shared], generator, resamples=10_000)
            found.append((dataset, method, split, "τ" if directed else "|τ|", test))
    adjusted = holm([test.p_value for *_, test in found])
    lines = [
        f"\n### {large[0]} less {small[0]}, {len(found)} tests\n",
        "| dataset | method | measure | difference | p | p (Holm) |",
        "|---|---|---|---|---|---|",
    ]
    for (dataset, method, split, measure, test), p in zip(found, adjusted, strict=True):
        change = test.difference
        lines.append(
            f"| {dataset} | {_name(method, split)} | {measure} | {change.mean:+.3f} "
            f"[{change.low:+.3f}, {change.high:+.3f}] | {test.p_value:.4f} | {p:.4f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
