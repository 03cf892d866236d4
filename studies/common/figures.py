"""The figures of the studies' pages, drawn from the pages' own tables: `make figures`.

    python -m studies.common.figures [PAGE ...]

A table below `<!-- figure: NAME.png KIND -->` is drawn as NAME.png beside its page. KIND is `bars` (a group for
each row), `lines` (the first column is x) or `diagonal` (points against the line on which both columns are equal).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

STUDIES = Path(__file__).parents[1]
MARKED = re.compile(r"<!-- figure: (\S+) (\w+) -->\n((?:\|.*\n)+)")
COUNTS = ("lists", "tasks")
"""Columns that say how many, which are not drawn."""
NUMBER = re.compile(r"[+−-]?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Table:
    """A table of a page: names of rows and columns, and numbers, NaN where a cell has none."""

    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    """(rows, columns)."""


def plain(cell: str) -> str:
    return re.sub(r"[`*\\]", "", cell).strip()


def number(cell: str) -> float:
    """The first number of a cell that begins with one."""
    found = NUMBER.match(plain(cell))
    return float(found[0].replace("−", "-")) if found else float("nan")


def read_table(text: str) -> Table:
    """The rows of a Markdown table; columns of words at its left name the rows, others without numbers are left out."""
    lines = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in text.strip().splitlines()]
    head, body = [plain(cell) for cell in lines[0]], lines[2:]
    values = np.array([[number(cell) for cell in row] for row in body])
    first = max(1, next(at for at in range(len(head)) if np.isfinite(values[:, at]).any()))
    kept = [
        at for at in range(first, len(head)) if np.isfinite(values[:, at]).any() and head[at] not in COUNTS
    ]
    names, above = [], [""] * first
    for row in body:
        above = [plain(cell) or before for cell, before in zip(row[:first], above, strict=True)]
        names.append(", ".join(above))
    return Table(head[0], tuple(names), tuple(head[at] for at in kept), values[:, kept])


def draw(table: Table, kind: str) -> plt.Figure:
    """The figure of a table."""
    figure, axes = plt.subplots(figsize=(7.1, 3.4 if len(table.rows) < 14 else 6), layout="constrained")
    {"bars": draw_bars, "lines": draw_lines, "diagonal": draw_diagonal}[kind](table, axes)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_bars(table: Table, axes: Axes) -> None:
    """Horizontal bars, a group for each row."""
    shown = table.values[:, :4] if len(table.columns) > 7 else table.values
    height = 0.8 / shown.shape[1]
    places = np.arange(len(table.rows))
    for at in range(shown.shape[1]):
        axes.barh(places + at * height, shown[:, at], height, label=table.columns[at])
    axes.set_yticks(places + 0.4 - height / 2, table.rows)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    if shown.shape[1] > 1:
        axes.get_figure().legend(frameon=False, fontsize="small", loc="outside right upper")
    if "," not in table.rows[0]:
        axes.set_xlabel(table.corner if shown.shape[1] > 1 else table.columns[0])


def draw_lines(table: Table, axes: Axes) -> None:
    """A line for each column over the numbers of the first."""
    x = [number(name) for name in table.rows]
    for name, values, marker in zip(table.columns, table.values.T, "osD^vP", strict=False):
        known = np.isfinite(values)
        axes.plot(np.array(x)[known], values[known], marker=marker, label=name)
    axes.set_xlabel(table.corner)
    axes.set_ylim(bottom=min(0, float(np.nanmin(table.values))))
    axes.legend(frameon=False, fontsize="small")


def draw_diagonal(table: Table, axes: Axes) -> None:
    """The first column of numbers over the names of the rows, with the line on which both are equal."""
    x = [number(name) for name in table.rows]
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=0.8)
    axes.plot(x, table.values[:, 0], marker="o")
    axes.set_xlabel(table.corner)
    axes.set_ylabel(table.columns[0])


def main() -> None:
    pages = [Path(name) for name in sys.argv[1:]] or sorted(STUDIES.glob("*/README.md"))
    for page in pages:
        for name, kind, text in MARKED.findall(page.read_text(encoding="utf-8")):
            figure = draw(read_table(text), kind)
            figure.savefig(page.with_name(name), dpi=150, metadata={"Software": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
