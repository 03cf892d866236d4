"""Terminal output: results on stdout; progress on stderr, and only on a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from ccrank.models import ReadingCache

BAR = 24


def out() -> Console:
    """The console for results: plain and without wrapping when piped. Brackets and colons are not parsed as markup."""
    if sys.stdout.isatty():
        return Console(markup=False, emoji=False)
    return Console(width=10_000, soft_wrap=True, highlight=False, markup=False, emoji=False)


def err() -> Console:
    """The console for progress."""
    return Console(stderr=True)


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def json_text(value: Any, indent: int | None = 2) -> str:
    """A JSON value and a newline; characters that the output encoding may lack are escaped, numbers that JSON cannot
    express are null."""
    plain = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    return json.dumps(_finite(value), ensure_ascii=not plain, indent=indent, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json_text(value))


def print_json_line(value: Any) -> None:
    """One JSON value on a line of its own."""
    sys.stdout.write(json_text(value, indent=None))


@dataclass(frozen=True)
class Column:
    """A column of a table that fits its terminal."""

    title: str
    number: bool = False
    """Right-aligned."""
    drop: int = 0
    """On a narrow terminal, columns with the largest value are dropped first; 0 is never dropped."""
    most: int | None = None
    """Cells are cut to this width, with an ellipsis."""


def fitted_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None
) -> tuple[Table, set[str]]:
    """A borderless table that fits the terminal: columns are dropped, words never broken."""
    room = out().width if width is None else width
    cells = [[terminal_text(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(terminal_text(column.title)), *(cell_len(row[index]) for row in cells), 1)
        for index, column in enumerate(columns)
    ]
    widths = [min(size, column.most or size) for size, column in zip(widths, columns, strict=True)]
    kept = list(range(len(columns)))
    while sum(widths[index] for index in kept) + 2 * (len(kept) - 1) > room:
        last = max(kept, key=lambda index: columns[index].drop)
        if columns[last].drop == 0:
            break
        kept = [index for index in kept if columns[index].drop < columns[last].drop]
    # If it still does not fit, the cells of the widest column are cut with an ellipsis.
    surplus = sum(widths[index] for index in kept) + 2 * (len(kept) - 1) - room
    widest = max(kept, key=lambda index: widths[index])
    widths[widest] = max(6, widths[widest] - max(0, surplus))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index in kept:
        table.add_column(
            terminal_text(columns[index].title),
            justify="right" if columns[index].number else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=widths[index],
        )
    for row in cells:
        table.add_row(*(row[index] for index in kept))
    return table, {columns[index].title for index in kept}


def print_table(
    rows: Iterable[Sequence[str]],
    *columns: str,
    numbers: Sequence[int] = (),
    console: Console | None = None,
) -> None:
    """Print a borderless table whose cells wrap between words; the columns in `numbers` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(
            terminal_text(column), justify="right" if index in numbers else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(terminal_text, row))
    (console or out()).print(table)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print names with their values, in two columns without a header."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        table.add_row(terminal_text(name), terminal_text(value))
    out().print(table)


ASCII = {
    "τ": "tau", "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "#", "▐": "#", "▍": "", "▎": "", "▏": "", "–": "-",
    "−": "-", "…": "...", "·": "|", "×": "x", "→": "->", "≥": ">=", "≤": "<=", "σ": "sd", "±": "+/-", "²": "2",
}  # fmt: skip
"""ASCII replacements of our symbols on a terminal that cannot show them."""


def terminal_text(text: str) -> str:
    """The text with our own symbols spelled out if the standard output's encoding does not have them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "".join(ASCII.get(char, char) for char in text)
    return text


def spelled_out(error: UnicodeError) -> tuple[str, int]:
    """Error handler of the output streams: our own symbols spelled out, other characters as escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    parts = [
        ASCII[char] if char in ASCII else char.encode("ascii", "backslashreplace").decode() for char in text
    ]
    return "".join(parts), error.end


def bar(value: float, low: float, high: float, width: int = BAR) -> str:
    """A score as a bar that starts at zero, so that near ties look like ties.

    Negative scores, if there are any, extend to the left of a common middle.

    >>> bar(1.0, 0.0, 2.0, 4), bar(-1.0, -1.0, 1.0, 4), bar(0.5, -1.0, 1.0, 4)
    ('██', '██', '  █')
    """
    if low >= 0:
        return _blocks(value / high if high > 0 else 0.0, width)
    half, largest = width // 2, max(-low, high)
    if value >= 0:
        return " " * half + _blocks(value / largest, half)
    halves = round(-value / largest * 2 * half)
    return ("█" * (halves // 2)).rjust(half) if halves % 2 == 0 else ("▐" + "█" * (halves // 2)).rjust(half)


def _blocks(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """Show a status message on a terminal; elsewhere, long waits are reported as plain lines."""
    console = err()
    if console.is_terminal:
        with console.status(text) as status:
            yield status.update
    else:

        def say(words: str) -> None:
            if not words.startswith(("loading", "looking", "checking", "measuring")):
                sys.stderr.write(f"ccrank: {words}\n")

        yield say


SLOW = 10.0
"""Jobs estimated to take longer than this (seconds) are announced with their duration."""


@contextmanager
def reading_progress(
    tokens: int, per_second: float, cache: ReadingCache | None = None
) -> Iterator[Callable[[int], None]]:
    """A progress bar in tokens over everything that a command reads, on a terminal; nothing elsewhere. An interrupt
    says what it left in the cache."""
    before = 0 if cache is None else cache.added
    try:
        with _token_bar(tokens, per_second) as advance:
            yield advance
    except KeyboardInterrupt:
        if cache is not None and (added := cache.added - before):
            sys.stderr.write(
                f"ccrank: kept in the cache: {counted(added, 'reading')}; the same command goes on from there\n"
            )
        raise


@contextmanager
def _token_bar(tokens: int, per_second: float) -> Iterator[Callable[[int], None]]:
    console = err()
    if tokens / per_second > SLOW:
        sys.stderr.write(
            f"ccrank: reading about {tokens:,} tokens takes about {duration(tokens / per_second)} "
            f"on this machine ({per_second:,.0f} tokens/s)\n"
        )
    if not console.is_terminal:
        yield lambda count: None
        return
    columns = (
        TextColumn("reading"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} tokens"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("reading", total=max(1, tokens))

        def advance(count: int) -> None:
            progress.advance(task, count)
            # If the estimate was too low, the bar must not stay full while reading continues.
            if progress.tasks[0].completed > (progress.tasks[0].total or 0):
                progress.update(task, total=progress.tasks[0].completed * 1.02)

        yield advance


def unwrapped(text: str) -> str:
    """A text whose paragraphs are on one line each, for a terminal of any width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def duration(seconds: float) -> str:
    """A human-readable duration.

    >>> duration(42), duration(200), duration(9000)
    ('42 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
