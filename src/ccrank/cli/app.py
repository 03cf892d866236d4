"""The command line application."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from ccrank.cli.commands import (
    bench,
    compare,
    data,
    label,
    mcp,
    methods,
    models,
    rank,
    results,
    serve,
)
from ccrank.cli.commands.scales import fit, score
from ccrank.cli.options import brief_help
from ccrank.cli.screen import unwrapped
from ccrank.version import __version__

app = typer.Typer(
    help="Rank any list of items by any criterion with a language model, without labels.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: ccrank rank pizza broccoli candy apple rice --by healthiness --category food",
)
app.command("rank", cls=brief_help(*rank.SHOWN_FIRST))(rank.rank_command)
app.command("fit", cls=brief_help(*fit.SHOWN_FIRST))(fit.fit_command)
app.command("score", cls=brief_help(*score.SHOWN_FIRST))(score.score_command)
app.command("label", cls=brief_help(*label.SHOWN_FIRST))(label.label_command)
app.command("methods")(methods.methods_command)
app.command("cost")(methods.cost_command)
app.command("bench", cls=brief_help(*bench.SHOWN_FIRST))(bench.bench_command)
app.command("results")(results.results_command)
app.command("compare")(compare.compare_command)
app.command("serve", cls=brief_help(*serve.SHOWN_FIRST))(serve.serve_command)
app.command("mcp", cls=brief_help(*mcp.SHOWN_FIRST))(mcp.mcp_command)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.add_typer(data.cache_app, name="cache")
for _group in (app, data.app, models.app, data.cache_app):
    for _command in _group.registered_commands:
        # The parser would keep the line breaks of a docstring; so its paragraphs are wrapped as the terminal needs it.
        _command.help = unwrapped(inspect.getdoc(_command.callback) or "")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ccrank {__version__}")
        raise typer.Exit


@app.callback()
def _callback(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
