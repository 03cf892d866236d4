"""What the flags of `ccrank rank` name: items, criterion, method and labels."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccrank.cli.commands.rank import OF_TASKS, MethodFlags, ScaleFlags, SourceFlags
from ccrank.cli.options import CriterionFlags, ReaderFlags, TemplateFlags, parse_pairs
from ccrank.errors import CcrankError
from ccrank.io import Rows, read_rows, rows_of_items
from ccrank.io.labelfiles import read_labels
from ccrank.io.taskfiles import read_items, read_tasks
from ccrank.io.trec import document_ids, read_run, safe
from ccrank.request import DEFAULT_METHOD, RankRequest
from ccrank.util.files import read_text

if TYPE_CHECKING:
    from ccrank.labels import Labels
    from ccrank.scale import Scale


def given_request(
    items: Sequence[str] | None,
    criterion: CriterionFlags,
    source: SourceFlags,
    method: MethodFlags,
    templates: TemplateFlags,
) -> RankRequest:
    """The request that the flags describe; exactly one source of items is allowed."""
    flags = {
        "items": items,
        **{f"--{name}": value for name, value in asdict(criterion).items()},
        "--query": source.query,
        "--context": source.context,
        "--file": source.file,
        "--column": source.column,
        "--id": source.id,
        "--group-by": source.group_by,
        "--format": source.format,
    }
    if source.tasks is not None and (given := [name for name, value in flags.items() if value]):
        raise CcrankError(f"--tasks contains items and criteria; remove {', '.join(given)}")
    if items and (source.file or source.column or source.id or source.format):
        raise CcrankError(
            "give the items as arguments, or with --file (and its --column, --id and --format), not both"
        )
    request = RankRequest(
        **asdict(criterion),
        items=() if source.tasks is not None else None,
        query=source.query,
        context=context_text(source.context),
        method=method.method or DEFAULT_METHOD,
        options=_options(method, source.first_stage),
    )
    if source.input is None:
        request = _with_items(request, items, source)
    elif source.labels is not None:
        read_text(source.labels)  # its rows are checked with the items
    return replace(request, templates=templates.load(request.options))


def _with_items(request: RankRequest, items: Sequence[str] | None, source: SourceFlags) -> RankRequest:
    """The request with its tasks, their scores of a first stage, and labels."""
    if source.tasks is not None:
        request = replace(request, items=tuple(read_tasks(source.tasks)))
    else:
        rows = rows_given(items, source)
        request = replace(request, items=rows)
        _ = request.task  # mistakes are said before notes
        sys.stderr.writelines(f"ccrank: {note}\n" for note in rows.notes(source.group_by is None))
    if source.collection is not None:
        request = _with_bm25(request, source)
    elif source.first_stage is not None:
        request = _with_first_stage(request, source.first_stage)
    if source.labels is not None:
        request = replace(request, labels=_labels(source.labels, request))
    return request


def rows_given(items: Sequence[str] | None, source: SourceFlags) -> Rows:
    """The rows of the arguments, of --file or of the standard input."""
    if items:
        return rows_of_items(items)
    if source.file is None and sys.stdin.isatty():
        raise CcrankError("no items: give them as arguments, with --file, or on stdin, one per line")
    return read_rows(source.file or "-", source.column, source.format, source.id)


def context_text(context: str | None) -> str | None:
    """The text of --context, or of the file that @FILE names."""
    if context is None:
        return None
    if not context.startswith("@") and Path(context).is_file():
        raise CcrankError(
            f"--context {context} is the name of a file; for its text give --context @{context}"
        )
    text = (read_text(context[1:]) if context.startswith("@") else context).strip()
    if not text:
        where = context[1:] or "the text"
        raise CcrankError(f"--context: {where} is empty; put a text into it, or leave --context out")
    return text


def _options(flags: MethodFlags, first_stage: str | None) -> Mapping[str, str]:
    """The options of the method; some have a flag of their own."""
    own = {
        "layer": flags.layer,
        "first_stage": first_stage,
    }
    return parse_pairs(flags.option) | {name: value for name, value in own.items() if value is not None}


def _with_bm25(request: RankRequest, source: SourceFlags) -> RankRequest:
    """The request with BM25 in its tasks, its document frequencies from a file."""
    if source.first_stage != "bm25":
        raise CcrankError(
            f"--collection {source.collection} is for --first-stage bm25; add it, or remove --collection"
        )
    _check_queries(request)
    from ccrank.methods.baselines import bm25_scores

    scores = bm25_scores(request.tasks, read_items(source.collection or "", source.column))
    run = {
        safe(task.id): dict(zip(document_ids(task), own.tolist(), strict=True))
        for task, own in zip(request.tasks, scores, strict=True)
    }
    return replace(request, first_stage=run, options={**request.options, "first_stage": "given"})


def _check_queries(request: RankRequest) -> None:
    if lacking := [task.id for task in request.tasks if task.query is None]:
        raise CcrankError(
            f"--first-stage is for documents and a query; task {lacking[0]!r} has none: give --query"
        )


def _with_first_stage(request: RankRequest, source: str) -> RankRequest:
    """The request with the scores of the first stage: those of a run file are put into the tasks."""
    _check_queries(request)
    if source in ("none", "auto", "given", "bm25"):
        return request
    if not Path(source).is_file():
        raise CcrankError(
            f"--first-stage is bm25, given, none or a TREC run file; there is no file {source!r}"
        )
    return replace(request, first_stage=read_run(source), options={**request.options, "first_stage": "given"})


def _labels(path: Path, request: RankRequest) -> Labels | str:
    """The labels of the one list, or the word for the tasks' own values."""
    if str(path) == OF_TASKS and not path.exists():
        if all(task.values is None for task in request.tasks):
            raise CcrankError(
                f"--labels {OF_TASKS} uses the tasks' own values, but no task has values: put values into some tasks "
                "of the --tasks file, or give a file of labels"
            )
        return OF_TASKS
    if len(request.tasks) != 1:
        raise CcrankError(
            f"--labels FILE is for the items of one list; the tasks file has {len(request.tasks)}: put values into the "
            f"tasks and give --labels {OF_TASKS}"
        )
    return read_labels(path, request.task.items)


def check_method(request: RankRequest, source: SourceFlags, scales: ScaleFlags) -> None:
    """Raise an error unless the method takes these options and labels, and its scale can score other items."""
    if source.labels is not None:
        request.check_takes_labels()
    _ = request.parsed_options
    if scales.save_scale is not None and not (request.chosen.scores_others or request.chosen.objective):
        from ccrank.scale import cannot_score

        raise CcrankError(f"--save-scale: {cannot_score(request.method)}")


def scale_request(
    scales: ScaleFlags,
    items: Sequence[str] | None,
    criterion: CriterionFlags,
    source: SourceFlags,
    method: MethodFlags,
    templates: TemplateFlags,
) -> tuple[Scale, RankRequest]:
    """The scale of a file, and the request to rank items on it: what the scale knows cannot be given again."""
    from ccrank.scale import Scale

    flags = {
        **{f"--{name}": value for name, value in asdict(criterion).items()},
        **{f"--{name}": value for name, value in asdict(templates).items()},
        "--method": method.method,
        "--option": method.option,
        "--layer": method.layer,
        "--query": source.query,
        "--context": source.context,
        "--labels": source.labels,
        "--first-stage": source.first_stage,
        "--tasks": source.tasks,
        "--save-scale": scales.save_scale,
    }
    if given := [name for name, value in flags.items() if value]:
        raise CcrankError(f"--scale states how items are ranked; remove {', '.join(given)}, or --scale")
    assert scales.scale is not None
    scale = Scale.load(scales.scale)
    request = RankRequest(
        by=scale.criterion, context=scale.notes.context, method=scale.notes.method, templates=scale.templates
    )
    return scale, request if source.input is not None else _with_items(request, items, source)


def of_scale(scale: Scale, method: MethodFlags, reader: ReaderFlags) -> tuple[MethodFlags, ReaderFlags]:
    """The flags of the model that a scale was fitted on, where none are given."""
    from ccrank.scale import model_to_open

    model = model_to_open(scale.notes) if method.model == "default" else method.model
    chat = scale.notes.chat if reader.chat is None else reader.chat
    return replace(method, model=model), replace(reader, chat=chat)
