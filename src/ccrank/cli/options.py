"""Options shared by several commands, each declared once, and opening the reader that they describe."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli.screen import spinner
from ccrank.errors import CcrankError
from ccrank.reader_options import ReaderOptions

if TYPE_CHECKING:
    from ccrank.lm import Reader
    from ccrank.remote import OpenModel

WHAT_PANEL, READER_PANEL, SHOW_PANEL = "What to rank", "Model and prompts", "What to show"

Comparative = Annotated[
    str | None,
    typer.Option("--comparative", help="The comparative, such as larger.", rich_help_panel=WHAT_PANEL),
]
Poles = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--poles",
        help="Words for the low and the high pole, such as small large.",
        rich_help_panel=WHAT_PANEL,
    ),
]
Category = Annotated[
    str | None,
    typer.Option("--category", help="What the items are, such as country.", rich_help_panel=WHAT_PANEL),
]
ItemFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        help="The file of items: lines, CSV, TSV, JSONL, Parquet or .xlsx.",
        rich_help_panel=WHAT_PANEL,
    ),
]
ItemColumn = Annotated[
    str | None,
    typer.Option("--column", help="The column (or JSON field) of items.", rich_help_panel=WHAT_PANEL),
]


def _model(served: str = "") -> Any:
    return typer.Option(
        "--model",
        "-m",
        help=f"A short name (see `ccrank models list`), a hub id, a folder, a .gguf file, {served}or auto: the best "
        "model on this machine that fits in memory.",
        rich_help_panel=READER_PANEL,
    )


Model = Annotated[str, _model()]
AnyModel = Annotated[str, _model("openai:URL#NAME (a model behind a server), ")]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle", help="Open pickled weights from a trusted source; they can run arbitrary code."
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache", help="Neither use nor write the cache of readings.", rich_help_panel=READER_PANEL
    ),
]
TemplateFile = Annotated[
    Path | None,
    typer.Option(
        "--templates",
        help="A TOML file of templates that override the packaged ones.",
        rich_help_panel=READER_PANEL,
    ),
]
TemplateChange = Annotated[
    list[str] | None,
    typer.Option(
        "--template",
        help="One template, as NAME=TEXT, such as 'single=I find {item} {slot}'.",
        rich_help_panel=READER_PANEL,
    ),
]
CLUSTER_PANEL = "Cluster"
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where models run: local, or ray for a Ray cluster.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="With --engine ray: the cluster's address, such as 10.0.0.1:6379. \\[default: this machine]",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="With --engine ray: how many copies of the model. \\[default: one for each GPU, or for each node]",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsShownJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=SHOW_PANEL)]
"""For commands that have other formats beside it."""


def _flag(*names: str, help: str, default: str) -> Any:
    # Help is rich markup, in which a bracket has to be escaped.
    return typer.Option(*names, help=f"{help} \\[default: {default}]", rich_help_panel=READER_PANEL)


@dataclass(frozen=True)
class ReaderFlags:
    """The flags of `ReaderOptions`; None if a flag was not given, so that a file's value or the default applies."""

    device: Annotated[
        str | None, _flag("--device", help="auto, cpu, cuda, cuda:1, mps …", default="auto")
    ] = None
    dtype: Annotated[
        str | None, _flag("--dtype", help="auto, float32, bfloat16 or float16.", default="auto")
    ] = None
    batch_tokens: Annotated[
        str | None,
        _flag(
            "--batch-tokens",
            help="Tokens per forward pass; auto uses what fits in memory and halves it when memory runs out.",
            default="auto",
        ),
    ] = None
    chat: Annotated[
        bool | None,
        _flag("--chat/--no-chat", help="Wrap prompts in the model's chat template.", default="no-chat"),
    ] = None
    truncate: Annotated[
        bool | None,
        _flag(
            "--truncate/--no-truncate",
            help="Cut contexts that exceed the model's window from their middle.",
            default="no-truncate",
        ),
    ] = None
    allow_pickle: Annotated[
        bool | None,
        _flag(
            "--allow-pickle/--no-allow-pickle",
            help="Open pickled weights from a trusted source; they can run arbitrary code.",
            default="no-allow-pickle",
        ),
    ] = None
    quantize: Annotated[
        str | None,
        _flag("--quantize", help="no, int8 or int4: load weights with fewer bits.", default="no"),
    ] = None
    device_map: Annotated[
        str | None,
        _flag(
            "--device-map",
            help="no, auto, balanced or sequential: spread a large model over several GPUs.",
            default="no",
        ),
    ] = None
    allow_new_head: Annotated[
        bool | None,
        _flag(
            "--allow-new-head/--no-allow-new-head",
            help="Prompt a model even if its language-model head is random.",
            default="no-allow-new-head",
        ),
    ] = None
    strict: Annotated[
        bool | None,
        _flag(
            "--strict/--no-strict",
            help="Refuse a model that fails the check at its first load, instead of warning.",
            default="no-strict",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """The flags that were given."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def options(self) -> ReaderOptions:
        """The options that the flags describe."""
        return ReaderOptions(**self.given())


NO_FLAGS = ReaderFlags()


@dataclass(frozen=True)
class Cluster:
    """Where models are read."""

    engine: str = "local"
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise CcrankError(f"--engine must be local or ray, not {self.engine!r}")
        if self.engine == "local" and (self.address is not None or self.workers is not None):
            raise CcrankError("--address and --workers are for --engine ray; add it, or remove them")


def with_reader_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: add the flags of `ReaderFlags` to a command, which receives them in its parameter `reader_flags`.

    The parser reads a command's parameters from its signature, so the wrapper's signature lists the flags.
    """
    flags = typing.get_type_hints(ReaderFlags, include_extras=True)
    own = typing.get_type_hints(command, include_extras=True)
    parameters = []
    for one in inspect.signature(command).parameters.values():
        if one.name == "reader_flags":
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
                for name, annotation in flags.items()
            ]
        else:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own[one.name]))

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        reader_flags = ReaderFlags(**{name: given.pop(name) for name in flags})
        command(**given, reader_flags=reader_flags)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapper


def open_any_model(
    model: str,
    options: ReaderOptions | None = None,
    *,
    use_cache: bool = True,
    cluster: Cluster | None = None,
) -> OpenModel:
    """Open a model, which may be behind a server; else as `open_reader`."""
    if model.startswith("openai:") and (cluster is None or cluster.engine == "local"):
        with spinner("starting") as say:
            from ccrank.lm import ReadingCache
            from ccrank.remote import RemoteReader

            return RemoteReader.open(model, options, cache=ReadingCache() if use_cache else None, say=say)
    return open_reader(model, options, use_cache=use_cache, cluster=cluster)


def open_reader(
    model: str,
    options: ReaderOptions | None = None,
    *,
    use_cache: bool = True,
    cluster: Cluster | None = None,
) -> Reader:
    """Open a model, with a status line while it loads; on a cluster, a copy for each worker."""
    with spinner("starting") as say:
        from ccrank.lm import Reader, ReadingCache
        from ccrank.lm.ladder import AUTO, best_model

        if model == AUTO:
            model, why = best_model(options)
            typer.echo(f"ccrank: {why}", err=True)
        cache = ReadingCache() if use_cache else None
        if cluster is not None and cluster.engine == "ray":
            from ccrank.distributed import ClusterReader, connect

            chosen = options or ReaderOptions()
            pool = connect(cluster.address, cluster.workers, model, chosen, say, cache=use_cache)
            return ClusterReader.open(pool, model, options, cache=cache, say=say)
        return Reader.open(model, options, cache=cache, say=say)


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


def renamed(old_name: str, old: Any, new_name: str, new: Any) -> Any:
    """The value of an option that has been renamed; the old spelling still works, with a notice."""
    if not old:
        return new
    if new:
        raise CcrankError(f"{old_name} is the old spelling of {new_name}; give only one of them")
    typer.echo(
        f"ccrank: {old_name} is now {new_name}; the old spelling will be removed in a later version", err=True
    )
    return old
