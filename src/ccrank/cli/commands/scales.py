"""`ccrank fit` and `ccrank score`: fit a scale and save it, and score items on it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from ccrank.cli import options as shared
from ccrank.cli.commands.rank import MethodFlags, ScaleFlags, SourceFlags, speed
from ccrank.cli.options import flag
from ccrank.cli.screen import err, reading_progress
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.io import Rows
    from ccrank.scale import Scale

FIT_SHOWN_FIRST = ("file", "by", "category", "poles", "column", "labels", "sample", "method", "model", "out")
SCORE_SHOWN_FIRST = ("items", "scale", "file", "column", "input", "out", "as_json", "model")


@dataclass(frozen=True)
class FitFlags:
    """What a scale is fitted on, and where it is written."""

    panel: ClassVar = shared.WHAT_PANEL
    out: Path | None = flag("The file of the scale, such as politeness.scale.")
    column: str | None = flag("The column (or JSON field) of items.")
    format: str | None = flag("lines, csv, tsv, jsonl or parquet; by default the suffix decides.")
    context: str | None = flag("A text that precedes every prompt; @FILE takes the text of a file.")
    tasks: Path | None = flag("Fit one scale to the tasks of a JSONL file, which are pooled.")
    labels: Path | None = flag("A file of a few labels; or tasks: the values in --tasks.")
    sample: int = flag("How many different items of the file the scale is fitted on.", default=1000, min=2)


@shared.with_flags
def fit_command(
    file: Annotated[
        Path | None, typer.Argument(help="The file of items: lines, CSV, TSV, JSONL or Parquet.")
    ] = None,
    *,
    criterion: shared.CriterionFlags,
    fit: FitFlags,
    method: MethodFlags,
    reader_flags: shared.ReaderFlags,
    templates: shared.TemplateFlags,
    cache: shared.UseCache = True,
    help_all: shared.HelpAll = False,
) -> None:
    """Fit a scale to the items of a file, and save it to score any others.

    [bold]ccrank fit reviews.csv --column text --by politeness --out politeness.scale[/bold]

    The scale is that of `ccrank rank` on the same items; of a longer file, on a sample of --sample items. Its file has
    no text of any item. `ccrank score` and `ccrank rank --scale` read it.
    """
    from ccrank.cli.commands.rank_input import check_method, given_request
    from ccrank.cli.commands.rank_output import check_place, save_scale, show_warnings
    from ccrank.request import RankRequest

    if fit.out is None:
        raise CcrankError("give the file of the scale with --out, such as --out politeness.scale")
    check_place(fit.out)
    if (file is None) == (fit.tasks is None):
        raise CcrankError("give one file of items, or --tasks")
    known: dict[str, Any] = {"context": fit.context, "tasks": fit.tasks}
    if file is None:
        source = SourceFlags(labels=fit.labels, **known)
    else:  # its items are sampled below
        source = SourceFlags(input=file, column=fit.column, format=fit.format, labels=fit.labels, **known)
    request: RankRequest = given_request(None, criterion, source, method, templates)
    if file is not None:
        request = _with_sample(request, file, fit)
    check_method(request, source, ScaleFlags(save_scale=fit.out))
    reader = shared.open_any_model(method.model, reader_flags.options(), cache)
    with reading_progress(request.expected_tokens(reader) or 0, speed(reader)) as progress:
        scales = request.fit(reader, progress)
    if (unsaved := save_scale(scales, fit.out)) is not None:
        raise unsaved
    items = sum(len(scale) for scale in scales)
    size = fit.out.stat().st_size / 1e6
    err().print(
        f"ccrank: the scale of {scales[0].criterion.name}, fitted on {items:,} items, is in {fit.out} ({size:.1f} MB)",
        highlight=False,
        soft_wrap=True,
    )
    show_warnings([scale.ranking for scale in scales if scale.ranking is not None])


def _with_sample(request: Any, file: Path, fit: FitFlags) -> Any:
    """The request for a sample of the file's items."""
    from ccrank.io import Rows
    from ccrank.io.blocks import open_source
    from ccrank.io.labelfiles import possible_items, read_labels
    from ccrank.jobs.scan import scan

    source = open_source(file, fit.column, fit.format)
    always = frozenset() if fit.labels is None else possible_items(fit.labels)
    found = scan(source.texts(), fit.sample, always)
    if not found.items:
        raise CcrankError(f"{file} contains no items: there is no text in column {source.column!r}")
    request = replace(request, items=Rows(found.sample))
    _ = request.task
    return request if fit.labels is None else replace(request, labels=read_labels(fit.labels, found.sample))


@dataclass(frozen=True)
class ScoreFlags(shared.ItemFlags):
    """What is scored, and where scores go."""

    panel: ClassVar = shared.WHAT_PANEL
    scale: Path | None = flag("The scale that `ccrank fit` or `ccrank rank --save-scale` wrote.")
    input: Path | None = flag(
        "Score a file of any length in bounded memory, to --out FILE.parquet; an interrupted run is resumed."
    )
    format: str | None = flag("lines, csv, tsv, jsonl, parquet or xlsx; by default the suffix decides.")
    out: Path | None = flag("Write to this file instead of stdout (.csv, .tsv, .jsonl, .parquet, .xlsx).")
    as_json: bool = flag("Print one JSON object for each item.", "--json", default=False)
    block_rows: int | None = flag("Rows that are scored and stored at a time.", min=1, hidden=True)
    model: str = flag(
        "The model that the scale was fitted on, if it is elsewhere on this machine.",
        "--model",
        "-m",
        default="default",
    )


@shared.with_flags
def score_command(
    items: Annotated[
        list[str] | None,
        typer.Argument(help="The items; without any, they come from --file, --input or stdin."),
    ] = None,
    *,
    score: ScoreFlags,
    reader_flags: shared.ReaderFlags,
    cache: shared.UseCache = True,
    cluster: shared.ClusterFlags,
    help_all: shared.HelpAll = False,
) -> None:
    """Score items on a scale that was fitted before, one by one, in the order in which they are given.

    [bold]ccrank score --scale politeness.scale "Could you help me, please?" "Move."[/bold]

    [bold]ccrank score --scale politeness.scale --input new.csv --column text --out scored.parquet[/bold]

    A table keeps its rows and columns; score is added, and deviation where the scale has labels. The items that the
    scale was fitted on have the scores of their ranking.
    """
    from ccrank.cli.commands.rank_input import of_scale, rows_given
    from ccrank.cli.commands.rank_output import check_place, format_of
    from ccrank.scale import Scale

    if score.scale is None:
        raise CcrankError("give a scale with --scale; `ccrank fit FILE --by … --out X.scale` makes one")
    if score.input is None and score.block_rows is not None:
        raise CcrankError("--block-rows is for --input; add it, or remove --block-rows")
    form = "jsonl" if score.as_json else "csv"
    if score.out is not None:
        check_place(score.out)
        form = format_of(score.out, "jsonl" if score.as_json else None)
    scale = Scale.load(score.scale)
    flags, reader_flags = of_scale(scale, MethodFlags(model=score.model), reader_flags)
    given = (flags.model, reader_flags.options(), cache, cluster)
    if score.input is not None:
        if items or score.file or score.as_json:
            raise CcrankError("--input scores a file to --out; remove the items, --file and --json")
        if score.out is None or form != "parquet":
            raise CcrankError("--input writes Parquet: give it with --out, such as --out scored.parquet")
        from ccrank.cli.commands.rank_stream import stream
        from ccrank.jobs import StreamOptions
        from ccrank.jobs.scan import BLOCK_ROWS

        options = StreamOptions(
            column=score.column, format=score.format, block_rows=score.block_rows or BLOCK_ROWS
        )
        stream(
            scale, score.input, score.out, options, cluster, lambda: shared.open_reader(*given), in_order=True
        )
        return
    source = SourceFlags(file=score.file, column=score.column, format=score.format)
    rows = rows_given(items, source)
    content = encoded(scale.with_reader(shared.open_any_model(*given)), rows, form)
    if score.out is not None:
        from ccrank.util.files import write_atomically

        write_atomically(score.out, content)
    else:
        sys.stdout.writelines(content.decode("utf-8").splitlines(keepends=True))


def encoded(scale: Scale, rows: Rows, form: str) -> bytes:
    """The rows in their own order, with score and, where the scale has labels, deviation."""
    from math import isnan

    from ccrank.io import encode_table
    from ccrank.io.ranked import DECIMALS, added_names

    found = scale.score(rows)
    columns = [found.values] + ([] if found.deviation is None else [found.deviation])
    cells = [
        [None if isnan(value) else round(float(value), DECIMALS) for value in column] for column in columns
    ]
    plain = not rows.columns
    header = ("item",) if plain else rows.columns
    records = [(text,) for text in rows.texts] if plain else rows.records
    names = added_names(header, ("score", "deviation")[: len(cells)])
    return encode_table(
        (*header, *names),
        [(*record, *added) for record, *added in zip(records, *cells, strict=True)],
        form,
    )
