"""`ccrank compare`: paired tests between methods or models of a study."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, ClassVar

import typer

from ccrank.cli.commands.results import StudyFolders, interval_text, names_of, read_studies
from ccrank.cli.options import SHOW_PANEL, flag, with_flags
from ccrank.cli.screen import Column, counted, fitted_table, out, print_json, spinner
from ccrank.errors import CcrankError
from ccrank.util.text import p_text

Methods = Annotated[
    str,
    typer.Option(
        "--methods",
        help="NAME\\[@VARIANT]\\[:SPLIT], comma-separated: all pairs are compared. Without a split the main one.",
    ),
]
COLUMNS = (
    Column("dataset"),
    Column("tasks", number=True, drop=3),
    Column("first", number=True, drop=2),
    Column("second", number=True, drop=2),
    Column("difference", number=True),
    Column("95 %", number=True),
    Column("p", number=True),
    Column("Holm", number=True),
    Column("detectable", number=True, drop=1),
)


@dataclass(frozen=True)
class WhatFlags:
    """What is compared."""

    panel: ClassVar = "What to compare"
    models: str | None = flag("Only these models, comma-separated; several are compared too, by each method.")
    datasets: str | None = flag("Only these datasets, comma-separated.")
    layer: str | None = flag("Only these layers, comma-separated; without it the last one that was read.")
    cosines: bool = flag(
        "Compare the directions of probes instead, which `ccrank bench --save-probes` has stored.",
        "--cosines",
        default=False,
    )
    measure: str = flag(
        "abs_tau (the better direction), tau, accuracy, free_accuracy, or pair_accuracy and free_pair_accuracy of "
        "single answers.",
        default="abs_tau",
    )


@dataclass(frozen=True)
class FormFlags:
    """The form of the table."""

    panel: ClassVar = SHOW_PANEL
    as_json: bool = flag("Print JSON.", "--json", default=False)
    as_csv: bool = flag("Print CSV.", "--csv", default=False)
    as_latex: bool = flag("Print a LaTeX table (booktabs).", "--latex", default=False)

    def __post_init__(self) -> None:
        if sum((self.as_json, self.as_csv, self.as_latex)) > 1:
            raise CcrankError("--json, --csv and --latex are mutually exclusive")


@with_flags
def compare_command(folders: StudyFolders, *, methods: Methods, what: WhatFlags, form: FormFlags) -> None:
    """Compare methods on the same tasks, with paired tests: of one study, or of several.

    [bold]ccrank compare study --methods triplet,pca,random[/bold]

    [bold]ccrank compare raw chat --methods prompt-pair --models default@raw,default@chat[/bold]

    Differences are means over tasks (of means over seeds), with 95 % bootstrap intervals; the last row is the mean over
    datasets with equal weights. p is from two-sided sign-flip tests, Holm is p corrected for all tests of this
    table. Detectable is the difference that would be found in 80 % of cases, corrected as if it were the only one.
    Datasets with fewer than 6 tasks cannot reach p < 0.05 and are not tested.
    """
    with spinner("comparing"):
        from ccrank.study.results import export
        from ccrank.study.results.comparisons import compare
        from ccrank.study.results.directions import compare_directions, load_directions
        from ccrank.study.results.summary import choose

        if what.cosines:
            stored = [one for folder in folders for one in load_directions(folder)]
            wanted = (names_of(what.models), names_of(what.datasets))
            kept = [
                one
                for one in stored
                if all(
                    not names or name in names
                    for name, names in zip((one.model, one.dataset), wanted, strict=True)
                )
            ]
            cosines = compare_directions(kept, names_of(methods))
            _show_cosines(cosines, form)
            return
        frame = choose(read_studies(folders)[0], dataset=names_of(what.datasets), layer=names_of(what.layer))
        rows = compare(frame, names_of(methods), names_of(what.models), what.measure)
    if form.as_json:
        print_json(rows)
    elif form.as_csv:
        sys.stdout.write(export.to_csv(rows))
    elif form.as_latex:
        sys.stdout.write(export.comparison_latex(rows))
    else:
        _show(rows, what.measure)


def _show_cosines(rows: Sequence[Mapping[str, Any]], form: FormFlags) -> None:
    from ccrank.study.results import export

    if not rows:
        raise CcrankError("no directions match: these methods share no layer and task on the chosen datasets")
    columns = (*(name for name in rows[0] if name != "pairs"), "pairs")
    numbers = ("layer", "cosine", "random", "pairs")
    cells = [
        [f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for name in columns]
        for row in rows
    ]
    if form.as_json:
        print_json(rows)
    elif form.as_csv:
        sys.stdout.write(export.to_csv(rows))
    elif form.as_latex:
        heads = [(name.capitalize(), name in numbers) for name in columns]
        texts = [[export.latex_text(cell) for cell in row] for row in cells]
        sys.stdout.write(export.latex_table(heads, texts))
    else:
        drops = {"model": 3, "pairs": 2, "layer": 1}
        shown = [Column(name, number=name in numbers, drop=drops.get(name, 0)) for name in columns]
        out().print(fitted_table(shown, cells)[0])


def _show(rows: Sequence[Mapping[str, Any]], measure: str) -> None:
    from ccrank.study.results.comparisons import tests_of

    for (model, first, second), group in groupby(
        rows, key=lambda row: (row["model"], row["first"], row["second"])
    ):
        out().print(f"{model}: {first} − {second}, {measure}", style="bold", markup=False, highlight=False)
        out().print(fitted_table(COLUMNS, [_cells(row) for row in group])[0])
        out().print()
    out().print(f"Holm's correction is for {counted(tests_of(rows), 'test')}.", highlight=False)


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        row["dataset"],
        str(row["tasks"]),
        *(f"{row[name]:.3f}" for name in ("first_mean", "second_mean")),
        f"{row['difference']:+.3f}",
        interval_text(row["low"], row["high"], "+.3f"),
        *("–" if math.isnan(row[name]) else p_text(row[name]) for name in ("p", "holm")),
        "–" if math.isnan(row["detectable"]) else f"{row['detectable']:.3f}",
    ]
