"""Terminal output: results on stdout; progress on stderr, and only on a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ccrank.util.text import Column

if TYPE_CHECKING:
    from ccrank.models import Cost, ReadingCache

BAR = 24


def out() -> Console:
    """The console for results: plain and without wrapping when piped. Brackets and colons are not parsed as markup."""
    if sys.stdout.isatty():
        return Console(markup=False, emoji=False)
    return Console(width=10_000, soft_wrap=True, highlight=False, markup=False, emoji=False)


def err() -> Console:
    """The console for progress."""
    return Console(stderr=True)


def say(*lines: str) -> None:
    """Print lines about what a command does, on stderr."""
    sys.stderr.writelines(f"ccrank: {line}\n" for line in lines)
    sys.stderr.flush()


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


def fitted_table(
    columns: Sequence[tuple[Column, Sequence[str]]], width: int | None = None
) -> tuple[Table, set[str]]:
    """A borderless table of columns and their cells that fits the terminal: columns are dropped, words never broken.
    Also the titles that are left."""
    room = out().width if width is None else width
    kept = []
    for column, cells in columns:
        texts = [terminal_text(text) for text in (column.title, *cells)]
        longest = max(1, *map(cell_len, texts))
        kept.append((column, texts, min(longest, column.most or longest)))

    def surplus() -> int:
        return sum(size for *_, size in kept) + 2 * (len(kept) - 1) - room

    while surplus() > 0 and (last := max(column.drop for column, *_ in kept)) > 0:
        kept = [entry for entry in kept if entry[0].drop < last]
    # If it still does not fit, the cells of the widest column are cut with an ellipsis.
    cut, widest = max(0, surplus()), max(size for *_, size in kept)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, texts, size in kept:
        if size == widest:
            size, widest = max(6, size - cut), -1
        align: JustifyMethod = "right" if column.number else "left"
        table.add_column(texts[0], justify=align, no_wrap=True, overflow="ellipsis", max_width=size)
    for cells in zip(*(texts[1:] for _, texts, _ in kept), strict=True):
        table.add_row(*cells)
    return table, {column.title for column, *_ in kept}


def print_table(
    rows: Iterable[Sequence[str]], *titles: str, numbers: Sequence[int] = (), console: Console | None = None
) -> None:
    """Print a borderless table whose cells wrap between words; the columns in `numbers` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(titles):
        align: JustifyMethod = "right" if index in numbers else "left"
        table.add_column(terminal_text(title), justify=align, overflow="fold")
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
        quiet = ("loading", "looking", "checking", "measuring")
        yield lambda status: None if status.startswith(quiet) else say(status)


SLOW = 10.0
"""Jobs estimated to take longer than this (seconds) are announced with their duration."""


@contextmanager
def reading_progress(
    cost: Cost, per_second: float, cache: ReadingCache | None = None
) -> Iterator[Callable[[int], None]]:
    """A progress bar in tokens over everything that a command reads, on a terminal; nothing elsewhere. An interrupt
    says what it left in the cache."""
    tokens = cost.computed_tokens
    if tokens / per_second > SLOW:
        say(
            f"reading about {tokens:,} tokens takes about {duration(tokens / per_second)} on this machine "
            f"({per_second:,.0f} tokens/s)"
        )
    columns = (
        TextColumn("reading"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} tokens"),
        TimeRemainingColumn(),
    )
    console, before = err(), 0 if cache is None else cache.added
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar = progress.add_task("reading", total=max(1, cost.distinct_tokens))

    def advance(count: int) -> None:
        progress.advance(bar, count)
        # If the estimate was too low, the bar must not stay full while reading continues.
        if (read := progress.tasks[0].completed) > (progress.tasks[0].total or 0):
            progress.update(bar, total=read * 1.02)

    try:
        with progress:
            yield advance
    except KeyboardInterrupt:
        if cache is not None and (added := cache.added - before):
            say(f"kept in the cache: {counted(added, 'reading')}; the same command goes on from there")
        raise


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
