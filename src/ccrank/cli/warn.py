"""Warnings of rankings: on stderr whatever the output's form, and beside files that have no place for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ccrank.files import write_atomically
from ccrank.text import one_line

if TYPE_CHECKING:
    from ccrank.ranking import Ranking


def show_warnings(rankings: Sequence[Ranking]) -> None:
    """Each warning on a line of stderr; one that several tasks have, once."""
    sys.stdout.flush()  # on a terminal the warnings stand below the result
    sys.stderr.writelines(f"ccrank: warning: {line}\n" for line in warning_lines(rankings))


def write_warnings_beside(path: Path, lines: Sequence[str]) -> None:
    """`x.csv.warnings.txt` beside `x.csv`; without warnings none is left there, not even of an earlier run."""
    if path.exists() and not path.is_file():
        return  # a pipe or a device has no neighbours
    beside = path.with_name(f"{path.name}.warnings.txt")
    if lines:
        write_atomically(beside, [f"{line}\n" for line in lines])
    else:
        beside.unlink(missing_ok=True)


def warning_lines(rankings: Sequence[Ranking]) -> list[str]:
    """The different warnings, each with the tasks that it is about if there are several tasks.

    Parameters
    ----------
    rankings
        All rankings of one command.
    """
    about: dict[str, list[str]] = {}
    for ranking in rankings:
        for text in ranking.warnings:
            about.setdefault(text, []).append(one_line(ranking.task.id))
    if len(rankings) == 1:
        return list(about)
    return [
        f"{tasks[0]}: {text}" if len(tasks) == 1 else f"{len(tasks)} of {len(rankings)} tasks: {text}"
        for text, tasks in about.items()
    ]
