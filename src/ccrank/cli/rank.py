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
from ccrank.cli.rank_input import OF_TASKS, given_labels, given_tasks, given_templates, method_and_options
from ccrank.cli.rank_output import (
    check_fits_probe,
    check_output,
    check_place,
    check_plot,
    refuse_overwriting,
    rendered,
    save_shared_probe,
)
from ccrank.cli.screen import reading_progress, spinner
from ccrank.cli.warn import show_warnings, warning_lines, write_warnings_beside
from ccrank.errors import CcrankError
from ccrank.files import write_atomically

if TYPE_CHECKING:
    from ccrank.methods import Method
    from ccrank.prompts import Templates
    from ccrank.remote import OpenModel
    from ccrank.task import Task

WHAT, MODEL, SHOW = shared.WHAT_PANEL, shared.READER_PANEL, shared.SHOW_PANEL


@shared.with_reader_flags
def rank_command(
    items: Annotated[
        list[str] | None,
        typer.Argument(help="The items; without any, they come from --file, --tasks or stdin."),
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
    comparative: shared.Comparative = None,
    poles: shared.Poles = None,
    category: shared.Category = None,
    context: Annotated[
        Path | None,
        typer.Option("--context", help="A file whose text precedes every prompt.", rich_help_panel=WHAT),
    ] = None,
    file: shared.ItemFile = None,
    input: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Rank a file of any length in bounded memory, to --out FILE.parquet; an interrupted run is resumed.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    column: shared.ItemColumn = None,
    id: Annotated[
        str | None,
        typer.Option("--id", help="The column of row ids, which the results repeat.", rich_help_panel=WHAT),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="lines, csv, tsv, jsonl, parquet or xlsx; by default the suffix decides.",
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
            help="A file of a few labels: item,value (CSV, TSV, JSON) or lines A > B; or tasks: the values in --tasks.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    first_stage: Annotated[
        str | None,
        typer.Option(
            "--first-stage",
            help="With a query, scores to add: bm25, given (those in --tasks), none, or a TREC run file.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="See `ccrank methods`. \\[default: auto]", rich_help_panel=MODEL),
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
            help="The layer of a probe: last, all, auto or a number.",
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
    model: shared.AnyModel = "default",
    reader_flags: shared.ReaderFlags = shared.NO_FLAGS,
    templates: shared.TemplateFile = None,
    template: shared.TemplateChange = None,
    no_cache: shared.NoCache = False,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Only the first K items.", rich_help_panel=SHOW)
    ] = None,
    refine: Annotated[
        str | None,
        typer.Option(
            "--refine",
            help="With --input and --top: the method that compares the finalists, or none. \\[default: auto]",
            rich_help_panel=SHOW,
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            min=2,
            help="With --input: how many items the scale is fitted on. \\[default: 1000]",
            rich_help_panel=MODEL,
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
    as_json: shared.AsShownJson = False,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv",
            help="Print CSV; a table keeps its columns, and rank and score are added.",
            rich_help_panel=SHOW,
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write to this file instead of stdout (.csv, .tsv, .jsonl, .json, .parquet, .xlsx).",
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
    comparative = shared.renamed("--more", more, "--comparative", comparative)
    labels = shared.renamed("--gold", gold, "--labels", labels)
    signals = shared.renamed("--parts", parts, "--signals", signals)
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
            raise CcrankError(f"--input ranks a file to --out; remove {', '.join(several)}")
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
            raise CcrankError(f"{name} is for --input; add it, or remove {name}")
    how = "json" if as_json else "csv" if as_csv else None
    wanted, rows = given_tasks(
        items, by, query, comparative, poles, category, context, file, column, id, form, tasks
    )
    first_run = None if first_stage is None else Path(first_stage)  # or one of the names, which are no files
    if first_stage is not None:
        from ccrank.cli.relevance import take_first_stage

        wanted, first_stage = take_first_stage(wanted, first_stage)
    for flag, written in {"--run": run, "--save-probe": save_probe, "--plot": plot}.items():
        if written is not None:
            check_place(written)
            for given in (tasks, file, labels, context, templates, probe, first_run):
                refuse_overwriting(written, given, flag)
    # Validate the arguments before any slow work.
    if plot is not None:
        check_plot(plot, wanted)
    if output is not None:
        how = check_output(output, how)
        for given in (tasks, file, labels, context, templates, probe, first_run):
            refuse_overwriting(output, given)
    if how not in (None, "json") and rows is not None:
        from ccrank.rows import RankedRows, encode_rows

        encode_rows(RankedRows.unscored(rows), how)
    with spinner("starting"):
        from ccrank.api import rank_tasks
        from ccrank.methods import get_method
    chosen, options = method_and_options(method, option, layer, probe, first_stage)
    if labels is not None:
        options["labels"] = given_labels(labels, wanted, get_method(chosen))
    elif save_probe is not None:
        check_fits_probe(get_method(chosen))
    wording = given_templates(templates, template, options)
    reader = shared.open_any_model(model, reader_flags.options(), use_cache=not no_cache, cluster=where)
    with reading_progress(*_expected(wanted, reader, get_method(chosen), wording, options)) as progress:
        rankings = rank_tasks(wanted, reader, chosen, wording, options=options, progress=progress)
    if options.get("labels") == OF_TASKS:
        # What served as a label is no gold to measure the ranking against.
        rankings = [replace(one, task=replace(one.task, values=None)) for one in rankings]
    if rows is not None:
        rankings = [replace(rankings[0], rows=rows)]
    # Files come before what is shown, which ends early where it is piped into `head`.
    unsaved = None if save_probe is None else save_shared_probe(rankings, save_probe)
    if run is not None:
        from ccrank.cli.relevance import run_of

        write_atomically(run, run_of(rankings))
    if plot is not None:
        from ccrank.scale_plot import plot_scale

        plot_scale(rankings[0], plot)
    if output is not None and how:
        write_atomically(output, rendered(how, rankings, top, reverse, many=tasks is not None))
        if how != "json":
            write_warnings_beside(output, warning_lines(rankings))
    elif how:
        # Line by line: an unbuffered stream drops the rest of a large write when the pipe is closed.
        text = rendered(how, rankings, top, reverse, many=tasks is not None).decode("utf-8")
        sys.stdout.writelines(text.splitlines(keepends=True))
    else:
        from ccrank.cli.show import show

        show(rankings, top, reverse, signals)
    show_warnings(rankings)
    if unsaved is not None:
        raise unsaved


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
