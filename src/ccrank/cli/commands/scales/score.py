"""`ccrank score`: scores of items on a scale."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from ccrank.cli import options as shared
from ccrank.cli.commands.rank import MethodFlags, SourceFlags
from ccrank.cli.options import flag
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.io import Rows
    from ccrank.scale import Scale

SHOWN_FIRST = ("items", "scale", "file", "column", "input", "out", "as_json", "model")


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

        options = StreamOptions(column=score.column, format=score.format, block_rows=score.block_rows)
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
