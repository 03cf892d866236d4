"""Flags shared by several commands, each declared once, and opening the reader that they describe."""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from ccrank.cli.screen import spinner
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
    from ccrank.models.load.known_models import known_models, names_for_several

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
UseCache = Annotated[
    bool,
    typer.Option("--cache/--no-cache", help="Keep readings on disk.", rich_help_panel=READER_PANEL),
]
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


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", callback=_show_all_flags, is_eager=True, help="Show all flags and exit."),
]


def brief_help(*names: str) -> type[TyperCommand]:
    """A command whose --help shows these parameters, and --help-all shows all."""

    class BriefCommand(TyperCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            shown = copy.copy(self)
            if not ctx.meta.get(SHOW_ALL):
                shown.params = [param for param in self.params if param.name in (*names, "help_all")]
            super(BriefCommand, shown).format_help(ctx, formatter)

    return BriefCommand


def flag(help: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """A field of a class of flags, named like the flag unless `names` are given. Help is rich markup, in which
    brackets are escaped."""
    return field(default=default, metadata={"option": typer.Option(*names, help=help, **settings)})


@dataclass(frozen=True)
class CriterionFlags:
    """By what items are ranked."""

    panel: ClassVar = WHAT_PANEL
    by: str | None = flag("The criterion: size, cheapest, least risky …")
    comparative: str | None = flag("The comparative, such as larger.")
    poles: tuple[str, str] | None = flag("Words for the low and the high pole, such as small large.")
    category: str | None = flag("What the items are, such as country.")


@dataclass(frozen=True)
class ItemFlags:
    """A file of items."""

    panel: ClassVar = WHAT_PANEL
    file: Path | None = flag(
        "The file of items: lines, CSV, TSV, JSONL, Parquet or .xlsx; - is stdin.", "--file", "-f"
    )
    column: str | None = flag("The column (or JSON field) of items.")


@dataclass(frozen=True)
class TemplateFlags:
    """The wording of prompts."""

    panel: ClassVar = READER_PANEL
    templates: Path | None = flag("A TOML file of templates that override the packaged ones.")
    template: list[str] | None = flag("One template, as NAME=TEXT, such as 'single=I find {item} {slot}'.")

    def load(self, options: Mapping[str, Any]) -> Templates:
        """The templates; a new name that no option of the method uses is an error."""
        from ccrank.prompts import check_named, load_templates

        templates = load_templates(self.templates, self.template or ())
        check_named(templates, self.template or (), [options])
        return templates


@dataclass(frozen=True)
class ReaderFlags:
    """The flags of `ReaderOptions`; None if a flag was not given, so that a file's value or the default applies."""

    panel: ClassVar = READER_PANEL
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
        """The flags that were given."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def options(self) -> ReaderOptions:
        """The options that the flags describe."""
        return ReaderOptions(**self.given())


@dataclass(frozen=True)
class ClusterFlags:
    """Where models are read."""

    panel: ClassVar = "Cluster"
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


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: a parameter whose type is a class of flags becomes these flags; the command receives an instance.

    The parser reads a command's parameters from its signature, so the wrapper's signature lists the flags.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    hints = typing.get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            groups[parameter.name] = hint
            parameters += _parameters_of(hint)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint))

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        grouped = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **grouped)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group)
    parameters = []
    for each in fields(group):
        option = each.metadata["option"]
        option.rich_help_panel = group.panel
        parameters.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=Annotated[hints[each.name], option],
            )
        )
    return parameters


def open_any_model(
    model: str, options: ReaderOptions, cache: bool = True, cluster: ClusterFlags | None = None
) -> OpenModel:
    """Open a model, which may be behind a server; else as `open_reader`."""
    if model.startswith(SERVER_PREFIX) and (cluster is None or cluster.engine == "local"):
        with spinner("starting") as say:
            from ccrank.models import ReadingCache
            from ccrank.models.remote import RemoteReader

            return RemoteReader.open(model, options, cache=ReadingCache() if cache else None, say=say)
    return open_reader(model, options, cache, cluster)


def open_reader(
    model: str, options: ReaderOptions, cache: bool = True, cluster: ClusterFlags | None = None
) -> Reader:
    """Open a model, with a status line while it loads; on a cluster, a copy for each worker."""
    with spinner("starting") as say:
        from ccrank.models import Reader, ReadingCache
        from ccrank.models.load.catalog import AUTO, best_model

        if model == AUTO:
            model, why = best_model(options)
            typer.echo(f"ccrank: {why}", err=True)
        readings = ReadingCache() if cache else None
        if cluster is not None and cluster.engine == "ray":
            from ccrank.jobs.distributed import ClusterReader, connect

            pool = connect(cluster.address, cluster.workers, model, options, say, cache=cache)
            return ClusterReader.open(pool, model, options, cache=readings, say=say)
        return Reader.open(model, options, cache=readings, say=say)


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
