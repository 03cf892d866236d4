"""`ccrank rank`: rank items by a criterion."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli import options as shared
from ccrank.cli.screen import json_text, reading_progress, spinner
from ccrank.cli.warn import show_warnings, write_warnings_beside
from ccrank.errors import CcrankError
from ccrank.files import read_text, write_atomically

if TYPE_CHECKING:
    from ccrank.labels import Labels
    from ccrank.methods import Method
    from ccrank.prompts import Templates
    from ccrank.ranking import Ranking
    from ccrank.remote import OpenModel
    from ccrank.rows import Rows
    from ccrank.task import Task

OF_TASKS = "tasks"
"""As --labels: the values that the tasks have themselves."""
WHAT, MODEL, SHOW = "What to rank", "Model and prompts", "What to show"


@shared.with_reader_flags
def rank_command(
    items: Annotated[
        list[str] | None, typer.Argument(help="The items; default: --file, --tasks or stdin.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", help="The criterion: size, cheapest, least risky …", rich_help_panel=WHAT),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query", help="Rank documents by relevance to this text, instead of --by.", rich_help_panel=WHAT
        ),
    ] = None,
    comparative: Annotated[
        str | None,
        typer.Option("--comparative", help="How the higher item compares: larger.", rich_help_panel=WHAT),
    ] = None,
    poles: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--poles", help="Words for the low and the high pole: small large.", rich_help_panel=WHAT
        ),
    ] = None,
    category: Annotated[
        str | None, typer.Option("--category", help="What the items are: country.", rich_help_panel=WHAT)
    ] = None,
    context: Annotated[
        Path | None,
        typer.Option("--context", help="A text file that the items are about.", rich_help_panel=WHAT),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="Items from lines, CSV, TSV, JSONL, Parquet or .xlsx.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Rank a file of any length in bounded memory, into --out FILE.parquet; resumes after a kill.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="The column (or field) of items.", rich_help_panel=WHAT)
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", help="The column that names the rows, for joining.", rich_help_panel=WHAT),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="lines, csv, tsv, jsonl, parquet or xlsx; default: by suffix.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option("--tasks", help="Rank every task of a JSONL file.", rich_help_panel=WHAT)
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="A few labels: item,value (CSV, TSV, JSON) or lines A > B; tasks: the values of --tasks.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    first_stage: Annotated[
        str | None,
        typer.Option(
            "--first-stage",
            help="With a query, add these scores: bm25, given (in --tasks), none, or a TREC run file.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="See `ccrank methods`.", rich_help_panel=MODEL)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="An option of the method, NAME=VALUE.", rich_help_panel=MODEL),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "--layers",
            help="Layer of a probe: last, all, auto or a number.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    probe: Annotated[
        Path | None,
        typer.Option("--probe", help="Rank with a probe saved by --save-probe.", rich_help_panel=MODEL),
    ] = None,
    save_probe: Annotated[
        Path | None,
        typer.Option("--save-probe", help="Save the fitted probe (.safetensors).", rich_help_panel=MODEL),
    ] = None,
    model: shared.Model = "default",
    reader_flags: shared.ReaderFlags = shared.NO_FLAGS,
    templates: shared.TemplateFile = None,
    template: shared.TemplateChange = None,
    no_cache: shared.NoCache = False,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Show the first K.", rich_help_panel=SHOW)
    ] = None,
    refine: Annotated[
        str | None,
        typer.Option(
            "--refine",
            help="Of --input with --top: how finalists are compared, a method or none.",
            rich_help_panel=SHOW,
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample", min=2, help="Of --input: how many items fix the scale.", rich_help_panel=MODEL
        ),
    ] = None,
    block_rows: Annotated[int | None, typer.Option("--block-rows", min=1, hidden=True)] = None,
    engine: shared.EngineName = "local",
    address: shared.Address = None,
    workers: shared.Workers = None,
    signals: Annotated[
        bool, typer.Option("--signals", help="Show the signals of a combined score.", rich_help_panel=SHOW)
    ] = False,
    reverse: Annotated[bool, typer.Option("--reverse", help="Lowest first.", rich_help_panel=SHOW)] = False,
    as_json: shared.AsJson = False,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print CSV: the rows of a table, rank and score added.", rich_help_panel=SHOW
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write to this file instead (.csv, .tsv, .jsonl, .json, .parquet, .xlsx).",
            rich_help_panel=SHOW,
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Also write a TREC run to this file.", rich_help_panel=SHOW),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Plot the items on their scale (.png, .pdf, .svg).", rich_help_panel=SHOW
        ),
    ] = None,
    more: Annotated[str | None, typer.Option("--more", hidden=True)] = None,
    gold: Annotated[Path | None, typer.Option("--gold", hidden=True)] = None,
    parts: Annotated[bool, typer.Option("--parts", hidden=True)] = False,
) -> None:
    """Rank items by a criterion, or documents by relevance to a query, best first.

    [bold]ccrank rank pizza broccoli candy apple rice --by healthiness --category food[/bold]

    [bold]ccrank rank --file reviews.csv --column text --by sentiment --poles negative positive --json[/bold]

    [bold]ccrank rank --file pages.jsonl --column text --query "how do storms form?" --first-stage bm25[/bold]

    [bold]ccrank rank --file animals.csv --column animal --by weight --category animal --out ranked.csv[/bold]

    [bold]ccrank rank --input items.parquet --column text --by politeness --out ranked.parquet[/bold]

    A table keeps its rows and columns; rank and score are added. Results go to stdout, progress and warnings to stderr.
    Exit codes: 0 done, 2 bad input, 130 interrupted, 141 closed pipe.
    """
    if as_json and as_csv:
        raise CcrankError("--json and --csv are mutually exclusive")
    where = shared.Cluster(engine, address, workers)
    if input is not None:
        from ccrank.cli.stream import rank_stream

        others = {
            "items": items,
            "--file": file,
            "--tasks": tasks,
            "--id": id,
            "--json": as_json,
            "--csv": as_csv,
        }
        others |= {"--plot": plot, "--signals": signals, "--save-probe": save_probe}
        others |= {"--query": query, "--first-stage": first_stage, "--run": run}
        if several := [name for name, value in others.items() if value]:
            raise CcrankError(f"--input ranks a file into another; remove {', '.join(several)}")
        rank_stream(
            input,
            output,
            (by, comparative, poles, category),
            context,
            method=method,
            option=option,
            layer=layer,
            probe=probe,
            labels=labels,
            model=model,
            reader_options=reader_flags.options(),
            wording=(templates, template),
            use_cache=not no_cache,
            given={
                "column": column,
                "format": form,
                "top": top,
                "reverse": reverse,
                "refine": refine,
                "sample": sample,
                "block_rows": block_rows,
            },
            cluster=where,
        )
        return
    for name, value in {"--sample": sample, "--refine": refine, "--block-rows": block_rows}.items():
        if value is not None:
            raise CcrankError(f"{name} is for --input; remove it")
    how = "json" if as_json else "csv" if as_csv else None
    comparative = shared.renamed("--more", more, "--comparative", comparative)
    labels = shared.renamed("--gold", gold, "--labels", labels)
    signals = shared.renamed("--parts", parts, "--signals", signals)
    wanted, rows = _tasks(
        items, by, query, comparative, poles, category, context, file, column, id, form, tasks
    )
    if first_stage is not None:
        from ccrank.cli.relevance import take_first_stage

        wanted, first_stage = take_first_stage(wanted, first_stage)
    if run is not None:
        _check_place(run)
    # Validate the arguments before any slow work.
    if plot is not None:
        check_plot(plot, wanted)
    if output is not None:
        how = check_output(output, how)
    if how not in (None, "json") and rows is not None:
        from ccrank.rows import RankedRows, encode_rows

        encode_rows(RankedRows.unscored(rows), how)
    with spinner("starting"):
        from ccrank.api import rank_tasks
        from ccrank.methods import get_method
        from ccrank.prompts import load_templates
    chosen, options = method_and_options(method, option, layer, probe, first_stage)
    if labels is not None:
        options["labels"] = _labels(labels, wanted, get_method(chosen))
    wording = load_templates(templates, template or ())
    reader = shared.open_any_model(model, reader_flags.options(), use_cache=not no_cache, cluster=where)
    with reading_progress(*_expected(wanted, reader, get_method(chosen), wording, options)) as progress:
        rankings = rank_tasks(wanted, reader, chosen, wording, options=options, progress=progress)
    if options.get("labels") == OF_TASKS:
        # What served as a label is no gold to measure the ranking against.
        rankings = [replace(one, task=replace(one.task, values=None)) for one in rankings]
    if rows is not None:
        rankings = [replace(rankings[0], rows=rows)]
    if save_probe is not None:
        _save_probe(rankings, save_probe)
    if run is not None:
        from ccrank.cli.relevance import run_of

        write_atomically(run, run_of(rankings))
    if output is not None and how:
        write_atomically(output, _render(how, rankings, top, reverse, many=tasks is not None))
        if how != "json":
            write_warnings_beside(output, rankings)
    elif how:
        # Line by line: an unbuffered stream drops the rest of a large write when the pipe is closed.
        text = _render(how, rankings, top, reverse, many=tasks is not None).decode("utf-8")
        sys.stdout.writelines(text.splitlines(keepends=True))
    else:
        from ccrank.cli.show import show

        show(rankings, top, reverse, signals)
    show_warnings(rankings)
    if plot is not None:
        from ccrank.scale_plot import plot_scale

        plot_scale(rankings[0], plot)


def _tasks(
    items: Sequence[str] | None,
    by: str | None,
    query: str | None,
    comparative: str | None,
    poles: tuple[str, str] | None,
    category: str | None,
    context: Path | None,
    file: Path | None,
    column: str | None,
    id: str | None,
    form: str | None,
    tasks: Path | None,
) -> tuple[list[Task], Rows | None]:
    """The tasks that the arguments describe, and the rows of a single list; exactly one source of items is allowed."""
    if tasks is not None:
        given: dict[str, object] = {
            "items": items,
            "--by": by,
            "--query": query,
            "--comparative": comparative,
            "--poles": poles,
            "--category": category,
            "--context": context,
            "--file": file,
            "--column": column,
            "--id": id,
            "--format": form,
        }
        if several := [name for name, value in given.items() if value]:
            raise CcrankError(f"--tasks contains items and criteria; remove {', '.join(several)}")
        from ccrank.taskfiles import read_tasks

        return read_tasks(tasks), None
    if items and (file or column or id or form):
        raise CcrankError(
            "give the items as arguments, or with --file (and its --column, --id and --format), not both"
        )
    words = {"--by": by, "--comparative": comparative, "--poles": poles, "--category": category}
    if query is not None and (given_too := [name for name, value in words.items() if value]):
        raise CcrankError(f"--query is the criterion; remove {', '.join(given_too)}")
    if query is None and (by is None or not by.strip()):
        raise CcrankError(
            "no criterion: give one, such as --by size or --by 'how positive it is', or --query for documents"
        )
    if not items and file is None and sys.stdin.isatty():
        raise CcrankError("no items: give them as arguments, with --file, or on stdin, one per line")
    from ccrank.criterion_phrase import criterion_of
    from ccrank.rows import read_rows, rows_of_items

    rows = rows_of_items(items) if items else read_rows(file if file is not None else "-", column, form, id)
    text = context_text(context)
    if query is not None:
        task = rows.task_of_query(query, text, id="ranking by relevance")
    else:
        assert by is not None
        criterion = criterion_of(by, comparative=comparative, poles=poles, category=category)
        task = rows.task(criterion, text, id=f"ranking by {by.strip()}")
    for note in rows.notes():
        sys.stderr.write(f"ccrank: {note}\n")
    return [task], rows


def method_and_options(
    method: str | None,
    option: Sequence[str] | None,
    layer: str | None,
    probe: Path | None,
    first_stage: str | None = None,
) -> tuple[str, dict[str, Any]]:
    """The name of the method, and its options as values."""
    from ccrank.methods import DEFAULT_METHOD, SAVED_PROBE, get_method

    if probe is not None and method not in (None, SAVED_PROBE):
        raise CcrankError(f"--probe ranks with the saved probe; remove --method {method}")
    chosen = SAVED_PROBE if probe is not None else method or DEFAULT_METHOD
    pairs = shared.parse_pairs(option)
    pairs |= {"layer": layer} if layer is not None else {}
    pairs |= {"file": str(probe)} if probe is not None else {}
    pairs |= {"first_stage": first_stage} if first_stage is not None else {}
    return chosen, get_method(chosen).parse_options(pairs)


def named_criterion(by: str | None) -> str:
    """The criterion, which must be given."""
    if by is None or not by.strip():
        raise CcrankError("no criterion: give one, such as --by size or --by 'how positive it is'")
    return by


def context_text(context: Path | None) -> str | None:
    """The text of the --context file."""
    text = None if context is None else read_text(context).strip()
    if text == "":
        raise CcrankError(
            f"the --context file {context} is empty; put the text into it, or leave --context out"
        )
    return text


def _expected(
    tasks: Sequence[Task], reader: OpenModel, method: Method, templates: Templates, options: Mapping[str, Any]
) -> tuple[int, float]:
    """About how many tokens will be read, and how many of them in a second: of a server, nobody knows."""
    from ccrank.estimate import expected_tokens
    from ccrank.lm.speed import tokens_per_second
    from ccrank.remote import RemoteReader

    try:
        tokens = expected_tokens(tasks, reader, method, templates, options)
    except CcrankError:
        tokens = 0  # the method checks its input more closely, and says what is wrong
    return tokens, inf if isinstance(reader, RemoteReader) else tokens_per_second(reader.loaded.model)


def _labels(path: Path, tasks: Sequence[Task], method: Method) -> Labels | str:
    """The labels of the one list, or the word for the tasks' own values, for a method that takes labels."""
    from ccrank.labelfiles import read_labels

    if "labels" not in method.options:
        raise CcrankError(f"{method.name} uses no labels; remove --labels, or use --method auto")
    if str(path) == OF_TASKS and not path.exists():
        return OF_TASKS
    if len(tasks) != 1:
        raise CcrankError(
            f"--labels FILE is for the items of one list; the tasks file has {len(tasks)}: put values into the tasks "
            f"and give --labels {OF_TASKS}"
        )
    return read_labels(path, tasks[0].items)


def _save_probe(rankings: Sequence[Ranking], path: Path) -> None:
    """The probe of the ranking; for several tasks, only one shared by all."""
    probes = {id(ranking.probe): ranking.probe for ranking in rankings}
    [found] = probes.values() if len(probes) == 1 else [None]
    if found is None:
        reason = (
            "each task has its own probe" if len(probes) > 1 else "it fits none, or several layers at once"
        )
        raise CcrankError(f"{rankings[0].method} has no probe to save: {reason}")
    found.save(path)


def check_plot(plot: Path, tasks: Sequence[Task]) -> None:
    """Raise an error if the plot cannot be drawn."""
    from ccrank.scale_plot import MOST_ITEMS

    if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise CcrankError(f"--plot must be a .png, .pdf or .svg file, not {plot.name}")
    if len(tasks) != 1:
        raise CcrankError(f"--plot draws one ranking; the tasks file has {len(tasks)}")
    if len(tasks[0].items) > MOST_ITEMS:
        raise CcrankError(f"--plot draws up to {MOST_ITEMS} items, got {len(tasks[0].items)}")
    _check_place(plot)


def check_output(path: Path, how: str | None) -> str:
    """The output format; raises an error if the file cannot be written."""
    from ccrank.rows import FORMAT_OF_SUFFIX

    how = how or {".json": "json", **FORMAT_OF_SUFFIX}.get(path.suffix.lower())
    if how is None:
        raise CcrankError(
            f"--out {path}: the name ends in none of .json, {', '.join(FORMAT_OF_SUFFIX)}; rename it, or give "
            "--json or --csv"
        )
    _check_place(path)
    return how


def _check_place(path: Path) -> None:
    if not path.resolve().parent.is_dir():
        raise CcrankError(f"the folder of {path} does not exist")
    if path.is_dir():
        raise CcrankError(f"{path} is a folder; give a file")


def _render(how: str, rankings: Sequence[Ranking], top: int | None, reverse: bool, many: bool) -> bytes:
    """The content of a file: JSON, or the rows in one of the formats of tables. Of many tasks, JSON lines hold one
    object each, as --json prints them; a table has a column for the task."""
    if how == "json" or (how == "jsonl" and many):
        found = [_json(ranking, top, reverse) for ranking in rankings]
        text = "".join(json_text(one, indent=None) for one in found) if many else json_text(found[0])
        return text.encode("utf-8", "backslashreplace")
    from ccrank.rows import encode_rows, encode_table

    if not many:
        return encode_rows(rankings[0].ranked_rows(top, reverse), how)
    records = [
        (ranking.task.id, *record)
        for ranking in rankings
        for record in ranking.ranked_rows(top, reverse).records
    ]
    return encode_table(("task", *rankings[0].ranked_rows(0).columns), records, how)


def _json(ranking: Ranking, top: int | None, reverse: bool) -> dict[str, Any]:
    result = ranking.to_json(top, reverse)
    if ranking.task.values is not None and ranking.task.query is not None:
        from ccrank.cli.relevance import relevance_json

        result |= relevance_json(ranking)
    elif ranking.task.values is not None:
        from ccrank.metrics import evaluate
        from ccrank.ranking import finite

        found = evaluate(ranking.scores, ranking.task.values)
        result["against_gold"] = {
            "tau": finite(found.tau),
            "abs_tau": finite(found.abs_tau),
            "accuracy": finite(found.accuracy),
            "chance_abs_tau": finite(found.chance_abs_tau),
            "chance_free_accuracy": finite(found.chance_free_accuracy),
        }
    return result
