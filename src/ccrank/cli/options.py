"""Flags shared by several commands, each declared once, and opening the reader that they describe."""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from ccrank.cli.screen import say, spinner
from ccrank.errors import CcrankError
from ccrank.reader_options import SERVER_PREFIX, ReaderOptions

if TYPE_CHECKING:
    from ccrank.models import Reader
    from ccrank.models.remote import OpenModel
    from ccrank.prompts import Templates

WHAT_PANEL, READER_PANEL, SHOW_PANEL = "What to rank", "Model and prompts", "What to show"
SHOW_ALL = "ccrank.help_all"


def model_names(incomplete: str) -> list[str]:
    """Completions of --model."""
    from ccrank.models.load.catalog import known_models, names_for_several

    names = ("auto", *names_for_several(), *known_models())
    return [name for name in names if name.startswith(incomplete)]


def method_names(incomplete: str) -> list[str]:
    """Completions of --method."""
    from ccrank.methods.registry import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


MODEL_HELP = (
    "A short name (see `ccrank models list`), a hub id, a folder, a .gguf file, openai:URL#NAME (a model behind a "
    "server), or auto: the best model on this machine that fits in memory."
)
LoadedModelName = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help=MODEL_HELP.replace(" openai:URL#NAME (a model behind a server),", ""),
        rich_help_panel=READER_PANEL,
        autocompletion=model_names,
    ),
]
PICKLE_HELP = "Open pickled weights from a trusted source; they can run arbitrary code."
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help=PICKLE_HELP)]
REVISION_HELP = "A branch, a tag or a commit of a model from the hub."
Revision = Annotated[str, typer.Option("--revision", help=REVISION_HELP, rich_help_panel=READER_PANEL)]
PLUGIN_HELP = (
    "A Python file that registers methods or objectives; it is run, so it must be trusted. Repeatable."
)


def _load_plugins(paths: list[Path] | None) -> list[Path] | None:
    if paths:
        from ccrank.methods.plugins import load_plugin

        for path in paths:
            load_plugin(path)
    return paths


Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", callback=_load_plugins, is_eager=True, help=PLUGIN_HELP, rich_help_panel="Method"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _show_all_flags(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[SHOW_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


_SHOW_ALL = typer.Option(
    "--help-all", callback=_show_all_flags, is_eager=True, help="Show all flags and exit."
)
HELP_ALL = inspect.Parameter(
    "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, _SHOW_ALL]
)


class BriefCommand(TyperCommand):
    """A command whose --help shows the parameters that its function names first, and --help-all shows all."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help screen."""
        shown, first = copy.copy(self), getattr(self.callback, "shown_first", ())
        if first and not ctx.meta.get(SHOW_ALL):
            shown.params = [param for param in self.params if param.name in (*first, "help_all")]
        super(BriefCommand, shown).format_help(ctx, formatter)


def flag(help: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """A field of a class of flags, named like the flag unless `names` are given; with the default False, a switch
    without its opposite. Help is rich markup, in which brackets are escaped."""
    return field(default=default, metadata={"parameter": typer.Option(*names, help=help, **settings)})


def argument(help: str, default: Any = None, **settings: Any) -> Any:
    """A field of a class of flags that is given without a name."""
    return field(default=default, metadata={"parameter": typer.Argument(help=help, **settings)})


@dataclass(frozen=True, kw_only=True)
class Flags:
    """Flags of a command, which may be shared: its fields are made by `flag` and `argument`."""

    def __init_subclass__(cls, panel: str | None = None) -> None:
        """Put the flags that a class declares into a panel of the help screen."""
        for name in inspect.get_annotations(cls):
            option = getattr(vars(cls)[name], "metadata", {}).get("parameter")
            if isinstance(option, OptionInfo):
                option.rich_help_panel = option.rich_help_panel or panel
                if vars(cls)[name].default is False:
                    option.param_decls = option.param_decls or (f"--{name.replace('_', '-')}",)


def refuse(flags: Flags, names: str, message: str) -> None:
    """Raise an error if any of these flags is given, or "items"; the message has their names in place of {}."""
    wrong = [name for name in names.split() if getattr(flags, name.lstrip("-").replace("-", "_"))]
    if wrong:
        raise CcrankError(message.format(", ".join(wrong)))


def takes_flags(shown_first: str = "") -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Decorator: a command's one parameter, a class of flags, becomes these flags. Where some are named, --help shows
    these alone, and --help-all shows all.

    The parser reads a command's parameters from its signature, so the wrapper's signature lists the flags.
    """

    def decorator(command: Callable[[Any], None]) -> Callable[..., None]:
        kind = typing.get_type_hints(command)["flags"]

        @functools.wraps(command)
        def wrapper(help_all: bool = False, **given: Any) -> None:
            command(kind(**given))

        parameters = [*_parameters_of(kind), *([HELP_ALL] if shown_first else [])]
        wrapper.shown_first = shown_first.split()  # type: ignore[attr-defined]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorator


def _parameters_of(kind: type[Flags]) -> Iterator[inspect.Parameter]:
    """The parameters that a class of flags stands for, those of its bases first."""
    hints = typing.get_type_hints(kind, include_extras=True)
    known = {each.name: each for each in fields(kind)}
    owners = (*kind.__mro__[1:], kind)
    for name in dict.fromkeys(name for owner in owners for name in inspect.get_annotations(owner)):
        each = known[name]
        if (parameter := each.metadata.get("parameter")) is not None:
            hints[name] = Annotated[hints[name], parameter]
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])


@dataclass(frozen=True, kw_only=True)
class CriterionFlags(Flags, panel=WHAT_PANEL):
    by: str | None = flag("The criterion: size, cheapest, least risky …")
    comparative: str | None = flag("The comparative, such as larger.")
    poles: tuple[str, str] | None = flag("Words for the low and the high pole, such as small large.")
    category: str | None = flag("What the items are, such as country.")


@dataclass(frozen=True, kw_only=True)
class ItemFlags(Flags, panel=WHAT_PANEL):
    file: Path | None = flag(
        "The file of items: lines, CSV, TSV, JSONL, Parquet or .xlsx; - is stdin.", "--file", "-f"
    )
    column: str | None = flag("The column (or JSON field) of items.")


@dataclass(frozen=True, kw_only=True)
class TemplateFlags(Flags, panel=READER_PANEL):
    templates: Path | None = flag("A TOML file of templates that override the packaged ones.")
    template: list[str] | None = flag("One template, as NAME=TEXT, such as 'single=I find {item} {slot}'.")

    def load_templates(self, options: Mapping[str, Any]) -> Templates:
        """The templates; a new name that no option of the method uses is an error."""
        from ccrank.prompts import check_named, load_templates

        templates = load_templates(self.templates, self.template or ())
        check_named(templates, self.template or (), [options])
        return templates


@dataclass(frozen=True, kw_only=True)
class ReaderFlags(Flags, panel=READER_PANEL):
    """The flags of `ReaderOptions`; None stands for a file's value or the default."""

    device: str | None = flag("auto, cpu, cuda, cuda:1, mps … \\[default: auto]")
    dtype: str | None = flag(
        "auto, float32, bfloat16 or float16. bfloat16 is faster on a CPU that has instructions for it; it costs "
        "0.006 ± 0.004 of Kendall's τ against gold values. \\[default: auto]"
    )
    batch_tokens: str | None = flag(
        "Tokens per forward pass; auto uses what fits in memory and halves it when memory runs out. \\[default: auto]"
    )
    chat: bool | None = flag("Wrap prompts in the model's chat template. \\[default: no-chat]")
    truncate: bool | None = flag(
        "Cut contexts that exceed the model's window from their middle. \\[default: no-truncate]"
    )
    allow_pickle: bool | None = flag(f"{PICKLE_HELP} \\[default: no-allow-pickle]")
    quantize: str | None = flag("no, int8 or int4: load weights with fewer bits. \\[default: no]")
    device_map: str | None = flag(
        "no, auto, balanced or sequential: spread a large model over several GPUs. \\[default: no]"
    )
    allow_new_head: bool | None = flag(
        "Prompt a model even if its language-model head is random. \\[default: no-allow-new-head]"
    )
    revision: str | None = flag(f"{REVISION_HELP} \\[default: auto]")
    strict: bool | None = flag(
        "Refuse a model that fails the check at its first load, instead of warning. \\[default: no-strict]"
    )

    def given(self) -> dict[str, Any]:
        """The options of readers that were given."""
        names = [each.name for each in fields(ReaderOptions)]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def reader_options(self) -> ReaderOptions:
        """The options that the flags describe."""
        return ReaderOptions(**self.given())


@dataclass(frozen=True, kw_only=True)
class LoadedModelFlags(Flags):
    model: LoadedModelName = "default"


@dataclass(frozen=True, kw_only=True)
class PluginFlags(Flags):
    plugin: Plugins = None


@dataclass(frozen=True, kw_only=True)
class CacheFlags(Flags, panel=READER_PANEL):
    cache: bool = flag("Keep readings on disk.", default=True)


@dataclass(frozen=True, kw_only=True)
class ClusterFlags(Flags, panel="Cluster"):
    """Where models are read."""

    engine: str = flag("Where models run: local, or ray for a Ray cluster.", default="local")
    address: str | None = flag(
        "With --engine ray: the cluster's address, such as 10.0.0.1:6379. \\[default: this machine]"
    )
    workers: int | None = flag(
        "With --engine ray: how many copies of the model. \\[default: one for each GPU, or for each node]",
        min=1,
    )

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise CcrankError(f"--engine must be local or ray, not {self.engine!r}")
        if self.engine == "local" and (self.address is not None or self.workers is not None):
            raise CcrankError("--address and --workers are for --engine ray; add it, or remove them")


def open_any_model(
    model: str, options: ReaderOptions, cache: bool = True, cluster: ClusterFlags | None = None
) -> OpenModel:
    """Open a model, which may be behind a server; else as `open_reader`."""
    if not model.startswith(SERVER_PREFIX) or (cluster is not None and cluster.engine == "ray"):
        return open_reader(model, options, cache, cluster)
    with spinner("starting") as tell:
        from ccrank.models import ReadingCache
        from ccrank.models.remote import RemoteReader

        return RemoteReader.open(model, options, cache=ReadingCache() if cache else None, say=tell)


def open_reader(
    model: str, options: ReaderOptions, cache: bool = True, cluster: ClusterFlags | None = None
) -> Reader:
    """Open a model, with a status line while it loads; on a cluster, a copy for each worker."""
    with spinner("starting") as tell:
        from ccrank.models import Reader, ReadingCache
        from ccrank.models.load.catalog import AUTO, best_model

        if model == AUTO:
            model, why = best_model(options)
            say(why)
        readings = ReadingCache() if cache else None
        if cluster is not None and cluster.engine == "ray":
            from ccrank.jobs.cluster import ClusterReader, connect

            pool = connect(cluster.address, cluster.workers, model, options, tell, cache=cache)
            return ClusterReader.open(pool, model, options, say=tell)
        return Reader.open(model, options, cache=readings, say=tell)


def parse_pairs(pairs: Iterable[str] | None) -> dict[str, str]:
    """NAME=VALUE options to a dictionary."""
    parsed = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CcrankError(
                f"an option must have the form NAME=VALUE, such as calibration=none, got {pair!r}"
            )
        parsed[name.strip()] = value.strip()
    return parsed
