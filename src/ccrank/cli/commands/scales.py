"""`ccrank fit` and `ccrank score`: a list's scale in a file, and scores of other items on it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccrank.cli import options as shared
from ccrank.cli.commands.rank import MethodFlags, RankFlags, fit_scales
from ccrank.cli.options import argument, flag
from ccrank.cli.screen import say
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.io import Rows
    from ccrank.request import RankRequest
    from ccrank.scale import Scale


@dataclass(frozen=True, kw_only=True)
class FitFlags(
    shared.CriterionFlags,
    MethodFlags,
    shared.ReaderFlags,
    shared.TemplateFlags,
    shared.CacheFlags,
    panel=shared.WHAT_PANEL,
):
    file: Path | None = argument("The file of items: lines, CSV, TSV, JSONL or Parquet.")
    out: Path | None = flag("The file of the scale, such as politeness.scale.")
    column: str | None = flag("The column (or JSON field) of items.")
    format: str | None = flag("lines, csv, tsv, jsonl or parquet; by default the suffix decides.")
    context: str | None = flag("A text that precedes every prompt; @FILE takes the text of a file.")
    tasks: Path | None = flag("Fit one scale to the tasks of a JSONL file, which are pooled.")
    labels: Path | None = flag("A file of a few labels; or tasks: the values in --tasks.")
    sample: int = flag("How many different items of the file the scale is fitted on.", default=1000, min=2)


@shared.takes_flags("file by category poles column labels sample method model out")
def fit_command(flags: FitFlags) -> None:
    """Fit a scale to the items of a file, and save it to score any others.

    [bold]ccrank fit reviews.csv --column text --by politeness --out politeness.scale[/bold]

    The scale is the one that `ccrank rank` fits to the same items; of a longer file, to a sample of --sample items. Its
    file contains no text of any item. `ccrank score` and `ccrank rank --scale` read it.
    """
    from ccrank.cli.commands.rank_input import check_method, given_request
    from ccrank.cli.commands.rank_output import check_target, save_scale, show_warnings
    from ccrank.jury import fitted, members_of
    from ccrank.scale import one_scale

    if flags.out is None:
        raise CcrankError("give the file of the scale with --out, such as --out politeness.scale")
    if (flags.file is None) == (flags.tasks is None):
        raise CcrankError("give one file of items, or --tasks")
    # It is fitted as `ccrank rank` does on a long file.
    both = {each.name for each in fields(RankFlags)} & {each.name for each in fields(flags)}
    given = {name: getattr(flags, name) for name in both - {"by", "file", "out", "sample"}}
    as_ranked = RankFlags(
        **given, by=None if flags.by is None else [flags.by], input=flags.file, save_scale=flags.out
    )
    check_target(flags.out, "--out", as_ranked.files_read)
    request = given_request(as_ranked)
    if flags.file is not None:
        request = _with_sample(request, flags.file, flags)
    check_method(request, as_ranked)
    readers, fits = [], []
    for model in members_of(flags.model):
        readers.append(shared.open_any_model(model, flags.reader_options(), flags.cache))
        fits.append(fit_scales(request, readers[-1]))
    scales = fits[0] if len(fits) == 1 else [fitted([one_scale(of_model) for of_model in fits], readers)]
    save_scale(scales, flags.out)
    items = sum(len(scale) for scale in scales)
    size = flags.out.stat().st_size / 1e6
    say(
        f"the scale of {scales[0].criterion.name}, fitted on {items:,} items, is in {flags.out} ({size:.1f} MB)"
    )
    show_warnings([scale.ranking for scale in scales if scale.ranking is not None])


def _with_sample(request: RankRequest, file: Path, flags: FitFlags) -> RankRequest:
    """The request for a sample of the file's items."""
    from ccrank.io import Rows
    from ccrank.io.labelfiles import possible_items, read_labels
    from ccrank.io.reading import open_source
    from ccrank.jobs.passes import scan

    source = open_source(file, flags.column, flags.format)
    always = frozenset() if flags.labels is None else possible_items(flags.labels)
    scanned = scan(source.texts(), flags.sample, always)
    if not scanned.items:
        raise CcrankError(f"{file} contains no items: there is no text in column {source.column!r}")
    request = replace(request, items=Rows(scanned.sample))
    _ = request.task  # errors are raised before labels are read
    if flags.labels is None:
        return request
    return replace(request, labels=read_labels(flags.labels, scanned.sample))


@dataclass(frozen=True, kw_only=True)
class ScoreFlags(
    shared.ItemFlags, shared.ReaderFlags, shared.CacheFlags, shared.ClusterFlags, panel=shared.WHAT_PANEL
):
    items: list[str] | None = argument("The items; without any, they come from --file, --input or stdin.")
    scale: Path | None = flag("The scale that `ccrank fit` or `ccrank rank --save-scale` wrote.")
    input: Path | None = flag(
        "Score a file of any length in bounded memory, to --out FILE.parquet; an interrupted run is resumed."
    )
    format: str | None = flag("lines, csv, tsv, jsonl, parquet or xlsx; by default the suffix decides.")
    out: Path | None = flag("Write to this file instead of stdout (.csv, .tsv, .jsonl, .parquet, .xlsx).")
    json: bool = flag("Print one JSON object for each item.", default=False)
    block_rows: int | None = flag("Rows that are scored and stored at a time.", min=1, hidden=True)
    model: str = flag(
        "The model that the scale was fitted on, if it is elsewhere on this machine.",
        "--model",
        "-m",
        default="default",
    )


@shared.takes_flags("items scale file column input out json model")
def score_command(flags: ScoreFlags) -> None:
    """Score items on a scale that was fitted before, one by one, in the order in which they are given.

    [bold]ccrank score --scale politeness.scale "Could you help me, please?" "Move."[/bold]

    [bold]ccrank score --scale politeness.scale --input new.csv --column text --out scored.parquet[/bold]

    A table keeps its rows and columns; score is added, and its standard deviation where the scale knows it (auto,
    labels). The items that the scale was fitted on have the scores of their ranking.
    """
    from ccrank.cli.commands.rank_input import model_of_scale, rows_given
    from ccrank.cli.commands.rank_output import format_of, write_or_print
    from ccrank.jury import members_of
    from ccrank.scale import Scale

    if flags.scale is None:
        raise CcrankError("give a scale with --scale; `ccrank fit FILE --by … --out X.scale` makes one")
    if flags.input is None and flags.block_rows is not None:
        raise CcrankError("--block-rows is for --input; add it, or remove --block-rows")
    form = "jsonl" if flags.json else "csv"
    if flags.out is not None:
        read = [path for path in (flags.scale, flags.file, flags.input) if path is not None]
        form = format_of(flags.out, "jsonl" if flags.json else None, read)
    scale = Scale.load(flags.scale)
    model, chat = model_of_scale(scale, flags.model, flags.chat)
    models, flags = members_of(model), replace(flags, chat=chat)
    if flags.input is not None:
        if flags.items or flags.file or flags.json:
            raise CcrankError("--input scores a file to --out; remove the items, --file and --json")
        if flags.out is None or form != "parquet":
            raise CcrankError("--input writes Parquet: give it with --out, such as --out scored.parquet")
        if len(models) > 1:
            raise CcrankError("--input scores with one model, and this scale has several; use --file")
        from ccrank.cli.commands.rank_stream import stream
        from ccrank.jobs import StreamOptions

        options = StreamOptions(
            column=flags.column, format=flags.format, block_rows=flags.block_rows, in_order=True
        )
        stream(scale, options, flags, models[0])
        return
    rows = rows_given(flags.items, flags.file, flags.column, flags.format)
    readers = [shared.open_any_model(name, flags.reader_options(), flags.cache, flags) for name in models]
    write_or_print(encoded(scale.with_reader(*readers), rows, form), flags.out)


def encoded(scale: Scale, rows: Rows, form: str) -> bytes:
    """The rows in their own order, with score and, where it is known, deviation."""
    from math import isnan

    from ccrank.io import RankedRows, encode_table
    from ccrank.io.table import DECIMALS

    scores = scale.score(rows)
    added = {"score": scores.values, "deviation": scores.deviation}
    cells = {
        name: [None if isnan(value) else round(value, DECIMALS) for value in column.tolist()]
        for name, column in added.items()
        if column is not None
    }
    scored = RankedRows(rows.as_table, tuple(range(len(rows.texts))), cells)
    return encode_table(scored.columns, scored.records, form)
