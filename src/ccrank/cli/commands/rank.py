"""`ccrank rank`: rank items by a criterion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from ccrank.cli import options as shared
from ccrank.cli.options import flag
from ccrank.cli.screen import reading_progress, spinner
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.models.remote import OpenModel
    from ccrank.ranking import Ranking
    from ccrank.rankings import GroupedRankings, Rankings
    from ccrank.request import RankRequest
    from ccrank.scale import Scale

OF_TASKS = "tasks"
"""As --labels: the values that the tasks have themselves."""
SHOWN_FIRST = (
    *("items", "by", "query", "category", "poles", "context", "file", "column", "labels", "method", "model"),
    *("top", "as_json", "out"),
)


@dataclass(frozen=True)
class CriteriaFlags(shared.CriterionFlags):
    """By what items are ranked: one criterion, or several."""

    by: list[str] | None = flag(  # type: ignore[assignment]
        "The criterion: size, cheapest, least risky … Repeat it for a table of several."
    )

    @property
    def first(self) -> shared.CriterionFlags:
        """The flags with the first criterion alone."""
        return shared.CriterionFlags(
            next(iter(self.by or ()), None), self.comparative, self.poles, self.category
        )


@dataclass(frozen=True)
class SourceFlags(shared.ItemFlags):
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

    @property
    def files(self) -> dict[str, Path]:
        """The files that are read, by their flags."""
        first_stage = None if self.first_stage is None else Path(self.first_stage)
        collection = None if self.collection is None else Path(self.collection)
        context = Path(self.context[1:]) if self.context and self.context.startswith("@") else None
        paths = {
            "--tasks": self.tasks,
            "--file": self.file,
            "--input": self.input,
            "--labels": self.labels,
            "--context": context,
            "--first-stage": first_stage,
            "--collection": collection,
        }
        return {flag: path for flag, path in paths.items() if path is not None}


@dataclass(frozen=True)
class MethodFlags:
    """How items are ranked."""

    panel: ClassVar = shared.READER_PANEL
    method: str | None = flag("See `ccrank methods`. \\[default: auto]", autocompletion=shared.method_names)
    option: list[str] | None = flag("An option of the method, NAME=VALUE.", "--option", "-o")
    layer: str | None = flag("The layer of a probe: last, all, auto or a number.")
    model: str = flag(
        shared.MODEL_HELP, "--model", "-m", default="default", autocompletion=shared.model_names
    )


@dataclass(frozen=True)
class ScaleFlags:
    """A scale that is read or written."""

    panel: ClassVar = shared.READER_PANEL
    scale: Path | None = flag("Rank on a scale that `ccrank fit` or --save-scale wrote.")
    save_scale: Path | None = flag("Write the fitted scale to this file, to score other items.")


@dataclass(frozen=True)
class FileJobFlags:
    """How the file of --input is ranked."""

    panel: ClassVar = "With --input"
    refine: str | None = flag(
        "With --top: the method that compares the finalists, or none. \\[default: auto]"
    )
    sample: int | None = flag("How many items the scale is fitted on. \\[default: 1000]", min=2)
    block_rows: int | None = flag("Rows that are scored and stored at a time.", min=1, hidden=True)

    def refuse(self) -> None:
        """Raise an error for a flag that is given without --input."""
        flags = {"--sample": self.sample, "--refine": self.refine, "--block-rows": self.block_rows}
        for name, value in flags.items():
            if value is not None:
                raise CcrankError(f"{name} is for --input; add it, or remove {name}")


@dataclass(frozen=True)
class OutputFlags:
    """What is shown and written."""

    panel: ClassVar = shared.SHOW_PANEL
    top: int | None = flag("Only the first K items.", min=1)
    signals: bool = flag(
        "Show the signals of a combined score, intervals, and the probability that the order is right.",
        "--signals",
        default=False,
    )
    reverse: bool = flag("Lowest first.", "--reverse", default=False)
    as_json: bool = flag("Print JSON.", "--json", default=False)
    as_csv: bool = flag(
        "Print CSV; a table keeps its columns, and rank and score are added.", "--csv", default=False
    )
    safe_csv: bool = flag(
        "In a CSV or TSV, put ' before cells that a spreadsheet would run as formulas.",
        "--safe-csv",
        default=False,
    )
    out: Path | None = flag(
        "Write to this file instead of stdout (.csv, .tsv, .jsonl, .json, .parquet, .xlsx)."
    )
    run: Path | None = flag("Also write a TREC run to this file.")
    plot: Path | None = flag("Plot the items on their scale (.png, .pdf, .svg).")

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise CcrankError("--json and --csv are mutually exclusive")

    @property
    def form(self) -> str | None:
        """The format that was asked for; None for tables, or what the name of --out says."""
        return "json" if self.as_json else "csv" if self.as_csv else None


@shared.with_flags
def rank_command(
    items: Annotated[
        list[str] | None,
        typer.Argument(help="The items; without any, they come from --file, --tasks or stdin."),
    ] = None,
    *,
    criterion: CriteriaFlags,
    source: SourceFlags,
    method: MethodFlags,
    scales: ScaleFlags,
    reader_flags: shared.ReaderFlags,
    templates: shared.TemplateFlags,
    plugin: shared.Plugins = None,
    cache: shared.UseCache = True,
    shown: OutputFlags,
    job: FileJobFlags,
    cluster: shared.ClusterFlags,
    help_all: shared.HelpAll = False,
) -> None:
    """Rank items by a criterion, or documents by relevance to a query, best first.

    [bold]ccrank rank pizza broccoli candy apple rice --by healthiness --category food[/bold]

    [bold]ccrank rank --file reviews.csv --column text --by sentiment --poles negative positive --json[/bold]

    [bold]ccrank rank --file reviews.csv --column text --by sentiment --by politeness[/bold]

    [bold]ccrank rank --file pages.jsonl --column text --query "how do storms form?" --first-stage bm25[/bold]

    [bold]ccrank rank --input items.parquet --column text --by politeness --out ranked.parquet[/bold]

    A table keeps its rows and columns; rank and score are added. Results go to stdout, progress and warnings to stderr.
    Exit codes: 0 done, 2 bad input, 130 interrupted, 141 closed pipe.
    """
    from ccrank.cli.commands.rank_input import check_method, given_request, of_scale, scale_request
    from ccrank.cli.commands.rank_output import check_writable, save_scale
    from ccrank.rankings import GroupedRankings, Rankings
    from ccrank.request import by_each, by_group

    # The arguments are validated before any slow work.
    several = criterion.by if criterion.by and len(criterion.by) > 1 else None
    if several is not None:
        _check_several(criterion, source, scales, shown)
    elif source.group_by is not None:
        _check_groups(items, source, scales, shown)
    if source.input is None:
        job.refuse()
    else:
        _check_input(items, source, scales, shown)
    scale = None
    if scales.scale is None:
        request = given_request(items, criterion.first, source, method, templates)
    else:
        scale, request = scale_request(scales, items, criterion.first, source, method, templates)
        method, reader_flags = of_scale(scale, method, reader_flags)
    read = {**source.files, "--templates": templates.templates, "--scale": scales.scale}
    form = check_writable(shown, scales.save_scale, request, read)
    if shown.safe_csv and form not in ("csv", "tsv"):
        raise CcrankError("--safe-csv is for CSV and TSV; add --csv, or --out with such a file")
    with spinner("starting"):
        check_method(request, source, scales)

    rows, names, groups = request.rows, tuple[str, ...](), None
    if several is not None:
        request, names = by_each(request, several)
    elif source.group_by is not None:
        request, groups = by_group(request, source.group_by)
        sys.stderr.writelines(f"ccrank: {note}\n" for note in groups.notes())

    from ccrank.jury import Verdict, combined, members_of

    models = members_of(method.model)
    given = (reader_flags.options(), cache, cluster)
    if source.input is not None:
        from ccrank.cli.commands.rank_stream import rank_stream

        if len(models) > 1:
            raise CcrankError(f"--input scores with one model; give --model {models[0]} alone")
        rank_stream(
            scale or request, source, shown, job, cluster, lambda: shared.open_reader(models[0], *given)
        )
        return
    if len(models) > 1 and (scale is not None or scales.save_scale is not None):
        raise CcrankError(f"a scale has one model; give --model {models[0]} alone")
    verdicts: list[Verdict] = []
    fitted: list[Scale] = []
    for model in models:
        reader = shared.open_any_model(model, *given)
        with reading_progress(request.expected_tokens(reader) or 0, speed(reader), reader.cache) as progress:
            if scale is not None and request.rows is not None:
                own = [scale.with_reader(reader).ranking_of(request.rows, progress)]
            else:
                fitted = request.fit(reader, progress)
                own = [one.ranking for one in fitted if one.ranking is not None]
            verdicts.append(Verdict.of(own, reader))
        if scales.save_scale is None:
            fitted = []
        del reader  # so that there need be memory for the largest model alone
    rankings = combined(verdicts)
    if request.labels == OF_TASKS:
        # What served as a label is no gold to measure the ranking against.
        rankings = [replace(ranking, task=replace(ranking.task, values=None)) for ranking in rankings]
    table: Rankings | GroupedRankings | None = None
    if groups is not None:
        table = GroupedRankings.of(groups, rankings)
        rankings = list(table.values())
    elif several is not None and rows is not None:
        table = Rankings.of(rows, names, rankings)
    _write(request, rankings, table, shown, form, lambda: save_scale(fitted, scales.save_scale))


def _check_several(
    criterion: CriteriaFlags, source: SourceFlags, scales: ScaleFlags, shown: OutputFlags
) -> None:
    """Raise an error for flags that are about a single ranking, or a single criterion."""
    single = {
        "--poles": criterion.poles,
        "--comparative": criterion.comparative,
        "--group-by": source.group_by,
        "--signals": shown.signals,
        **_of_one_list(source, scales, shown),
    }
    if given := [name for name, value in single.items() if value]:
        raise CcrankError(f"{', '.join(given)} cannot be combined with several --by; rank by one at a time")


def _check_groups(
    items: Sequence[str] | None, source: SourceFlags, scales: ScaleFlags, shown: OutputFlags
) -> None:
    """Raise an error for flags that are about a single ranking, and without a table."""
    single = {"items": items, **_of_one_list(source, scales, shown)}
    if given := [name for name, value in single.items() if value]:
        raise CcrankError(f"{', '.join(given)} cannot be combined with --group-by; rank one group at a time")


def _of_one_list(source: SourceFlags, scales: ScaleFlags, shown: OutputFlags) -> dict[str, object]:
    """The flags that are about a single ranking."""
    return {
        "--query": source.query,
        "--input": source.input,
        "--tasks": source.tasks,
        "--labels": source.labels,
        "--first-stage": source.first_stage,
        "--collection": source.collection,
        "--scale": scales.scale,
        "--save-scale": scales.save_scale,
        "--run": shown.run,
        "--plot": shown.plot,
    }


def _check_input(
    items: Sequence[str] | None, source: SourceFlags, scales: ScaleFlags, shown: OutputFlags
) -> None:
    """Raise an error for flags that --input does not take, and for an output that is not Parquet."""
    from ccrank.io import FORMAT_OF_SUFFIX

    others = {
        "items": items,
        "--file": source.file,
        "--tasks": source.tasks,
        "--id": source.id,
        "--json": shown.as_json,
        "--csv": shown.as_csv,
        "--safe-csv": shown.safe_csv,
        "--plot": shown.plot,
        "--signals": shown.signals,
        "--save-scale": scales.save_scale,
        "--query": source.query,
        "--first-stage": source.first_stage,
        "--run": shown.run,
    }
    if given := [name for name, value in others.items() if value]:
        raise CcrankError(f"--input ranks a file to --out; remove {', '.join(given)}")
    if shown.out is None:
        raise CcrankError("--input writes a file: give one with --out, such as --out ranked.parquet")
    if FORMAT_OF_SUFFIX.get(shown.out.suffix.lower()) != "parquet":
        raise CcrankError(f"--input writes Parquet; rename {shown.out.name} to {shown.out.stem}.parquet")


def _write(
    request: RankRequest,
    rankings: Sequence[Ranking],
    table: Rankings | GroupedRankings | None,
    shown: OutputFlags,
    form: str | None,
    save: Callable[[], CcrankError | None],
) -> None:
    """Write the files, then show the rankings: what is shown ends early where it is piped into `head`."""
    from ccrank.cli.commands import rank_output as output
    from ccrank.util.files import write_atomically

    unsaved = save()
    if shown.run is not None:
        write_atomically(shown.run, output.run_of(rankings))
    if shown.plot is not None:
        from ccrank.ranking_plot import plot_scale

        plot_scale(rankings[0], shown.plot)
    if form is None:
        from ccrank.cli.show import show, show_table
        from ccrank.rankings import Rankings

        if isinstance(table, Rankings):
            show_table(table, shown.top, shown.reverse)
        else:
            show(rankings, shown.top, shown.reverse, shown.signals)
    else:
        part = (shown.top, shown.reverse)
        if table is None:
            content = output.rendered(form, rankings, *part, request.rows is None, shown.safe_csv)
        else:
            content = output.rendered_table(form, table, *part, shown.safe_csv)
        if shown.out is not None:
            write_atomically(shown.out, content)
            if form != "json":
                output.write_warnings_beside(shown.out, output.warning_lines(rankings))
        else:
            # Line by line: an unbuffered stream drops the rest of a large write when the pipe is closed.
            sys.stdout.writelines(content.decode("utf-8").splitlines(keepends=True))
    output.show_warnings(rankings)
    if unsaved is not None:
        raise unsaved


def speed(reader: OpenModel) -> float:
    """Tokens in a second; nobody knows those of a server."""
    from ccrank.models.capacity import tokens_per_second

    return inf if reader.behind_server else tokens_per_second(reader.loaded.model)
