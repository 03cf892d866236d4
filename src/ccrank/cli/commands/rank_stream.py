"""`ccrank rank --input`: rank a file of any length."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ccrank.cli import options as shared
from ccrank.cli.commands.rank import RankFlags
from ccrank.cli.commands.rank_output import write_warnings_beside
from ccrank.cli.screen import duration, err, say
from ccrank.errors import CcrankError
from ccrank.io.reading import open_source
from ccrank.jobs import StreamOptions, StreamResult, Watch, run_job
from ccrank.jobs.job_folder import JobFolder
from ccrank.jobs.passes import local_engine
from ccrank.models import Reader
from ccrank.request import RankRequest
from ccrank.scale import Scale

if TYPE_CHECKING:
    from ccrank.cli.commands.scales import ScoreFlags

SECONDS_BETWEEN_LINES = 30.0
"""How often progress is reported where there is no terminal."""
MANY_ROWS = 30_000
"""From this number of rows on, a faster precision is suggested."""


def rank_stream(by: RankRequest | Scale, flags: RankFlags, model: str) -> None:
    """Rank the rows of a file into a Parquet file."""
    if isinstance(by, Scale) and flags.sample is not None:
        raise CcrankError("--sample is for fitting a scale, and --scale gives one; remove one of them")
    given: dict[str, Any] = {"sample": flags.sample, "refine": flags.refine, "block_rows": flags.block_rows}
    options = StreamOptions(
        column=flags.column,
        format=flags.format,
        top=flags.top,
        reverse=flags.reverse,
        labels=flags.labels,
        **{name: value for name, value in given.items() if value is not None},
    )
    stream(by, options, flags, model)


def stream(
    by: RankRequest | Scale, options: StreamOptions, flags: RankFlags | ScoreFlags, model: str
) -> None:
    """Rank or score the rows of --input into a Parquet file, with a progress bar."""
    assert flags.input is not None
    assert flags.out is not None
    open_source(flags.input, options.column, options.format)  # refused before the model is loaded
    reader = shared.open_reader(model, flags.reader_options(), flags.cache, flags)
    if flags.engine == "ray":
        from ccrank.jobs.cluster import cluster_engine as engine
    else:
        engine = local_engine
    start = time.perf_counter()
    try:
        with _view(reader) as watch:
            result = run_job(flags.input, flags.out, by, reader, options, engine=engine, watch=watch)
    except KeyboardInterrupt:
        if (folder := JobFolder(flags.out).path).exists():
            say(f"what is finished is in {folder}; the same command resumes")
        raise
    _report(result, by, flags.out, "scored" if options.in_order else "ranked", time.perf_counter() - start)


def _report(result: StreamResult, by: RankRequest | Scale, output: Path, done: str, seconds: float) -> None:
    lines = []
    if result.resumed:
        lines.append(f"{result.resumed} of {result.blocks} blocks were finished by an earlier run")
    if skipped := result.rows - result.items:
        lines.append(
            f"{skipped:,} of {result.rows:,} rows have no item; they come last, without rank and score"
        )
    kind = "all items" if result.complete else "a sample"
    scale = f"{by.criterion.name}, fitted on {len(by):,} items" if isinstance(by, Scale) else kind
    lines.append(
        f"{result.written:,} rows written to {output}, {done} on the scale of {scale}, in {duration(seconds)}"
    )
    say(*lines, *(f"warning: {line}" for line in result.warnings))
    write_warnings_beside(output, result.warnings)


@contextmanager
def _view(reader: Reader) -> Iterator[Watch]:
    """Shows what a job does, rows and the remaining time: a bar on a terminal, a line now and then elsewhere."""
    console = err()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        step, first, start, shown = "", 0, 0.0, 0.0

        def watch(doing: str, done: int, total: int) -> None:
            nonlocal step, first, start, shown
            now = time.perf_counter()
            if doing != step:
                step, first, start, shown = doing, done, now, now
                progress.reset(bar, description=doing, total=total or None, completed=done)
                if doing.startswith("ranking") and not console.is_terminal:
                    say(doing)
                if total - done > MANY_ROWS and reader.loaded.identity.endswith("-float32"):
                    say(
                        "--dtype bfloat16 is faster on a CPU with instructions for it, and costs 0.006 ± 0.004 of "
                        "Kendall's τ against gold values"
                    )
            progress.update(bar, completed=done)
            if not console.is_terminal and done > first and now - shown > SECONDS_BETWEEN_LINES:
                shown = now
                rate = (done - first) / (now - start)
                left = duration((total - done) / rate)
                say(f"{done:,} of {total:,} rows, {rate:,.0f} rows/s, about {left} left")

        yield watch
