"""Ranking a file: scan, rank a sample, score every block, write the rows in order. Each step is stored and resumed."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.api import opened
from ccrank.errors import CcrankError
from ccrank.io.blocks import Source, open_source
from ccrank.io.labelfiles import possible_items, read_labels
from ccrank.io.ranked import DECIMALS, added_names
from ccrank.jobs.finalists import DEFAULT_REFINEMENT, check_refinement, refine, write_finalists
from ccrank.jobs.job_folder import SAMPLE, SCAN, JobFolder
from ccrank.jobs.ordering import write_ranked
from ccrank.jobs.scan import BLOCK_CHARACTERS, BLOCK_ROWS, Scan, scan
from ccrank.jobs.scorer import BlockScorer, Engine, check_streamable, fit_scorer, local_engine
from ccrank.jobs.scoring_pass import ScoringPass
from ccrank.models import Reader
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import Ranking
from ccrank.reader_options import ReaderOptions
from ccrank.request import DEFAULT_METHOD, PreparedTask, RankRequest
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.files import read_bytes
from ccrank.version import __version__

SAMPLE_SIZE = 1000


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
        The size of the blocks that are scored and stored at a time.
    """

    column: str | None = None
    format: str | None = None
    sample: int = SAMPLE_SIZE
    top: int | None = None
    refine: str = DEFAULT_REFINEMENT
    reverse: bool = False
    labels: Path | None = None
    block_rows: int = BLOCK_ROWS
    block_characters: int = BLOCK_CHARACTERS


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
    """The ranking of the sample; None if it was ranked by an earlier run."""
    complete: bool
    """Whether the sample had every item."""
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


MakeEngine = Callable[[JobFolder, Task, Reader, Templates], Engine]
"""Makes the engine that scores blocks, once the scale is stored in the folder."""


def local(folder: JobFolder, task: Task, reader: Reader, templates: Templates) -> Engine:
    """The engine of one process."""
    # A million readings would fill a disk, and none of them is read twice.
    uncached = copy.copy(reader)
    uncached.cache = None
    return local_engine(BlockScorer.load(folder.path, task, uncached, templates))


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
    request: RankRequest,
    reader: Reader,
    stream: StreamOptions | None = None,
    *,
    engine: MakeEngine = local,
    watcher: Watcher | None = None,
) -> StreamResult:
    """Rank the rows of a file, as `rank_file` does, on the given engine."""
    target, chosen, watcher = out, stream or StreamOptions(), watcher or Watcher()
    check_refinement(chosen.refine)
    if chosen.labels is not None:
        request.check_takes_labels()
    templates = request.templates
    status = _status(path)
    source = open_source(path, chosen.column, chosen.format)
    folder = JobFolder(target)
    job = _description(source, status, request, chosen, reader)
    with folder.locked():
        folder.begin(job)
        found = _scanned(folder, source, chosen, watcher)
        if found.items == 0:
            raise CcrankError(f"{path} contains no items: there is no text in column {source.column!r}")
        if not found.complete:
            check_streamable(request.method)
        if chosen.labels is not None:
            request = replace(request, labels=read_labels(chosen.labels, found.sample))
        sample = _Sample.of(folder, found, request, reader, watcher)
        score = added_names(source.schema.names, ("score",))[0]
        finished = folder.finished()
        watcher.begin(found.rows, sum(found.blocks[block] for block in finished))
        if len(finished) < len(found.blocks):
            run = ScoringPass(folder, source, found, sample.scores, score, watcher.advance)
            if found.complete:
                run.score(lambda blocks: ((number, np.zeros(0)) for number, _ in blocks), finished)
            else:
                run.score(engine(folder, sample.task, reader, templates), finished)
        watcher.ordering()
        # Scores of one list are compared as they are. In a stream, equal items of different blocks may differ in the
        # last digits, because each block is read by itself, so scores are compared as they are written.
        decimals = None if found.complete else DECIMALS
        order: dict[str, Any] = {"score": score, "decimals": decimals, "reverse": chosen.reverse}
        if chosen.top is not None and chosen.refine != "none" and not chosen.reverse:
            refined = refine(
                folder,
                source,
                len(found.blocks),
                sample.task,
                reader,
                templates,
                chosen.top,
                chosen.refine,
                order,
            )
            written = write_finalists(folder, source, len(found.blocks), target, refined, chosen.top, order)
        else:
            written = write_ranked(folder, source, len(found.blocks), target, top=chosen.top, **order)
        folder.delete()
    warnings = sample.warnings
    if _status(source.path) != status:
        warnings += (
            f"{path} was changed while it was ranked: {target} has the {found.rows:,} rows that it had at first; rank "
            "it again for rows that were added",
        )
    return StreamResult(
        found.rows,
        found.items,
        written,
        sample.ranking,
        found.complete,
        len(finished),
        len(found.blocks),
        warnings,
    )


@dataclass(frozen=True)
class _Sample:
    """The ranked sample."""

    task: Task
    scores: Mapping[str, float]
    """Normal form → score."""
    warnings: tuple[str, ...]
    ranking: Ranking | None = None

    @classmethod
    def of(
        cls, folder: JobFolder, found: Scan, request: RankRequest, reader: Reader, watcher: Watcher
    ) -> _Sample:
        """Rank the sample as any list is ranked, and store its scores and the scale; or load them."""
        criterion = request.criterion
        task = Task(criterion, found.sample, request.context, id=f"ranking by {criterion.name}")
        if (stored := folder.read_json(SAMPLE)) is not None:
            known = PreparedTask.of(task, reader).task
            return cls(known, stored["scores"], tuple(stored["warnings"]))
        request = replace(request, items=(task,))
        progress = watcher.sampling(request.task)
        [ranking] = request.run(reader, progress)
        if not found.complete:
            fit_scorer(folder.path, ranking, reader, request.templates, request.parsed_options, progress)
        scores = {
            normal_form(item): float(score)
            for item, score in zip(ranking.task.items, ranking.scores, strict=True)
        }
        content = {"scores": scores, "warnings": ranking.warnings}
        # Last, since it says that the sample and the scale are complete.
        folder.write(SAMPLE, json.dumps(content))
        return cls(ranking.task, scores, ranking.warnings, ranking)


def _scanned(folder: JobFolder, source: Source, chosen: StreamOptions, watcher: Watcher) -> Scan:
    if (stored := folder.read_json(SCAN)) is not None:
        lists: dict[str, Any] = {name: tuple(stored[name]) for name in ("blocks", "digests", "sample")}
        return Scan(**{**stored, **lists})
    if chosen.sample < 2:
        raise CcrankError(f"--sample must be at least 2, got {chosen.sample}")
    watcher.scanning(source.path)
    always = frozenset() if chosen.labels is None else possible_items(chosen.labels)
    found = scan(source.texts(), chosen.sample, always, chosen.block_rows, chosen.block_characters)
    folder.write(SCAN, json.dumps(asdict(found)))
    return found


def _status(path: Path) -> list[int] | None:
    """The size and the time of the last change of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _description(
    source: Source, status: list[int] | None, request: RankRequest, chosen: StreamOptions, reader: Reader
) -> dict[str, Any]:
    """Everything that the scores depend on."""

    def digest(value: object) -> str:
        return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    return {
        "ccrank": __version__,
        "input": str(source.path.resolve()),
        "size and time of the input": status,
        "column": source.column,
        "criterion": request.criterion.to_json(),
        "context": digest(request.context),
        "method": request.method,
        "options": {name: str(value) for name, value in request.parsed_options.items()},
        "labels": digest(None if chosen.labels is None else read_bytes(chosen.labels)),
        "templates": digest(
            sorted((name, template.notes()) for name, template in request.templates.by_name.items())
        ),
        "model": reader.loaded.identity,
        "sample": chosen.sample,
        "blocks": [chosen.block_rows, chosen.block_characters],
    }
