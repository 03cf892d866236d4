"""What a person sees: results on stdout, progress on stderr and only where someone is watching."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

BAR = 24


def out() -> Console:
    """The console of results: plain and unfolded when piped. Brackets and colons in items and paths mean themselves."""
    if sys.stdout.isatty():
        return Console(markup=False, emoji=False)
    return Console(width=10_000, soft_wrap=True, highlight=False, markup=False, emoji=False)


def err() -> Console:
    """The console of progress."""
    return Console(stderr=True)


def json_text(value: Any, indent: int | None = 2) -> str:
    """A JSON value and a line's end; JSON's own escapes stand for what the output's encoding may not have."""
    plain = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    return json.dumps(value, ensure_ascii=not plain, indent=indent, allow_nan=False) + "\n"


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json_text(value))


def print_json_line(value: Any) -> None:
    """One JSON value on a line of its own."""
    sys.stdout.write(json_text(value, indent=None))


def simple_table(*columns: str, numbers: Sequence[int] = ()) -> Table:
    """A light table; the columns named by `numbers` are set to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in numbers else "left", overflow="fold")
    return table


def bar(value: float, low: float, high: float) -> str:
    """A score as a bar between the lowest and the highest."""
    share = (value - low) / (high - low) if high > low else 1.0
    eighths = round(share * BAR * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8] or "▏"


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """Says what is being waited for, on a terminal; long waits are told in plain lines elsewhere."""
    console = err()
    if console.is_terminal:
        with console.status(text) as status:
            yield status.update
    else:

        def say(words: str) -> None:
            if not words.startswith(("loading", "looking")):
                sys.stderr.write(f"ccrank: {words}\n")

        yield say


@contextmanager
def reading_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over prompts read, on a terminal; nothing elsewhere."""
    console = err()
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("prompts"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
