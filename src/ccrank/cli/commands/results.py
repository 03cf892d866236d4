"""`ccrank results` and `ccrank compare`: the results of studies with chance levels, and paired tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ccrank.cli.options import SHOW_PANEL, Flags, argument, flag, takes_flags
from ccrank.cli.screen import counted, fitted_table, json_text, out, spinner
from ccrank.errors import CcrankError
from ccrank.util.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

    from ccrank.study.results.load import StudyTasks
    from ccrank.study.results.tables import Field, Row


@dataclass(frozen=True, kw_only=True)
class WhichFlags(Flags, panel="Which results"):
    model: str | None = flag("Only these models, comma-separated.")
    dataset: str | None = flag("Only these datasets, comma-separated.")
    method: str | None = flag("Only these methods, comma-separated.")
    split: str | None = flag("Only these splits, comma-separated.")
    layer: str | None = flag("Only these layers, comma-separated.")


@dataclass(frozen=True, kw_only=True)
class FormFlags(Flags, panel=SHOW_PANEL):
    folders: list[Path] = argument(
        "Folders of studies (`ccrank bench --out`).", default=MISSING, metavar="FOLDER…"
    )
    json: bool = flag("Print JSON.", default=False)
    csv: bool = flag("Print CSV.", default=False)
    latex: bool = flag("Print a LaTeX table (booktabs).", default=False)

    def __post_init__(self) -> None:
        if self.json + self.csv + self.latex > 1:
            raise CcrankError("--json, --csv and --latex are mutually exclusive")


@dataclass(frozen=True, kw_only=True)
class ResultsFlags(WhichFlags, FormFlags, panel=SHOW_PANEL):
    by: str = flag("Means by dataset, or by kind (facts, context).", default="dataset")
    trec: Path | None = flag("Write a TREC run to this file instead.")
    qrels: Path | None = flag("Write gold as TREC relevance judgements to this file instead.")


@takes_flags()
def results_command(flags: ResultsFlags) -> None:
    """Summarise studies: mean over seeds, then over tasks, with 95 % bootstrap intervals over tasks.

    τ is signed and its chance level is 0; |τ| and free accuracy take the better of two directions, so they are
    shown with the chance floor of tasks of the same sizes, and |τ| with its deviation over seeds or single runs too. Of
    several studies, a model that occurs in two of them is shown as MODEL@FOLDER.

    Of probes trained across tasks, common τ is |mean τ| over the held-out tasks of a fold: how far these share one
    direction. Pairs is the free accuracy of single pairwise answers, coins that of coin flips. Tasks with a query have
    nDCG@10, MRR, MAP and recall@10, with the expected nDCG@10 of a random order.
    """
    from ccrank.study.results.load import load_failures
    from ccrank.study.results.summary import add_relevance, choose, summarise_results
    from ccrank.study.results.tables import RESULTS, Field, trec_judgements, trec_run

    results, tasks = read_studies(flags.folders)
    frame = choose(results, **{each.name: names_of(getattr(flags, each.name)) for each in fields(WhichFlags)})
    if flags.trec:
        _write_lines(flags.trec, trec_run(frame, tasks))
    if flags.qrels:
        kept = set(zip(frame["dataset"], frame["task"], strict=True))
        chosen = {key: task for key, task in tasks.items() if key in kept}
        _write_lines(flags.qrels, trec_judgements(chosen))
    if flags.trec or flags.qrels:
        return
    rows = summarise_results(frame, flags.by)
    if flags.by == "dataset":
        rows = add_relevance(rows, frame, tasks)

    def heading(row: Row) -> str:
        sets = f", mean of {row['datasets']} datasets" if flags.by == "kind" else ""
        return f"{row['model']} · {row[flags.by]}{sets}"

    blocks = [Field(name, key=name) for name in ("model", flags.by)]
    for folder in flags.folders if print_rows(rows, flags, RESULTS, blocks, heading) else ():
        if failures := load_failures(folder):
            out().print(f"\n{counted(len(failures), 'failure')}: see {folder / 'failures.jsonl'}")


@dataclass(frozen=True, kw_only=True)
class WhatFlags(Flags, panel="What to compare"):
    models: str | None = flag("Only these models, comma-separated; several are compared too, by each method.")
    datasets: str | None = flag("Only these datasets, comma-separated.")
    layer: str | None = flag("Only these layers, comma-separated; without it the last one that was read.")
    cosines: bool = flag(
        "Compare the directions of probes instead, which `ccrank bench --save-probes` has stored.",
        default=False,
    )
    measure: str = flag(
        "abs_tau (the better direction), tau, accuracy, free_accuracy, or pair_accuracy and free_pair_accuracy of "
        "single answers.",
        default="abs_tau",
    )


@dataclass(frozen=True, kw_only=True)
class CompareFlags(WhatFlags, FormFlags):
    methods: str = flag(
        "NAME\\[@VARIANT]\\[:SPLIT], comma-separated: all pairs are compared. Without a split the main one.",
        default=MISSING,
    )


@takes_flags()
def compare_command(flags: CompareFlags) -> None:
    """Compare methods on the same tasks, with paired tests: of one study, or of several.

    [bold]ccrank compare study --methods triplet,pca,random[/bold]

    [bold]ccrank compare raw chat --methods prompt-pair --models default@raw,default@chat[/bold]

    Differences are means over tasks (of means over seeds), with 95 % bootstrap intervals; the last row is the mean over
    datasets with equal weights. p is from two-sided sign-flip tests, Holm is p corrected for all tests of this
    table. Detectable is the difference that would be found in 80 % of cases, corrected as if it were the only one.
    Datasets with fewer than 6 tasks cannot reach p < 0.05 and are not tested.
    """
    with spinner("comparing"):
        from ccrank.study.results.comparisons import compare, tests_of
        from ccrank.study.results.directions import compare_directions, load_directions
        from ccrank.study.results.summary import choose
        from ccrank.study.results.tables import COMPARISONS, COSINES, Field

        models, datasets = names_of(flags.models), names_of(flags.datasets)
        if flags.cosines:
            kept = [
                directions
                for folder in flags.folders
                for directions in load_directions(folder)
                if (not models or directions.model in models)
                and (not datasets or directions.dataset in datasets)
            ]
            rows, columns, blocks = compare_directions(kept, names_of(flags.methods)), COSINES, []
            if not rows:
                raise CcrankError(
                    "no directions match: these methods share no layer and task on the chosen datasets"
                )
        else:
            frame = choose(read_studies(flags.folders)[0], dataset=datasets, layer=names_of(flags.layer))
            rows, columns = compare(frame, names_of(flags.methods), models, flags.measure), COMPARISONS
            titles = {"model": "model", "first": "of", "second": "minus"}
            blocks = [Field(title, key=name) for name, title in titles.items()]

    def heading(row: Row) -> str:
        return f"{row['model']}: {row['first']} − {row['second']}, {flags.measure}"

    as_text = print_rows(rows, flags, columns, blocks, heading if blocks else None)
    if as_text and not flags.cosines:
        out().print(f"\nHolm's correction is for {counted(tests_of(rows), 'test')}.", highlight=False)


def read_studies(folders: Sequence[Path]) -> tuple[pd.DataFrame, StudyTasks]:
    """The results and tasks of one or more studies; an error if one has no results."""
    from ccrank.study.results.load import load_studies

    results, tasks = load_studies(folders)
    if results.empty:
        folder = folders[0]
        listed = folder / "failures.jsonl"  # written when all units are done
        raise CcrankError(
            f"{folder} has no results: all its units failed, see {listed}; `ccrank bench --out {folder} --retry` "
            "repeats them"
            if listed.exists()
            else f"{folder} has no results: all its units so far failed; `ccrank bench --out {folder}` runs the others"
        )
    return results, tasks


def print_rows(
    rows: Sequence[Row],
    flags: FormFlags,
    columns: Sequence[Field],
    blocks: Sequence[Field],
    heading: Callable[[Row], str] | None,
) -> bool:
    """Print rows in the form that was asked for; as text one table for each combination of the columns `blocks`.
    Returns whether it was text."""
    from ccrank.study.results.tables import to_csv, to_latex

    if flags.json or flags.csv or flags.latex:
        form = json_text if flags.json else to_csv if flags.csv else partial(to_latex, [*blocks, *columns])
        sys.stdout.write(form(rows))
        return False
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(column.text(row) for column in blocks), []).append(row)
    for number, group in enumerate(groups.values()):
        if number:
            out().print()
        if heading is not None:
            out().print(heading(group[0]), style="bold", highlight=False)
        out().print(fitted_rows(columns, group))
    return True


def fitted_rows(columns: Sequence[Field], rows: Sequence[Row], width: int | None = None) -> Table:
    """A table that fits the terminal; where it is too narrow for the split and the layer, they follow the method."""
    from ccrank.study.results.tables import LAYER, METHOD, SPLIT, used

    shown = used(columns, rows)
    cells = {column.title: [column.text(row) for row in rows] for column in shown}
    table, kept = fitted_table([(column, cells[column.title]) for column in shown], width)
    if {SPLIT.title, LAYER.title} & cells.keys() <= kept:
        return table
    splits = [f":{text}" if (text := SPLIT.text(row)) else "" for row in rows]
    layers = ["" if LAYER.empty(row) else f" {LAYER.text(row)}" for row in rows]
    cells[METHOD.title] = [*map("".join, zip(cells[METHOD.title], splits, layers, strict=True))]
    shown = [column for column in shown if column not in (SPLIT, LAYER)]
    return fitted_table([(column, cells[column.title]) for column in shown], width)[0]


def names_of(text: str | None) -> list[str]:
    """The names of a comma-separated flag."""
    return [part.strip() for part in text.split(",")] if text else []


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file; "-" is the standard output."""
    if str(path) == "-":
        sys.stdout.writelines(lines)
    else:
        write_atomically(path, lines)
