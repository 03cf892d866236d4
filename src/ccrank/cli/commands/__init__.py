"""The command line application: one module for each command, or for a few that belong together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from ccrank.cli.commands import bench, data, label, methods, models, rank, results, scales, serve
from ccrank.cli.options import BriefCommand
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
COMMANDS: dict[str, Callable[..., None]] = {
    "rank": rank.rank_command,
    "fit": scales.fit_command,
    "score": scales.score_command,
    "label": label.label_command,
    "methods": methods.methods_command,
    "cost": methods.cost_command,
    "bench": bench.bench_command,
    "results": results.results_command,
    "compare": results.compare_command,
    "serve": serve.serve_command,
    "mcp": serve.mcp_command,
}
for _name, _function in COMMANDS.items():
    app.command(_name, cls=BriefCommand)(_function)
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
