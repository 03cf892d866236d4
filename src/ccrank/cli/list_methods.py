"""`ccrank methods`: list all methods, or describe one with its options."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from ccrank.cli.options import AsJson
from ccrank.cli.screen import out, print_json, simple_table, unwrapped


def methods_command(
    name: Annotated[str | None, typer.Argument(help="Show this method with its options.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, or describe one and its options."""
    from ccrank.methods import METHODS, get_method

    chosen = [get_method(name)] if name else list(METHODS.values())
    if as_json:
        print_json([method.to_json() for method in chosen])
        return
    table = simple_table("method", "what it does", "family", "directed", "model calls")
    for method in chosen:
        table.add_row(
            method.name, method.summary, method.family, "yes" if method.directed else "no", method.calls
        )
    out().print(table)
    if name:
        out().print("\n" + unwrapped(inspect.getdoc(chosen[0].run) or ""), highlight=False)
        options = chosen[0].options
        typer.echo("\nOptions (--option NAME=VALUE), with their defaults:" if options else "\nNo options.")
        for option, default in options.items():
            typer.echo(f"  {option.replace('_', '-')}={_as_typed(default)}")


def _as_typed(value: object) -> str:
    """A default as a user would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
