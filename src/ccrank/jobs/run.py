"""Ranking a file: scan, fit a scale on a sample, score every block, write the rows in order. Each step is stored and
resumed."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.api.arguments import opened
from ccrank.errors import CcrankError
from ccrank.io.blocks import Source, open_source
from ccrank.io.labelfiles import possible_items, read_labels
from ccrank.io.ranked import DECIMALS, added_names
from ccrank.jobs.finalists import DEFAULT_REFINEMENT, check_refinement, refine, write_finalists
from ccrank.jobs.job_folder import SCALE, SCAN, JobFolder
from ccrank.jobs.ordering import write_ranked, write_scored
from ccrank.jobs.scan import BLOCK_CHARACTERS, BLOCK_ROWS, Scan, scan
from ccrank.jobs.scoring_pass import Engine, ScoringPass, local_engine
from ccrank.models import Reader
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import ItemScores, Ranking
from ccrank.reader_options import ReaderOptions
from ccrank.request import DEFAULT_METHOD, RankRequest
from ccrank.scale import Scale, cannot_score
from ccrank.task import Criterion, Task
from ccrank.util.files import read_bytes
from ccrank.version import __version__

SAMPLE_SIZE = 1000
BLOCK_SECONDS = 10.0
"""About how long a block takes on a slow machine: so much is lost by a kill, and so often progress is reported."""
TOKENS_PER_ROW = 50
"""About what the prompts of a short item cost by the default method; a long one costs a token for each character."""
MIN_BLOCK_TOKENS = 32 * TOKENS_PER_ROW
"""The prompts of a block share their first tokens; smaller blocks would read these too often."""


@dataclass(frozen=True)
class StreamOptions:
    """How a file is ranked.

    Parameters
    ----------
    column
        The column of items; it may be left out where there is but one.
    format
        The format of the file; None goes by the suffix.
    sample
        How many different items fix the scale. If the file has no more, the result is that of a ranking in memory.
    top
        Write the best rows alone, after comparing finalists with each other.
    refine
        How finalists are compared: see `ccrank.jobs.finalists`; "none" takes the order of the scores.
    reverse
        Put the lowest first.
    labels
        A file of labels; labelled items are in the sample.
    block_rows, block_characters
        The size of the blocks that are scored and stored at a time; None takes at most about ten seconds of work.
    """

    column: str | None = None
    format: str | None = None
    sample: int = SAMPLE_SIZE
    top: int | None = None
    refine: str = DEFAULT_REFINEMENT
    reverse: bool = False
    labels: Path | None = None
    block_rows: int | None = None
    block_characters: int | None = None


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
    """Those of the sample's ranking, and that the input was changed meanwhile."""


class Watcher:
    """Receives the progress of a job; the base class ignores it."""

    def scanning(self, path: Path) -> None:
        """The first pass starts."""

    def sampling(self, task: Task) -> Callable[[int], None] | None:
        """The sample is ranked; returns what is called with the number of tokens just read."""
        return None

    def begin(self, rows: int, done: int) -> None:
        """The pass over all rows starts; `done` of them were scored by an earlier run."""

    def advance(self, rows: int) -> None:
        """Further rows are scored and stored."""

    def ordering(self) -> None:
        """All rows are scored; they are put in order."""


MakeEngine = Callable[[Scale, Reader], Engine]
"""Makes the engine that scores blocks."""


def local(scale: Scale, reader: Reader) -> Engine:
    """The engine of one process."""
    # A million readings would fill a disk, and none of them is read twice.
    uncached = copy.copy(reader)
    uncached.cache = None
    return local_engine(scale.with_reader(uncached))


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
        How many different items fix the scale. If the file has no more, the result is that of a ranking in memory.
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
    stream = StreamOptions(
        column=column,
        format=format,
        sample=sample,
        top=top,
        refine=refine,
        reverse=reverse,
        labels=None if labels is None else Path(labels),
    )
    reader = opened(model, reader_options)
    if not isinstance(reader, Reader):
        raise CcrankError(
            f"a file is ranked with a model that is loaded here, and {reader.name} is behind a server"
        )
    return run_job(Path(path), Path(out), request, reader, stream)


def run_job(
    path: Path,
    out: Path,
    by: RankRequest | Scale,
    reader: Reader,
    stream: StreamOptions | None = None,
    *,
    in_order: bool = False,
    engine: MakeEngine = local,
    watcher: Watcher | None = None,
) -> StreamResult:
    """Rank the rows of a file, as `rank_file` does, on the given engine: by a scale, or by one that is fitted on a
    sample of them. With `in_order`, rows are not put in the order of their ranks: they get a score alone.
    """
    chosen, watcher = stream or StreamOptions(), watcher or Watcher()
    check_refinement(chosen.refine)
    if chosen.labels is not None and isinstance(by, RankRequest):
        by.check_takes_labels()
    status = _status(path)
    source = open_source(path, chosen.column, chosen.format)
    folder = JobFolder(out)
    job = _description(source, status, by, chosen, reader, in_order)
    with folder.locked():
        folder.begin(job)
        found = _scanned(folder, source, by, chosen, reader, watcher)
        if found.items == 0:
            raise CcrankError(f"{path} contains no items: there is no text in column {source.column!r}")
        scale = _scale(folder, found, by, chosen, reader, watcher)
        names = added_names(source.schema.names, ("score", "deviation"))
        finished = folder.finished()
        watcher.begin(found.rows, sum(found.blocks[block] for block in finished))
        if len(finished) < len(found.blocks):
            given = names if in_order and scale.gives_deviations else names[:1]
            run = ScoringPass(folder, source, found, scale, given, watcher.advance)
            if found.complete:
                run.score(
                    lambda blocks: ((number, ItemScores(np.zeros(0))) for number, _ in blocks), finished
                )
            else:
                run.score(engine(scale, reader), finished)
        watcher.ordering()
        # Scores of one list are compared as they are. In a stream, equal items of different blocks may differ in the
        # last digits, because each block is read by itself, so scores are compared as they are written.
        decimals = None if found.complete else DECIMALS
        order: dict[str, Any] = {"score": names[0], "decimals": decimals, "reverse": chosen.reverse}
        count = len(found.blocks)
        if in_order:
            written = write_scored(folder, count, out, names)
        elif chosen.top is not None and chosen.refine != "none" and not chosen.reverse:
            refined = refine(
                folder, source, count, scale.task, reader, scale.templates, chosen.top, chosen.refine, order
            )
            written = write_finalists(folder, source, count, out, refined, chosen.top, order)
        else:
            written = write_ranked(folder, source, count, out, top=chosen.top, **order)
        folder.delete()
    warnings = scale.notes.warnings
    if _status(source.path) != status:
        warnings += (
            f"{path} was changed while it was ranked: {out} has the {found.rows:,} rows that it had at first; rank "
            "it again for rows that were added",
        )
    return StreamResult(
        found.rows, found.items, written, scale.ranking, found.complete, len(finished), count, warnings
    )


def _scale(
    folder: JobFolder,
    found: Scan,
    by: RankRequest | Scale,
    chosen: StreamOptions,
    reader: Reader,
    watcher: Watcher,
) -> Scale:
    """The scale that was given or stored; else that of the sample, ranked as any list is."""
    path = folder.path / SCALE
    if isinstance(by, Scale):
        by.save(path)
        return by.with_reader(reader)
    if not found.complete and not by.chosen.scores_others:
        raise CcrankError(cannot_score(by.method))
    if path.exists():
        return Scale.load(path, reader)
    labels = None if chosen.labels is None else read_labels(chosen.labels, found.sample)
    task = Task(by.criterion, found.sample, by.context, id=f"ranking by {by.criterion.name}")
    request = replace(by, items=(task,), labels=labels)
    [scale] = request.fit(reader, watcher.sampling(request.task))
    if found.complete:
        scale = replace(scale, make=None)  # nothing else is scored
    scale.save(path)
    return scale


def _scanned(
    folder: JobFolder,
    source: Source,
    by: RankRequest | Scale,
    chosen: StreamOptions,
    reader: Reader,
    watcher: Watcher,
) -> Scan:
    if (stored := folder.read_json(SCAN)) is not None:
        lists: dict[str, Any] = {name: tuple(stored[name]) for name in ("blocks", "digests", "sample")}
        return Scan(**{**stored, **lists})
    if chosen.sample < 2:
        raise CcrankError(f"--sample must be at least 2, got {chosen.sample}")
    watcher.scanning(source.path)
    always = frozenset() if chosen.labels is None else possible_items(chosen.labels)
    size = 0 if isinstance(by, Scale) else chosen.sample
    found = scan(source.texts(), size, always, *_block_size(chosen, reader))
    folder.write(SCAN, json.dumps(asdict(found)))
    return found


def _block_size(chosen: StreamOptions, reader: Reader) -> tuple[int, int]:
    """The most rows and characters of a block; the same in every run, because last digits depend on them."""
    from ccrank.models.capacity import nominal_speed

    tokens = max(MIN_BLOCK_TOKENS, int(BLOCK_SECONDS * nominal_speed(reader.loaded.model)))
    rows = min(BLOCK_ROWS, tokens // TOKENS_PER_ROW)
    return chosen.block_rows or rows, chosen.block_characters or min(BLOCK_CHARACTERS, tokens)


def _status(path: Path) -> list[int] | None:
    """The size and the time of the last change of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _description(
    source: Source,
    status: list[int] | None,
    by: RankRequest | Scale,
    chosen: StreamOptions,
    reader: Reader,
    in_order: bool,
) -> dict[str, Any]:
    """Everything that the scores depend on."""

    def digest(value: object) -> str:
        return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    common = {
        "ccrank": __version__,
        "input": str(source.path.resolve()),
        "size and time of the input": status,
        "column": source.column,
        "model": reader.loaded.identity,
        "in the order of the input": in_order,
        "blocks": [chosen.block_rows, chosen.block_characters],
    }
    if isinstance(by, Scale):
        return common | {"scale": by.fingerprint}
    return common | {
        "criterion": by.criterion.to_json(),
        "context": digest(by.context),
        "method": by.method,
        "options": {name: str(value) for name, value in by.parsed_options.items()},
        "labels": digest(None if chosen.labels is None else read_bytes(chosen.labels)),
        "templates": digest(
            sorted((name, template.notes()) for name, template in by.templates.by_name.items())
        ),
        "sample": chosen.sample,
    }
