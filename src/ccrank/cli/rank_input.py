"""What the flags of `ccrank rank` name: items, criterion, method and labels."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.cli import options as shared
from ccrank.errors import CcrankError
from ccrank.files import read_text

if TYPE_CHECKING:
    from ccrank.labels import Labels
    from ccrank.methods import Method
    from ccrank.prompts import Templates
    from ccrank.rows import Rows
    from ccrank.task import Task

OF_TASKS = "tasks"
"""As --labels: the values that the tasks have themselves."""


def given_tasks(
    items: Sequence[str] | None,
    by: str | None,
    query: str | None,
    comparative: str | None,
    poles: tuple[str, str] | None,
    category: str | None,
    context: Path | None,
    file: Path | None,
    column: str | None,
    id: str | None,
    form: str | None,
    tasks: Path | None,
) -> tuple[list[Task], Rows | None]:
    """The tasks that the arguments describe, and the rows of a single list; exactly one source of items is allowed."""
    if tasks is not None:
        given: dict[str, object] = {
            "items": items,
            "--by": by,
            "--query": query,
            "--comparative": comparative,
            "--poles": poles,
            "--category": category,
            "--context": context,
            "--file": file,
            "--column": column,
            "--id": id,
            "--format": form,
        }
        if several := [name for name, value in given.items() if value]:
            raise CcrankError(f"--tasks contains items and criteria; remove {', '.join(several)}")
        from ccrank.taskfiles import read_tasks

        return read_tasks(tasks), None
    if items and (file or column or id or form):
        raise CcrankError(
            "give the items as arguments, or with --file (and its --column, --id and --format), not both"
        )
    words = {"--by": by, "--comparative": comparative, "--poles": poles, "--category": category}
    if query is not None and (given_too := [name for name, value in words.items() if value]):
        raise CcrankError(f"--query is the criterion; remove {', '.join(given_too)}")
    if query is None and (by is None or not by.strip()):
        raise CcrankError(
            "no criterion: give one, such as --by size or --by 'how positive it is', or --query for documents"
        )
    if not items and file is None and sys.stdin.isatty():
        raise CcrankError("no items: give them as arguments, with --file, or on stdin, one per line")
    from ccrank.criterion_phrase import criterion_of
    from ccrank.rows import read_rows, rows_of_items

    rows = rows_of_items(items) if items else read_rows(file if file is not None else "-", column, form, id)
    text = context_text(context)
    if query is not None:
        task = rows.task_of_query(query, text, id="ranking by relevance")
    else:
        assert by is not None
        criterion = criterion_of(by, comparative=comparative, poles=poles, category=category)
        task = rows.task(criterion, text, id=f"ranking by {by.strip()}")
    for note in rows.notes():
        sys.stderr.write(f"ccrank: {note}\n")
    return [task], rows


def method_and_options(
    method: str | None,
    option: Sequence[str] | None,
    layer: str | None,
    probe: Path | None,
    first_stage: str | None = None,
) -> tuple[str, dict[str, Any]]:
    """The name of the method, and its options as values."""
    from ccrank.methods import DEFAULT_METHOD, SAVED_PROBE, get_method

    if probe is not None and method not in (None, SAVED_PROBE):
        raise CcrankError(f"--probe ranks with the saved probe; remove --method {method}")
    if probe is not None and not probe.is_file():
        raise CcrankError(f"--probe {probe}: there is no such file; --save-probe FILE writes one")
    chosen = SAVED_PROBE if probe is not None else method or DEFAULT_METHOD
    pairs = shared.parse_pairs(option)
    pairs |= {"layer": layer} if layer is not None else {}
    pairs |= {"file": str(probe)} if probe is not None else {}
    pairs |= {"first_stage": first_stage} if first_stage is not None else {}
    return chosen, get_method(chosen).parse_options(pairs)


def given_templates(
    file: Path | None, changes: Sequence[str] | None, options: Mapping[str, Any]
) -> Templates:
    """The templates of --templates and --template; a new name that no option of the method uses is an error."""
    from ccrank.prompts import load_templates

    known = load_templates(file).by_name
    used = {word for value in options.values() for word in re.split(r"[\s,]+", str(value))}
    for change in changes or ():
        name = change.partition("=")[0].strip()
        if name and name not in known and name not in used:
            near = get_close_matches(name, known, n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise CcrankError(
                f"--template {name}: there is no template of this name, and no option uses a new one; {guess}Known are "
                f"{', '.join(known)}"
            )
    return load_templates(file, changes or ())


def named_criterion(by: str | None) -> str:
    """The criterion, which must be given."""
    if by is None or not by.strip():
        raise CcrankError("no criterion: give one, such as --by size or --by 'how positive it is'")
    return by


def context_text(context: Path | None) -> str | None:
    """The text of the --context file."""
    text = None if context is None else read_text(context).strip()
    if text == "":
        raise CcrankError(
            f"the --context file {context} is empty; put the text into it, or leave --context out"
        )
    return text


def given_labels(path: Path, tasks: Sequence[Task], method: Method) -> Labels | str:
    """The labels of the one list, or the word for the tasks' own values, for a method that takes labels."""
    from ccrank.labelfiles import read_labels

    if "labels" not in method.options:
        raise CcrankError(f"{method.name} uses no labels; remove --labels, or use --method auto")
    if str(path) == OF_TASKS and not path.exists():
        if all(task.values is None for task in tasks):
            raise CcrankError(
                f"--labels {OF_TASKS} takes the values of tasks, and none has any: put values into some tasks of the "
                "--tasks file, or give a file of labels"
            )
        return OF_TASKS
    if len(tasks) != 1:
        raise CcrankError(
            f"--labels FILE is for the items of one list; the tasks file has {len(tasks)}: put values into the tasks "
            f"and give --labels {OF_TASKS}"
        )
    return read_labels(path, tasks[0].items)
