"""Ranking a file: scan, fit a scale on a sample, score every block, write the rows in order. Each step is stored and
resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ccrank.api.arguments import opened
from ccrank.errors import CcrankError
from ccrank.io.labelfiles import possible_items, read_labels
from ccrank.io.reading import Source, open_source
from ccrank.io.table import DECIMALS, added_names
from ccrank.jobs import passes
from ccrank.jobs.job_folder import SCALE, SCAN, JobFolder
from ccrank.jobs.output import ScoredRows, write_finalists, write_ranked, write_scored
from ccrank.methods.registry import METHODS
from ccrank.models import Reader
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import Ranking
from ccrank.reader_options import ReaderOptions
from ccrank.request import DEFAULT_METHOD, RankRequest
from ccrank.scale import Scale
from ccrank.scale.stored import cannot_score
from ccrank.task import Criterion, Task
from ccrank.util.files import read_bytes
from ccrank.version import __version__

SAMPLE_SIZE = 1000
BLOCK_SECONDS = 10.0
"""About how long a block takes on a slow machine. A kill loses this much; progress is reported this often."""
DEFAULT_REFINEMENT = "auto"
TOKENS_PER_ROW = 50
"""About the tokens of the prompts of a short item by the default method; a long item takes one per character."""
MIN_BLOCK_TOKENS = 32 * TOKENS_PER_ROW
"""The prompts of a block share their first tokens; smaller blocks would read these too often."""


@dataclass(frozen=True)
class StreamOptions:
    """How a file is ranked; see `rank_file`."""

    column: str | None = None
    format: str | None = None
    sample: int = SAMPLE_SIZE
    top: int | None = None
    refine: str = DEFAULT_REFINEMENT
    reverse: bool = False
    labels: str | Path | None = None
    in_order: bool = False
    """Leave rows in their order, with a score alone."""
    block_rows: int | None = None
    """Rows that are scored and stored at a time; None takes at most about ten seconds of work."""


@dataclass(frozen=True)
class StreamResult:
    """What was ranked."""

    rows: int
    """Rows of the input."""
    items: int
    """Rows with an item."""
    written: int
    """Rows of the output."""
    sample: Ranking | None
    """The ranking of the sample; None if it was ranked by an earlier run, or the scale was given."""
    complete: bool
    """Whether the scale was fitted on every item."""
    resumed: int
    """Blocks that an earlier run had finished."""
    blocks: int
    warnings: tuple[str, ...]
    """The warnings of the sample's ranking, and one if the input was changed meanwhile."""


Watch = Callable[[str, int, int], None]
"""Receives the current step, the rows that are done and their total; 0 and 0 in steps without rows."""


def rank_file(
    path: str | Path,
    out: str | Path,
    by: str | Criterion,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    context: str | None = None,
    column: str | None = None,
    format: str | None = None,
    labels: str | Path | None = None,
    model: str | Reader = "default",
    reader_options: ReaderOptions | None = None,
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    options: Mapping[str, object] | None = None,
    sample: int = SAMPLE_SIZE,
    top: int | None = None,
    refine: str = DEFAULT_REFINEMENT,
    reverse: bool = False,
) -> StreamResult:
    """Rank the rows of a file of any length, in bounded memory; an interrupted job is resumed by the same call.

    Parameters
    ----------
    path, out
        The file, and the Parquet file to write: the rows in order, with rank and score added.
    by, comparative, poles, category, context, model, reader_options, method, templates, options
        As in `ccrank.rank`.
    column
        The column of items; it may be left out where there is but one.
    format
        lines, csv, tsv, jsonl or parquet; by default the suffix decides.
    labels
        A file of labels.
    sample
        How many different items fix the scale. If the file has no more, the result equals a ranking in memory.
    top
        Write the best rows alone, after comparing finalists with each other.
    refine
        The method that compares the finalists, or none.
    reverse
        Put the lowest first.

    Returns
    -------
    StreamResult
        How many rows were read and written, the ranking of the sample, and warnings.
    """
    request = RankRequest(
        by=by,
        comparative=comparative,
        poles=poles,
        category=category,
        context=context,
        method=method,
        options=options or {},
        templates=templates or load_templates(),
    )
    reader = opened(model, reader_options)
    if not isinstance(reader, Reader):
        raise CcrankError(
            f"a file is ranked with a model that is loaded here, and {reader.name} is behind a server"
        )
    stream = StreamOptions(column, format, sample, top, refine, reverse, labels)
    return run_job(Path(path), Path(out), request, reader, stream)


def run_job(
    path: Path,
    out: Path,
    by: RankRequest | Scale,
    reader: Reader,
    stream: StreamOptions | None = None,
    *,
    engine: passes.Engine = passes.local_engine,
    watch: Watch = lambda *_: None,
) -> StreamResult:
    """Rank the rows of a file, as `rank_file` does, on the given engine: by a scale, or by one that is fitted on a
    sample of them.
    """
    chosen = stream or StreamOptions()
    if chosen.refine != "none" and chosen.refine not in METHODS:
        raise CcrankError(
            f"--refine {chosen.refine}: there is no such method; choose auto, prompt-pair or none"
        )
    if chosen.labels is not None and isinstance(by, RankRequest):
        by.check_takes_labels()
    status = _status(path)
    source, folder = open_source(path, chosen.column, chosen.format), JobFolder(out)
    job = _Job(folder, source, by, chosen, reader, watch)
    description = job.description(status)
    with folder.locked():
        folder.begin(description)
        watch("reading the file", 0, 0)
        scanned = job.scanned()
        if scanned.items == 0:
            raise CcrankError(f"{path} contains no items: there is no text in column {job.source.column!r}")
        scale = job.scale(scanned)
        scored, resumed = job.scored(scanned, scale, engine)
        watch("putting rows in order", 0, 0)
        if chosen.in_order:
            written = write_scored(scored, out, job.names)
        elif chosen.top is not None and chosen.refine != "none" and not chosen.reverse:
            written = write_finalists(scored, out, chosen.top, scale, reader, chosen.refine)
        else:
            written = write_ranked(scored, out, chosen.top, chosen.reverse)
        folder.delete()
    warnings = scale.notes.warnings
    if _status(path) != status:
        warnings += (
            f"{path} was changed while it was ranked: {out} has the {scanned.rows:,} rows that it had at first; rank "
            "it again for rows that were added",
        )
    counts = (scanned.rows, scanned.items, written)
    return StreamResult(*counts, scale.ranking, scanned.complete, resumed, scored.blocks, warnings)


@dataclass(frozen=True)
class _Job:
    """A file, what it is ranked by and how, and the folder where each step is stored."""

    folder: JobFolder
    source: Source
    by: RankRequest | Scale
    options: StreamOptions
    reader: Reader
    watch: Watch

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of scores and of their deviations, under names that are not taken."""
        return added_names(self.source.schema.names, ("score", "deviation"))

    def scanned(self) -> passes.Scan:
        """The first pass over the file."""
        if (stored := self.folder.read_json(SCAN)) is not None:
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
            }
            return passes.Scan(**fields)
        if self.options.sample < 2:
            raise CcrankError(f"--sample must be at least 2, got {self.options.sample}")
        always = frozenset() if self.options.labels is None else possible_items(self.options.labels)
        size = 0 if isinstance(self.by, Scale) else self.options.sample
        scanned = passes.scan(self.source.texts(), size, always, *self.block_size())
        self.folder.write(SCAN, json.dumps(asdict(scanned)))
        return scanned

    def block_size(self) -> tuple[int, int]:
        """The maximum rows and characters of a block; equal in every run, because last digits depend on them."""
        from ccrank.models.capacity import nominal_speed

        tokens = max(MIN_BLOCK_TOKENS, int(BLOCK_SECONDS * nominal_speed(self.reader.loaded.model)))
        rows = self.options.block_rows or min(passes.MAX_BLOCK_ROWS, tokens // TOKENS_PER_ROW)
        return rows, min(passes.MAX_BLOCK_CHARACTERS, tokens)

    def scale(self, scanned: passes.Scan) -> Scale:
        """The scale that was given or stored; else that of the sample, ranked as any list is."""
        by, path = self.by, self.folder.path / SCALE
        if isinstance(by, Scale):
            by.save(path)
            return by.with_reader(self.reader)
        if not scanned.complete and not by.chosen.scores_others:
            raise CcrankError(cannot_score(by.method))
        if path.exists():
            return Scale.load(path, self.reader)
        labels = None if self.options.labels is None else read_labels(self.options.labels, scanned.sample)
        task = Task(by.criterion, scanned.sample, by.context, id=f"ranking by {by.criterion.name}")
        request = replace(by, items=(task,), labels=labels)
        _ = request.tasks  # errors are raised before the model is run
        count, expected, read = len(scanned.sample), request.expected_reading(self.reader).distinct_tokens, 0
        doing = f"ranking a sample of {count:,} items"
        self.watch(doing, 0, count if expected else 0)

        def progress(tokens: int) -> None:
            nonlocal read
            read += tokens
            self.watch(doing, min(count, count * read // expected), count)

        [scale] = request.fit(self.reader, progress if expected else None)
        if scanned.complete:
            scale = replace(scale, make=None)  # nothing else is scored
        scale.save(path)
        return scale

    def scored(self, scanned: passes.Scan, scale: Scale, engine: passes.Engine) -> tuple[ScoredRows, int]:
        """All rows with their scores, and the number of blocks that an earlier run had scored."""
        finished = self.folder.finished()
        done = sum(scanned.blocks[block] for block in finished)
        self.watch("scoring", done, scanned.rows)
        if len(finished) < len(scanned.blocks):
            names = self.names if self.options.in_order and scale.gives_deviations else self.names[:1]
            engine = passes.local_engine if scanned.complete else engine  # nothing is read then
            scores = partial(engine, scale, self.reader)
            for count in passes.score_blocks(self.folder, self.source, scanned, names, scores):
                done += count
                self.watch("scoring", done, scanned.rows)
        # Scores of one list are compared as they are. In a stream, equal items of different blocks may differ in the
        # last digits, because each block is read by itself, so scores are compared as they are written.
        decimals = None if scanned.complete else DECIMALS
        rows = ScoredRows(self.folder, self.source, len(scanned.blocks), self.names[0], decimals)
        return rows, len(finished)

    def description(self, status: list[int] | None) -> dict[str, Any]:
        """Everything that the scores depend on; `status` is that of the file."""
        by, options = self.by, self.options
        common = {
            "ccrank": __version__,
            "input": str(self.source.path.resolve()),
            "size and time of the input": status,
            "column": self.source.column,
            "model": self.reader.loaded.identity,
            "in the order of the input": options.in_order,
            "rows of a block": options.block_rows,
        }
        if isinstance(by, Scale):
            return common | {"scale": by.fingerprint}
        templates = sorted((name, template.notes()) for name, template in by.templates.by_name.items())
        return common | {
            "criterion": by.criterion.to_json(),
            "context": _digest(by.context),
            "method": by.method,
            "options": {name: str(value) for name, value in by.parsed_options.items()},
            "labels": _digest(None if options.labels is None else read_bytes(options.labels)),
            "templates": _digest(templates),
            "sample": options.sample,
        }


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _status(path: Path) -> list[int] | None:
    """The size and the time of the last change of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]
