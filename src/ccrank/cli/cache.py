"""`ccrank cache`: the readings kept on disk."""

from __future__ import annotations

import typer

from ccrank.cli.options import AsJson
from ccrank.cli.screen import print_json

app = typer.Typer(
    help="Readings of models kept on disk, so that no prompt is computed twice.", no_args_is_help=True
)


@app.command("info")
def info_command(as_json: AsJson = False) -> None:
    """Where the cache is and how full. CCRANK_CACHE moves it, CCRANK_CACHE_LIMIT (GiB) bounds it."""
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
    """Drop all readings. Models and data stay."""
    from ccrank.lm.cache import ReadingCache

    typer.echo(f"{size(ReadingCache().clear())} set free")


def size(count: int) -> str:
    """Bytes as a person reads them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
