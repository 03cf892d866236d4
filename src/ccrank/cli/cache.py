"""`ccrank cache`: the cache of readings on disk."""

from __future__ import annotations

import typer

from ccrank.cli.options import AsJson
from ccrank.cli.screen import print_json

app = typer.Typer(
    help="Show or clear the cache of readings, which spares computing a prompt twice.", no_args_is_help=True
)


@app.command("info")
def info_command(as_json: AsJson = False) -> None:
    """Show the location and size of the cache.

    The variable CCRANK_CACHE sets its folder, CCRANK_CACHE_LIMIT its maximal size in GiB.
    """
    from ccrank.lm.cache import ReadingCache

    info = ReadingCache().info()
    if as_json:
        print_json(
            {"path": str(info.path), "entries": info.entries, "bytes": info.bytes, "limit_bytes": info.limit}
        )
        return
    typer.echo(f"{info.path}\n{info.entries:,} readings, {size(info.bytes)} of at most {size(info.limit)}")


@app.command("clear")
def clear_command() -> None:
    """Delete all readings. Models and data are kept."""
    from ccrank.lm.cache import ReadingCache

    typer.echo(f"{size(ReadingCache().clear())} freed")


def size(count: int) -> str:
    """A human-readable number of bytes."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
