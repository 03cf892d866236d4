"""`ccrank results`: the results of a study, with chance levels."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ccrank.cli import options as shared
from ccrank.cli.screen import Column, counted, fitted_table, out, print_json
from ccrank.errors import CcrankError
from ccrank.files import write_atomically

COMMON = ("common_tau", "common_tau_chance", "common_tau_p")
WHICH, SHOW = "Which results", "What to show"


def _names(facet: str) -> Any:
    return typer.Option(f"--{facet}", help=f"Only these {facet}s, comma-separated.", rich_help_panel=WHICH)


def results_command(
    folder: Annotated[Path, typer.Argument(help="The folder of a study (`ccrank bench --out`).")],
    by: Annotated[
        str,
        typer.Option("--by", help="Means by dataset, or by kind (facts, context).", rich_help_panel=SHOW),
    ] = "dataset",
    model: Annotated[str | None, _names("model")] = None,
    dataset: Annotated[str | None, _names("dataset")] = None,
    method: Annotated[str | None, _names("method")] = None,
    split: Annotated[str | None, _names("split")] = None,
    layer: Annotated[str | None, _names("layer")] = None,
    as_json: shared.AsShownJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.", rich_help_panel=SHOW)] = False,
    as_latex: Annotated[
        bool, typer.Option("--latex", help="Print a LaTeX table (booktabs).", rich_help_panel=SHOW)
    ] = False,
    trec: Annotated[
        Path | None,
        typer.Option("--trec", help="Write a TREC run to this file instead.", rich_help_panel=SHOW),
    ] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(
            "--qrels",
            help="Write gold as TREC relevance judgements to this file instead.",
            rich_help_panel=SHOW,
        ),
    ] = None,
) -> None:
    """Summarise a study: mean over seeds, then over tasks, with 95 % bootstrap intervals over tasks.

    τ is signed and its chance level is 0; |τ| and free accuracy take the better of two directions, so they are
    shown with the chance floor of tasks of the same sizes, and |τ| with its deviation over seeds or single runs. Of
    probes trained across tasks, common τ is |mean τ| over the held-out tasks of a fold: how far these share one
    direction. Pairs is the free accuracy of single pairwise answers, coins that of coin flips. Tasks with a query have
    nDCG@10, MRR, MAP and recall@10, with the expected nDCG@10 of a random order.
    """
    if sum((as_json, as_csv, as_latex)) > 1:
        raise CcrankError("--json, --csv and --latex are mutually exclusive")
    from ccrank.results import choose, export, load_failures, load_results, load_tasks, summarise_results
    from ccrank.results.relevance import add_relevance

    wanted = {"model": model, "dataset": dataset, "method": method, "split": split, "layer": layer}
    found = load_results(folder)
    if found.empty:
        listed = folder / "failures.jsonl"  # written when all units are done
        raise CcrankError(
            f"{folder} has no results: all its units failed, see {listed}; `ccrank bench --out {folder} --retry` "
            "repeats them"
            if listed.exists()
            else f"{folder} has no results: all its units so far failed; `ccrank bench --out {folder}` runs the others"
        )
    frame = choose(found, **{name: _list(text) for name, text in wanted.items()})
    if trec or qrels:
        tasks = load_tasks(folder)
        if trec:
            _write_lines(trec, export.trec_run(frame, tasks))
        if qrels:
            kept = set(zip(frame["dataset"], frame["task"], strict=True))
            chosen = {key: task for key, task in tasks.items() if key in kept}
            _write_lines(qrels, export.trec_judgements(chosen))
        return
    entries = summarise_results(frame, by)
    if by == "dataset":
        entries = add_relevance(entries, frame, load_tasks(folder))
    if as_json:
        print_json([{key: _finite(value) for key, value in entry.items()} for entry in entries])
    elif as_csv:
        sys.stdout.write(export.to_csv(entries))
    elif as_latex:
        sys.stdout.write(export.to_latex(entries))
    else:
        show(entries)
        if failures := load_failures(folder):
            out().print(f"\n{counted(len(failures), 'failure')}: see {folder / 'failures.jsonl'}")


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
        # The method with its split and layer, for terminals too narrow for separate columns.
        if rows[0].get("queries"):
            console.print(fitted_table(RELEVANCE_COLUMNS, [_relevance_cells(row) for row in rows])[0])
            continue
        table, kept = _fitted([_cells(row, fold=False) for row in rows])
        if "split" not in kept:
            table, _ = _fitted([_cells(row, fold=True) for row in rows])
        console.print(table)


def _fitted(rows: Sequence[Sequence[str]]) -> tuple[Any, set[str]]:
    """The table without those of `OPTIONAL` that are empty in all rows."""
    used = [
        place
        for place, column in enumerate(COLUMNS)
        if column.title not in OPTIONAL or any(row[place] for row in rows)
    ]
    return fitted_table([COLUMNS[place] for place in used], [[row[place] for place in used] for row in rows])


OPTIONAL = ("± seeds", "common τ", "by chance", "p", "pairs", "coins")
COLUMNS = (
    Column("method"),
    Column("split", drop=1),
    Column("layer", number=True, drop=1),
    Column("tasks", number=True, drop=3),
    Column("τ", number=True),
    Column("95 %", drop=2),
    Column("|τ|", number=True),
    Column("± seeds", number=True, drop=5),
    Column("chance", number=True),
    Column("common τ", number=True, drop=4),
    Column("by chance", number=True, drop=4),
    Column("p", number=True, drop=4),
    Column("accuracy", number=True, drop=4),
    Column("free", number=True, drop=5),
    Column("chance", number=True, drop=5),
    Column("pairs", number=True, drop=5),
    Column("coins", number=True, drop=5),
    Column("consistent", number=True, drop=6),
    Column("s/task", number=True, drop=7),
    Column("tokens/task", number=True, drop=7),
)


RELEVANCE_COLUMNS = (
    Column("method"),
    Column("queries", number=True, drop=3),
    Column("nDCG@10", number=True),
    Column("95 %", drop=2),
    Column("chance", number=True),
    Column("MRR", number=True, drop=4),
    Column("MAP", number=True, drop=4),
    Column("recall@10", number=True, drop=4),
    Column("s/task", number=True, drop=7),
    Column("tokens/task", number=True, drop=7),
)


def _relevance_cells(row: Mapping[str, Any]) -> list[str]:
    """A row of a dataset with queries; the direction of a method that has none is not guessed."""
    split = "" if row["split"] == "none" else f":{row['split']}"
    layer = "" if row["layer"] < 0 else f" {row['layer']}"
    known = not math.isnan(row["ndcg_10_low"])
    return [
        f"{row['method']}{split}{layer}",
        str(row["queries"]),
        _number(row["ndcg_10"], ".3f"),
        f"[{row['ndcg_10_low']:.2f}, {row['ndcg_10_high']:.2f}]" if known else "",
        _number(row["chance_ndcg_10"], ".3f"),
        _number(row["mrr"], ".3f"),
        _number(row["map"], ".3f"),
        _number(row["recall_10"], ".3f"),
        _number(row["seconds"], ".2f"),
        _number(row["distinct_tokens"], ",.0f"),
    ]


def _cells(row: Mapping[str, Any], fold: bool) -> list[str]:
    """A row of the table; without a direction signed τ and accuracy mean nothing, so they are left out."""
    split = "" if row["split"] == "none" else row["split"]
    layer = "" if row["layer"] < 0 else str(row["layer"])
    name = row["method"]
    if fold:
        name += f":{split}" if split else ""
        name += f" {layer}" if layer else ""
    directed = bool(row["directed"])
    known = directed and not math.isnan(row["tau_low"])
    return [
        name,
        split,
        layer,
        str(row["graded"]),
        _number(row["tau"], "+.3f") if directed else "–",
        f"[{row['tau_low']:+.2f}, {row['tau_high']:+.2f}]" if known else "",
        _number(row["abs_tau"], ".3f"),
        _number(row["abs_tau_sd"], ".3f").replace("–", ""),
        _number(row["chance_abs_tau"], ".3f"),
        *(_number(row.get(name, math.nan), ".3f").replace("–", "") for name in COMMON),
        _number(row["accuracy"], ".1%") if directed else "–",
        _number(row["free_accuracy"], ".1%"),
        _number(row["chance_free_accuracy"], ".1%"),
        *(
            _number(row[name], ".1%").replace("–", "")
            for name in ("free_pair_accuracy", "chance_free_pair_accuracy")
        ),
        _number(row["consistency"], ".2f"),
        _number(row["seconds"], ".2f"),
        _number(row["distinct_tokens"], ",.0f"),
    ]


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file; "-" is the standard output."""
    if str(path) == "-":
        sys.stdout.writelines(lines)
        return
    write_atomically(path, lines)
