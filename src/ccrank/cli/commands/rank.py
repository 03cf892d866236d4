"""`ccrank rank`: rank items by a criterion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ccrank.cli import options as shared
from ccrank.cli.options import argument, flag
from ccrank.cli.screen import reading_progress, say, spinner
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.jury import Verdict
    from ccrank.models.remote import OpenModel
    from ccrank.ranking import Ranking
    from ccrank.request import RankRequest
    from ccrank.scale import Scale

OF_TASKS = "tasks"
"""The value of --labels that stands for the values in the tasks."""


@dataclass(frozen=True, kw_only=True)
class SourceFlags(shared.Flags, panel=shared.WHAT_PANEL):
    """Where items, and what is known about them, come from."""

    query: str | None = flag("Rank documents by relevance to this text, instead of --by.")
    context: str | None = flag("A text that precedes every prompt; @FILE takes the text of a file.")
    input: Path | None = flag(
        "Rank a file of any length in bounded memory, to --out FILE.parquet; an interrupted run is resumed."
    )
    group_by: str | None = flag("A column of --file: rank the rows of each of its values by themselves.")
    id: str | None = flag("The column of row ids, which the results repeat.")
    format: str | None = flag("lines, csv, tsv, jsonl, parquet or xlsx; by default the suffix decides.")
    tasks: Path | None = flag("Rank every task of a JSONL file.")
    labels: Path | None = flag(
        "A file of a few labels: item,value (CSV, TSV, JSON) or lines A > B; or tasks: the values in --tasks."
    )
    first_stage: str | None = flag(
        "With a query, scores to add: a TREC run file of your search engine, given (those in --tasks), bm25 or none."
    )
    collection: str | None = flag(
        "With --first-stage bm25: a file of documents, in which words are counted as in all of --tasks or --file."
    )


@dataclass(frozen=True, kw_only=True)
class MethodFlags(shared.Flags, panel=shared.READER_PANEL):
    method: str | None = flag("See `ccrank methods`. \\[default: auto]", autocompletion=shared.method_names)
    option: list[str] | None = flag("An option of the method, NAME=VALUE.", "--option", "-o")
    layer: str | None = flag("The layer of a probe: last, all, auto or a number.")
    model: str = flag(
        shared.MODEL_HELP, "--model", "-m", default="default", autocompletion=shared.model_names
    )


@dataclass(frozen=True, kw_only=True)
class ScaleFlags(shared.Flags, panel=shared.READER_PANEL):
    scale: Path | None = flag("Rank on a scale that `ccrank fit` or --save-scale wrote.")
    save_scale: Path | None = flag("Write the fitted scale to this file, to score other items.")


@dataclass(frozen=True, kw_only=True)
class FileJobFlags(shared.Flags, panel="With --input"):
    refine: str | None = flag(
        "With --top: the method that compares the finalists, or none. \\[default: auto]"
    )
    sample: int | None = flag("How many items the scale is fitted on. \\[default: 1000]", min=2)
    block_rows: int | None = flag("Rows that are scored and stored at a time.", min=1, hidden=True)


@dataclass(frozen=True, kw_only=True)
class OutputFlags(shared.Flags, panel=shared.SHOW_PANEL):
    top: int | None = flag("Only the first K items.", min=1)
    verbose: bool = flag(
        "Show signals and their agreement, intervals, and the probability that the order is right.",
        default=False,
    )
    reverse: bool = flag("Lowest first.", default=False)
    json: bool = flag("Print JSON.", default=False)
    csv: bool = flag("Print CSV; a table keeps its columns, and rank and score are added.", default=False)
    safe_csv: bool = flag(
        "In a CSV or TSV, put ' before cells that a spreadsheet would run as formulas.", default=False
    )
    out: Path | None = flag(
        "Write to this file instead of stdout (.csv, .tsv, .jsonl, .json, .parquet, .xlsx)."
    )
    run: Path | None = flag("Also write a TREC run to this file.")
    plot: Path | None = flag("Plot the items on their scale (.png, .pdf, .svg).")


@dataclass(frozen=True, kw_only=True)
class RankFlags(
    shared.CriterionFlags,
    shared.ItemFlags,
    SourceFlags,
    MethodFlags,
    ScaleFlags,
    shared.ReaderFlags,
    shared.TemplateFlags,
    shared.PluginFlags,
    shared.CacheFlags,
    OutputFlags,
    FileJobFlags,
    shared.ClusterFlags,
    panel=shared.WHAT_PANEL,
):
    items: list[str] | None = argument("The items; without any, they come from --file, --tasks or stdin.")
    by: list[str] | None = flag(  # type: ignore[assignment]
        "The criterion: size, cheapest, least risky … Repeat it for a table of several."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.json and self.csv:
            raise CcrankError("--json and --csv are mutually exclusive")

    @property
    def several(self) -> list[str] | None:
        """The criteria, if they are more than one."""
        return self.by if self.by and len(self.by) > 1 else None

    @property
    def files_read(self) -> list[Path]:
        """The files that are read."""
        context = self.context[1:] if self.context and self.context.startswith("@") else None
        texts = (context, self.first_stage, self.collection)
        paths = (self.tasks, self.file, self.input, self.labels, self.templates, self.scale)
        return [Path(path) for path in (*texts, *paths) if path is not None]


@shared.takes_flags("items by query category poles context file column labels method model top json out")
def rank_command(flags: RankFlags) -> None:
    """Rank items by a criterion, or documents by relevance to a query, best first.

    [bold]ccrank rank pizza broccoli candy apple rice --by healthiness --category food[/bold]

    [bold]ccrank rank --file reviews.csv --column text --by sentiment --poles negative positive --json[/bold]

    [bold]ccrank rank --file reviews.csv --column text --by sentiment --by politeness[/bold]

    [bold]ccrank rank --file pages.jsonl --column text --query "how do storms form?" --first-stage bm25[/bold]

    [bold]ccrank rank --input items.parquet --column text --by politeness --out ranked.parquet[/bold]

    A table keeps its rows and columns; rank and score are added. Results go to stdout, progress and warnings to stderr.
    Exit codes: 0 done, 2 bad input, 130 interrupted, 141 closed pipe.
    """
    from ccrank.cli.commands.rank_input import check_flags, check_method, given_request, scale_request
    from ccrank.cli.commands.rank_output import check_writable, save_scale, write

    # The arguments are validated before any slow work.
    check_flags(flags)
    scale = None
    if flags.scale is None:
        request = given_request(flags)
    else:
        scale, request, flags = scale_request(flags)
    form = check_writable(flags, request)
    with spinner("starting"):
        check_method(request, flags)
        from ccrank.jury import combined, members_of
    if request.groups is not None:
        say(*request.groups.notes())
    models = members_of(flags.model)
    if flags.input is not None:
        from ccrank.cli.commands.rank_stream import rank_stream

        if len(models) > 1:
            raise CcrankError(f"--input scores with one model; give --model {models[0]} alone")
        rank_stream(scale or request, flags, models[0])
        return
    if len(models) > 1 and flags.save_scale is not None:
        raise CcrankError("--save-scale takes one model; `ccrank fit` saves the scale of several")
    if scale is not None:
        rankings, scales = [_on_scale(scale, request, flags, models)], []
    else:
        parts = [_fitted(request, flags, model) for model in models]
        rankings, scales = combined([verdict for verdict, _ in parts]), parts[0][1]
    if request.labels == OF_TASKS:
        # Values that served as labels cannot measure the ranking.
        rankings = [replace(ranking, task=replace(ranking.task, values=None)) for ranking in rankings]
    try:
        if flags.save_scale is not None:
            save_scale(scales, flags.save_scale)
    finally:  # the ranking is written even if its scale cannot be saved
        write(request.result(rankings), flags, form)


def _fitted(request: RankRequest, flags: RankFlags, model: str) -> tuple[Verdict, list[Scale]]:
    """A model's rankings of every list, and the scales if they are to be saved. The model is released at the end, so
    that a jury needs memory for its largest model only."""
    from ccrank.jury import Verdict

    reader = shared.open_any_model(model, flags.reader_options(), flags.cache, flags)
    scales = fit_scales(request, reader)
    rankings = [scale.ranking for scale in scales if scale.ranking is not None]
    return Verdict.of(rankings, reader), [] if flags.save_scale is None else scales


def fit_scales(request: RankRequest, reader: OpenModel) -> list[Scale]:
    """The scales of the lists, with a progress bar."""
    with reading_progress(request.expected_reading(reader), speed(reader), reader.cache) as progress:
        return request.fit(reader, progress)


def _on_scale(scale: Scale, request: RankRequest, flags: RankFlags, models: Sequence[str]) -> Ranking:
    """The rows ranked on a scale that was read, with a progress bar."""
    from ccrank.models import Cost

    assert request.rows is not None
    readers = [shared.open_any_model(model, flags.reader_options(), flags.cache, flags) for model in models]
    expected = sum((request.expected_reading(reader) for reader in readers), Cost())
    with reading_progress(expected, speed(readers[0]), readers[0].cache) as progress:
        return scale.with_reader(*readers).ranking_of(request.rows, progress)


def speed(reader: OpenModel) -> float:
    """Tokens per second; infinite where they are unknown, behind a server."""
    from ccrank.models.capacity import tokens_per_second

    return inf if reader.behind_server else tokens_per_second(reader.loaded.model)
