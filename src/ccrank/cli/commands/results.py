"""`ccrank results`: the results of a study, with chance levels."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.table import Table

from ccrank.cli.options import SHOW_PANEL, flag, with_flags
from ccrank.cli.screen import Column, counted, fitted_table, out, print_json
from ccrank.errors import CcrankError
from ccrank.util.files import write_atomically
from ccrank.util.text import p_text

if TYPE_CHECKING:
    import pandas as pd

    from ccrank.study.results.load import StudyTasks

StudyFolders = Annotated[
    list[Path], typer.Argument(metavar="FOLDER…", help="Folders of studies (`ccrank bench --out`).")
]


@dataclass(frozen=True)
class WhichFlags:
    """Which results are summarised."""

    panel: ClassVar = "Which results"
    model: str | None = flag("Only these models, comma-separated.")
    dataset: str | None = flag("Only these datasets, comma-separated.")
    method: str | None = flag("Only these methods, comma-separated.")
    split: str | None = flag("Only these splits, comma-separated.")
    layer: str | None = flag("Only these layers, comma-separated.")


@dataclass(frozen=True)
class ShowFlags:
    """What is printed or written."""

    panel: ClassVar = SHOW_PANEL
    by: str = flag("Means by dataset, or by kind (facts, context).", default="dataset")
    as_json: bool = flag("Print JSON.", "--json", default=False)
    as_csv: bool = flag("Print CSV.", "--csv", default=False)
    as_latex: bool = flag("Print a LaTeX table (booktabs).", "--latex", default=False)
    trec: Path | None = flag("Write a TREC run to this file instead.")
    qrels: Path | None = flag("Write gold as TREC relevance judgements to this file instead.")

    def __post_init__(self) -> None:
        if sum((self.as_json, self.as_csv, self.as_latex)) > 1:
            raise CcrankError("--json, --csv and --latex are mutually exclusive")


@with_flags
def results_command(
    folders: StudyFolders,
    *,
    which: WhichFlags,
    shown: ShowFlags,
) -> None:
    """Summarise studies: mean over seeds, then over tasks, with 95 % bootstrap intervals over tasks.

    τ is signed and its chance level is 0; |τ| and free accuracy take the better of two directions, so they are
    shown with the chance floor of tasks of the same sizes, and |τ| with its deviation over seeds or single runs too. Of
    several studies, a model that occurs in two of them is shown as MODEL@FOLDER.

    Of probes trained across tasks, common τ is |mean τ| over the held-out tasks of a fold: how far these share one
    direction. Pairs is the free accuracy of single pairwise answers, coins that of coin flips. Tasks with a query have
    nDCG@10, MRR, MAP and recall@10, with the expected nDCG@10 of a random order.
    """
    from ccrank.study.results import export, load_failures
    from ccrank.study.results.summary import add_relevance, choose, summarise_results

    found, tasks = read_studies(folders)
    frame = choose(found, **{name: names_of(text) for name, text in asdict(which).items()})
    if shown.trec or shown.qrels:
        if shown.trec:
            _write_lines(shown.trec, export.trec_run(frame, tasks))
        if shown.qrels:
            kept = set(zip(frame["dataset"], frame["task"], strict=True))
            chosen = {key: task for key, task in tasks.items() if key in kept}
            _write_lines(shown.qrels, export.trec_judgements(chosen))
        return
    entries = summarise_results(frame, shown.by)
    if shown.by == "dataset":
        entries = add_relevance(entries, frame, tasks)
    if shown.as_json:
        print_json(entries)
    elif shown.as_csv:
        sys.stdout.write(export.to_csv(entries))
    elif shown.as_latex:
        sys.stdout.write(export.to_latex(entries))
    else:
        show(entries)
        for folder in folders:
            if failures := load_failures(folder):
                out().print(f"\n{counted(len(failures), 'failure')}: see {folder / 'failures.jsonl'}")


def read_studies(folders: Sequence[Path]) -> tuple[pd.DataFrame, StudyTasks]:
    """The results and tasks of one or more studies; an error if one has no results."""
    from ccrank.study.results import load_studies

    found, tasks = load_studies(folders)
    if found.empty:
        folder = folders[0]
        listed = folder / "failures.jsonl"  # written when all units are done
        raise CcrankError(
            f"{folder} has no results: all its units failed, see {listed}; `ccrank bench --out {folder} --retry` "
            "repeats them"
            if listed.exists()
            else f"{folder} has no results: all its units so far failed; `ccrank bench --out {folder}` runs the others"
        )
    return found, tasks


def show(entries: Sequence[Mapping[str, Any]]) -> None:
    """Print one table per model and dataset or kind."""
    console = out()
    where = "dataset" if "dataset" in entries[0] else "kind"
    blocks: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in entries:
        blocks.setdefault((entry["model"], entry[where]), []).append(entry)
    for number, ((model, name), rows) in enumerate(blocks.items()):
        if number:
            console.print()
        sets = f", mean of {rows[0]['datasets']} datasets" if where == "kind" else ""
        console.print(f"{model} · {name}{sets}", style="bold")
        if rows[0].get("queries"):
            console.print(fitted_table(RELEVANCE_COLUMNS, [_relevance_cells(row) for row in rows])[0])
            continue
        table, kept = _fitted(rows, fold=False)
        if "split" not in kept:
            table, _ = _fitted(rows, fold=True)
        console.print(table)


@dataclass(frozen=True)
class Measure(Column):
    """A column of numbers of the entries."""

    number: bool = True
    key: str = ""
    form: str = ".3f"
    signed: bool = False
    """Without a direction it means nothing, and is not shown."""
    optional: bool = False
    """The column is left out if no row has a number."""

    def cell(self, row: Mapping[str, Any]) -> str:
        """The number; a dash if there is none."""
        value = row.get(self.key, math.nan)
        if math.isnan(value) or (self.signed and not row["directed"]):
            return "" if self.optional else "–"
        return p_text(value) if self.form == "p" else format(value, self.form)


SPENT = (
    Measure("s/task", drop=7, key="seconds", form=".2f"),
    Measure("tokens/task", drop=7, key="distinct_tokens", form=",.0f"),
)
COLUMNS = (
    Column("method"),
    Column("split", drop=1),
    Column("layer", number=True, drop=1),
    Measure("tasks", drop=3, key="graded", form="d"),
    Measure("τ", key="tau", form="+.3f", signed=True),
    Column("95 %", drop=2),
    Measure("|τ|", key="abs_tau"),
    Column("95 % of |τ|", drop=2),
    Measure("± seeds", drop=5, key="abs_tau_sd", optional=True),
    Measure("chance", key="chance_abs_tau"),
    Measure("common τ", drop=4, key="common_tau", optional=True),
    Measure("by chance", drop=4, key="common_tau_chance", optional=True),
    Measure("p", drop=4, key="common_tau_p", form="p", optional=True),
    Measure("accuracy", drop=4, key="accuracy", form=".1%", signed=True),
    Measure("free", drop=5, key="free_accuracy", form=".1%"),
    Measure("chance", drop=5, key="chance_free_accuracy", form=".1%"),
    Measure("pairs", drop=5, key="free_pair_accuracy", form=".1%", optional=True),
    Measure("coins", drop=5, key="chance_free_pair_accuracy", form=".1%", optional=True),
    Measure("consistent", drop=6, key="consistency", form=".2f"),
    *SPENT,
)
RELEVANCE_COLUMNS = (
    Column("method"),
    Measure("queries", drop=3, key="queries", form="d"),
    Measure("nDCG@10", key="ndcg_10"),
    Column("95 %", drop=2),
    Measure("chance", key="chance_ndcg_10"),
    Measure("MRR", drop=4, key="mrr"),
    Measure("MAP", drop=4, key="map"),
    Measure("recall@10", drop=4, key="recall_10"),
    *SPENT,
)


def _fitted(rows: Sequence[Mapping[str, Any]], fold: bool) -> tuple[Table, set[str]]:
    """The table without optional columns that are empty in all rows."""
    cells = [_cells(row, fold) for row in rows]
    used = [
        index
        for index, column in enumerate(COLUMNS)
        if not (isinstance(column, Measure) and column.optional) or any(row[index] for row in cells)
    ]
    return fitted_table([COLUMNS[index] for index in used], [[row[index] for index in used] for row in cells])


def _relevance_cells(row: Mapping[str, Any]) -> list[str]:
    """A row of a dataset with queries; scores of methods without a direction are used as they are."""
    texts = {"method": _name(row), "95 %": interval_text(row["ndcg_10_low"], row["ndcg_10_high"])}
    return [
        column.cell(row) if isinstance(column, Measure) else texts[column.title]
        for column in RELEVANCE_COLUMNS
    ]


def _cells(row: Mapping[str, Any], fold: bool) -> list[str]:
    """A row of the table; `fold` puts the split and the layer behind the method's name."""
    texts = {
        "method": _name(row) if fold else row["method"],
        "split": "" if row["split"] == "none" else row["split"],
        "layer": "" if row["layer"] < 0 else str(row["layer"]),
        "95 %": interval_text(row["tau_low"], row["tau_high"], "+.2f") if row["directed"] else "",
        "95 % of |τ|": interval_text(row["abs_tau_low"], row["abs_tau_high"]),
    }
    return [column.cell(row) if isinstance(column, Measure) else texts[column.title] for column in COLUMNS]


def interval_text(low: float, high: float, form: str = ".2f") -> str:
    """An interval; nothing if there is none."""
    return "" if math.isnan(low) else f"[{low:{form}}, {high:{form}}]"


def _name(row: Mapping[str, Any]) -> str:
    """The method with its split and layer, for terminals too narrow for columns of their own."""
    split = "" if row["split"] == "none" else f":{row['split']}"
    return f"{row['method']}{split}" + ("" if row["layer"] < 0 else f" {row['layer']}")


def names_of(text: str | None) -> list[str]:
    """The names of a comma-separated flag."""
    return [part.strip() for part in text.split(",")] if text else []


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file; "-" is the standard output."""
    if str(path) == "-":
        sys.stdout.writelines(lines)
        return
    write_atomically(path, lines)
