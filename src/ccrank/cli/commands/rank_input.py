"""What the flags of `ccrank rank` name: items, criterion, method and labels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccrank.cli.commands.rank import OF_TASKS, RankFlags
from ccrank.cli.options import parse_pairs, refuse
from ccrank.cli.screen import say
from ccrank.errors import CcrankError
from ccrank.io import FORMAT_OF_SUFFIX, Rows, read_rows, rows_of_items
from ccrank.io.labelfiles import read_labels
from ccrank.io.taskfiles import read_items, read_tasks
from ccrank.io.trec import document_ids, read_run, safe
from ccrank.request import DEFAULT_METHOD, RankRequest
from ccrank.util.files import read_text

if TYPE_CHECKING:
    from ccrank.labels import Labels
    from ccrank.scale import Scale

OF_ONE_LIST = "--query --input --tasks --labels --first-stage --collection --scale --save-scale --run --plot"
"""The flags that are about a single ranking."""
NOT_WITH_INPUT = (
    "items --file --tasks --id --json --csv --safe-csv --plot --verbose --save-scale --query --first-stage "
    "--run"
)
OF_A_CRITERION = "--by --comparative --poles --category"
IN_TASKS = f"items {OF_A_CRITERION} --query --context --file --column --id --group-by --format"
"""Flags for what a file of tasks states itself."""
IN_SCALES = (
    f"{OF_A_CRITERION} --templates --template --method --option --layer --query --context --labels --first-stage "
    "--tasks --save-scale"
)
"""Flags for what a scale states itself."""


def check_flags(flags: RankFlags) -> None:
    """Raise an error for flags that exclude each other."""
    if flags.several is not None:
        alone = "{} cannot be combined with several --by; rank by one at a time"
        refuse(flags, f"--poles --comparative --group-by --verbose {OF_ONE_LIST}", alone)
    elif flags.group_by is not None:
        alone = "{} cannot be combined with --group-by; rank one group at a time"
        refuse(flags, f"items {OF_ONE_LIST}", alone)
    if flags.input is None:
        for name in ("--refine", "--sample", "--block-rows"):
            refuse(flags, name, "{0} is for --input; add it, or remove {0}")
        return
    refuse(flags, NOT_WITH_INPUT, "--input ranks a file to --out; remove {}")
    if flags.out is None:
        raise CcrankError("--input writes a file: give one with --out, such as --out ranked.parquet")
    if FORMAT_OF_SUFFIX.get(flags.out.suffix.lower()) != "parquet":
        raise CcrankError(f"--input writes Parquet; rename {flags.out.name} to {flags.out.stem}.parquet")


def given_request(flags: RankFlags) -> RankRequest:
    """The request that the flags describe; exactly one source of items is allowed."""
    if flags.tasks is not None:
        refuse(flags, IN_TASKS, "--tasks contains items and criteria; remove {}")
    if flags.items and (flags.file or flags.column or flags.id or flags.format):
        raise CcrankError(
            "give the items as arguments, or with --file (and its --column, --id and --format), not both"
        )
    named_options = {"layer": flags.layer, "first_stage": flags.first_stage}
    request = RankRequest(
        items=() if flags.tasks is not None else None,
        by=flags.by[0] if flags.by and flags.several is None else flags.by,
        comparative=flags.comparative,
        poles=flags.poles,
        category=flags.category,
        query=flags.query,
        context=context_text(flags.context),
        group_by=flags.group_by,
        method=flags.method or DEFAULT_METHOD,
        options=parse_pairs(flags.option)
        | {name: value for name, value in named_options.items() if value is not None},
    )
    if flags.input is None:
        request = _with_items(request, flags)
    elif flags.labels is not None:
        read_text(flags.labels)  # its rows are checked with the items
    return replace(request, templates=flags.load_templates(request.options))


def _with_items(request: RankRequest, flags: RankFlags) -> RankRequest:
    """The request with its tasks, their scores of a first stage, and labels."""
    if flags.tasks is not None:
        request = replace(request, items=tuple(read_tasks(flags.tasks)))
    else:
        rows = rows_given(flags.items, flags.file, flags.column, flags.format, flags.id)
        request = replace(request, items=rows)
        _ = request.tasks  # errors are raised before notes are printed
        say(*rows.notes(flags.group_by is None))
    request = _with_first_stage(request, flags)
    return request if flags.labels is None else replace(request, labels=_labels(flags.labels, request))


def rows_given(
    items: Sequence[str] | None,
    file: Path | None,
    column: str | None,
    format: str | None,
    id: str | None = None,
) -> Rows:
    """The rows of the arguments, of --file or of the standard input."""
    if items:
        return rows_of_items(items)
    if file is None and sys.stdin.isatty():
        raise CcrankError("no items: give them as arguments, with --file, or on stdin, one per line")
    return read_rows(file or "-", column, format, id)


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


def _with_first_stage(request: RankRequest, flags: RankFlags) -> RankRequest:
    """The request with the scores of the first stage: of a run file, or of BM25 with the words of a collection."""
    stage = flags.first_stage
    if flags.collection is not None and stage != "bm25":
        raise CcrankError(
            f"--collection {flags.collection} is for --first-stage bm25; add it, or remove --collection"
        )
    if stage is None:
        return request
    if lacking := [task.id for task in request.tasks if task.query is None]:
        raise CcrankError(
            f"--first-stage is for documents and a query; task {lacking[0]!r} has none: give --query"
        )
    if flags.collection is not None:
        from ccrank.methods.baselines import bm25_scores

        scores = bm25_scores(request.tasks, read_items(flags.collection, flags.column))
        run = {
            safe(task.id): dict(zip(document_ids(task), scores_of_task.tolist(), strict=True))
            for task, scores_of_task in zip(request.tasks, scores, strict=True)
        }
    elif stage in ("none", "auto", "given", "bm25"):
        return request
    elif Path(stage).is_file():
        run = read_run(stage)
    else:
        raise CcrankError(
            f"--first-stage is bm25, given, none or a TREC run file; there is no file {stage!r}"
        )
    return replace(request, first_stage=run, options={**request.options, "first_stage": "given"})


def _labels(path: Path, request: RankRequest) -> Labels | str:
    """The labels of a single list; or `OF_TASKS`, for the values in the tasks."""
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


def check_method(request: RankRequest, flags: RankFlags) -> None:
    """Raise an error unless the method takes these options and labels, and its scale can score other items."""
    if flags.labels is not None:
        request.check_takes_labels()
    _ = request.parsed_options
    if flags.save_scale is not None and not (request.chosen.scores_others or request.chosen.objective):
        from ccrank.scale.stored import cannot_score

        raise CcrankError(f"--save-scale: {cannot_score(request.method)}")


def scale_request(flags: RankFlags) -> tuple[Scale, RankRequest, RankFlags]:
    """The scale of a file, the request to rank items on it, and the flags with its model; flags for what the scale
    states itself are refused."""
    from ccrank.scale import Scale

    refuse(flags, IN_SCALES, "--scale states how items are ranked; remove {}, or --scale")
    assert flags.scale is not None
    scale = Scale.load(flags.scale)
    request = RankRequest(
        by=scale.criterion, context=scale.notes.context, method=scale.notes.method, templates=scale.templates
    )
    if flags.input is None:
        request = _with_items(request, flags)
    model, chat = model_of_scale(scale, flags.model, flags.chat)
    return scale, request, replace(flags, model=model, chat=chat)


def model_of_scale(scale: Scale, model: str, chat: bool | None) -> tuple[str, bool]:
    """The model that a scale was fitted on, and whether it reads in its chat template, unless others are given."""
    from ccrank.jury import SEPARATOR
    from ccrank.scale.stored import model_to_open

    if model == "default":
        model = SEPARATOR.join(model_to_open(member.notes) for member in scale.members or (scale,))
    return model, scale.notes.chat if chat is None else chat
