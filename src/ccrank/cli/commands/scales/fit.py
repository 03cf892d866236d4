"""`ccrank fit`: fit a scale to a list and save it."""

from __future__ import annotations

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
    pass

SHOWN_FIRST = ("file", "by", "category", "poles", "column", "labels", "sample", "method", "model", "out")


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
    with reading_progress(request.expected_tokens(reader) or 0, speed(reader), reader.cache) as progress:
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
