"""`ccrank rank --input`: rank a file of any length."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.cli import options as shared
from ccrank.cli.screen import duration, err, spinner
from ccrank.cli.warn import write_warnings_beside
from ccrank.errors import CcrankError
from ccrank.files import read_text

if TYPE_CHECKING:
    from ccrank.reader_options import ReaderOptions
    from ccrank.task import Task

SECONDS_BETWEEN_LINES = 30.0
"""How often progress is reported where there is no terminal."""


def rank_stream(
    path: Path,
    output: Path | None,
    criterion: tuple[str | None, str | None, tuple[str, str] | None, str | None],
    context: Path | None,
    *,
    method: str | None,
    option: Sequence[str] | None,
    layer: str | None,
    probe: Path | None,
    labels: Path | None,
    model: str,
    reader_options: ReaderOptions,
    wording: tuple[Path | None, Sequence[str] | None],
    use_cache: bool,
    given: Mapping[str, Any],
    cluster: shared.Cluster,
) -> None:
    """Rank the rows of a file into a Parquet file, with a progress bar."""
    from ccrank.cli.rank_input import context_text, given_templates, method_and_options, named_criterion
    from ccrank.cli.rank_output import check_output, refuse_overwriting
    from ccrank.criterion_phrase import criterion_of

    if output is None:
        raise CcrankError("--input writes a file: give one with --out, such as --out ranked.parquet")
    refuse_overwriting(output, path)
    if check_output(output, None) != "parquet":
        raise CcrankError(f"--input writes Parquet; rename {output.name} to {output.stem}.parquet")
    by, comparative, poles, category = criterion
    wanted = criterion_of(named_criterion(by), comparative=comparative, poles=poles, category=category)
    text = context_text(context)
    with spinner("starting"):
        from ccrank.methods import get_method
        from ccrank.stream import StreamOptions, rank_file
        from ccrank.stream.folder import JobFolder
        from ccrank.stream.source import open_source
    chosen, options = method_and_options(method, option, layer, probe)
    if labels is not None:
        if "labels" not in get_method(chosen).options:
            raise CcrankError(f"{chosen} uses no labels; remove --labels, or use --method auto")
        # A missing file is refused before the model is loaded; its rows are checked with the items.
        read_text(labels)
    settings = StreamOptions(**{name: value for name, value in given.items() if value is not None})
    settings = replace(settings, labels=labels)
    open_source(path, settings.column, settings.format)  # a bad file is refused before the model is loaded
    templates = given_templates(*wording, options)
    reader = shared.open_reader(model, reader_options, use_cache=use_cache, cluster=cluster)
    engine: dict[str, Any] = {}
    if cluster.engine == "ray":
        from ccrank.distributed import cluster_engine

        engine = {"engine": cluster_engine}
    start = time.perf_counter()
    try:
        with _view() as watcher:
            result = rank_file(
                path,
                output,
                wanted,
                reader,
                context=text,
                method=chosen,
                options=options,
                templates=templates,
                stream=settings,
                watcher=watcher,
                **engine,
            )
    except KeyboardInterrupt:
        if (job := JobFolder(output).path).exists():
            sys.stderr.write(f"ccrank: what is finished is in {job}; the same command resumes\n")
        raise
    _report(result, output, time.perf_counter() - start)


def _report(result: Any, output: Path, seconds: float) -> None:
    lines = []
    if result.resumed:
        lines.append(f"{result.resumed} of {result.blocks} blocks were finished by an earlier run")
    if skipped := result.rows - result.items:
        lines.append(
            f"{skipped:,} of {result.rows:,} rows have no item; they come last, without rank and score"
        )
    kind = "all items" if result.complete else "a sample"
    lines.append(
        f"{result.written:,} rows written to {output}, ranked on the scale of {kind}, in {duration(seconds)}"
    )
    sys.stderr.writelines(f"ccrank: {line}\n" for line in lines)
    sys.stderr.writelines(f"ccrank: warning: {line}\n" for line in result.warnings)
    write_warnings_beside(output, result.warnings)


@contextmanager
def _view() -> Iterator[Any]:
    """A watcher that shows rows and the remaining time: a bar on a terminal, a line now and then elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ccrank.stream import Watcher

    console = err()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        class View(Watcher):
            def __init__(self) -> None:
                self.bar = progress.add_task("reading the file", total=None)
                self.total = self.done = self.first = 0
                self.start = self.said = 0.0

            def scanning(self, path: Path) -> None:
                progress.update(self.bar, description="reading the file")

            def sampling(self, task: Task) -> Callable[[int], None] | None:
                if not console.is_terminal:
                    sys.stderr.write(f"ccrank: ranking a sample of {len(task.items):,} items\n")
                progress.update(self.bar, description=f"ranking a sample of {len(task.items):,} items")
                return None

            def begin(self, rows: int, done: int) -> None:
                self.total, self.first, self.done = rows, done, done
                self.start = self.said = time.perf_counter()
                progress.reset(self.bar, description="scoring", total=rows, completed=done)

            def advance(self, rows: int) -> None:
                self.done += rows
                progress.update(self.bar, completed=self.done)
                now = time.perf_counter()
                if not console.is_terminal and now - self.said > SECONDS_BETWEEN_LINES:
                    self.said = now
                    rate = (self.done - self.first) / (now - self.start)
                    left = duration((self.total - self.done) / rate)
                    sys.stderr.write(
                        f"ccrank: {self.done:,} of {self.total:,} rows, {rate:,.0f} rows/s, about {left} left\n"
                    )

            def ordering(self) -> None:
                progress.update(self.bar, description="putting rows in order")

        yield View()
