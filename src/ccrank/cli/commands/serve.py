"""`ccrank serve` and `ccrank mcp`: rankings over HTTP, and as tools of an assistant."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ccrank.cli import options as shared
from ccrank.cli.options import flag
from ccrank.cli.screen import spinner
from ccrank.errors import CcrankError, needs_extra
from ccrank.util.files import read_text

if TYPE_CHECKING:
    from ccrank.server.settings import ServerSettings

KEYS = "CCRANK_API_KEYS"
"""The environment variable that holds API keys, separated by commas."""


@dataclass(frozen=True, kw_only=True)
class WorkFlags(shared.Flags, panel="Limits"):
    max_items: int = flag("Items in a request.", default=10_000, min=2)
    max_characters: int = flag("Characters in an item or a context.", default=20_000, min=1)
    timeout: float = flag("Seconds until a request is stopped.", default=300.0, min=0.1)


@dataclass(frozen=True, kw_only=True)
class ServedFlags(shared.ReaderFlags, shared.CacheFlags, WorkFlags):
    model: list[str] | None = flag(
        "A model that requests may name; repeat it for several. ALIAS=MODEL gives it another name; openai:URL#NAME is "
        "one behind another server.",
        "--model",
        "-m",
        autocompletion=shared.model_names,
    )

    def settings(self, **others: Any) -> ServerSettings:
        """The settings that the flags describe: those with the names of flags, and others."""
        with needs_extra("server", "a server"):
            from ccrank.server.settings import ServerSettings

        names = [each.name for each in fields(ServerSettings) if hasattr(self, each.name)]
        given = {name: getattr(self, name) for name in names} | others
        return ServerSettings(models=tuple(self.model or ("default",)), reader=self.reader_options(), **given)


@dataclass(frozen=True, kw_only=True)
class LoadFlags(shared.Flags, panel="Load"):
    concurrency: int = flag("Requests that share forward passes.", default=64, min=1)
    queue: int = flag("Further requests that may wait; others get status 429.", default=256, min=0)
    drain: float = flag("Seconds to finish requests after SIGTERM.", default=30.0, min=0)
    threads: int | None = flag("CPU threads of a forward pass.", min=1)


@dataclass(frozen=True, kw_only=True)
class ServerFlags(ServedFlags, LoadFlags):
    scale: list[str] | None = flag(
        "A scale that requests may score items on, as NAME=FILE; repeat it for several. See `ccrank fit`."
    )
    host: str = flag("The address to listen on; 0.0.0.0 for all.", default="127.0.0.1")
    port: int = flag("The port.", default=8000, min=0, max=65535)
    allow_host: list[str] | None = flag(
        "A name that clients use for this server, besides localhost and --host; repeat it for several. * allows all."
    )
    api_keys: Path | None = flag(f"A file of API keys, one per line; or the variable {KEYS}.")
    reports: Path | None = flag("A folder of studies, whose reports the page shows.")
    log_level: str = flag("debug, info, warning or error.", default="warning")
    log_items: bool = flag("Let the log show texts of requests, in tracebacks.", default=False)
    max_body: float = flag("Megabytes of a request.", default=8.0, min=0.001, rich_help_panel="Limits")

    def __post_init__(self) -> None:
        if self.reports is not None and not self.reports.is_dir():
            raise CcrankError(
                f"--reports {self.reports} is not a folder; give the folder that `ccrank bench --out` wrote to"
            )
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise CcrankError(f"--log-level must be debug, info, warning or error, not {self.log_level!r}")


@shared.takes_flags("model scale host port api_keys reports device max_items timeout log_level")
def serve_command(flags: ServerFlags) -> None:
    """Serve rankings over HTTP: POST /v1/rank, /v1/rerank and /v1/score, documented at /docs, and a page at /.

    [bold]ccrank serve --port 8000[/bold]

    Listens on this machine only, unless --host is given. SIGTERM finishes the requests in progress and exits with 0.
    """
    keys = _keys(flags.api_keys)
    if flags.reports is not None and keys:
        raise CcrankError("--reports shows files without a key; leave it out where --api-keys are set")
    bound = _listen(flags.host, flags.port)
    # Read when torch is loaded. Threads that wait for each other in a loop hold the cores that the browser and others
    # need: on two busy cores a ranking took four times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with spinner("starting") as say:
        with needs_extra("server", "ccrank serve"):
            from ccrank.server.app import Throttle, create_app, serve
            from ccrank.server.middleware import allowed_hosts
            from ccrank.server.work.open_models import open_readers
        settings = flags.settings(
            scales=tuple(flags.scale or ()),
            reports=None if flags.reports is None else str(flags.reports),
            keys=keys,
            hosts=allowed_hosts(flags.host, flags.allow_host or ()),
            origins=tuple(name.lower() for name in flags.allow_host or ()),
            max_body_bytes=round(flags.max_body * 1e6),
        )
        app = create_app(settings, open_readers(settings, say))
    logging.basicConfig(
        level=flags.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(Throttle())
    typer.echo(f"ccrank: listening on http://{flags.host}:{bound.getsockname()[1]}", err=True)
    serve(app, settings, bound)


@shared.takes_flags("model device max_items timeout")
def mcp_command(flags: ServedFlags) -> None:
    """Give an assistant the tools rank, rerank, score and understand, by the Model Context Protocol.

    [bold]claude mcp add ccrank -- ccrank mcp[/bold]

    The assistant starts this command itself and talks to it over its standard input and output.
    """
    with spinner("starting") as say:
        with needs_extra("mcp", "ccrank mcp"):
            from ccrank.server.mcp import create_mcp_server, serve_stdio
            from ccrank.server.work.open_models import open_readers
        settings = flags.settings()
        server = create_mcp_server(settings, open_readers(settings, say))
    asyncio.run(serve_stdio(server))


def _keys(path: Path | None) -> tuple[str, ...]:
    """The keys of the file and of the environment."""
    given = [] if path is None else read_text(path).splitlines()
    given += os.environ.get(KEYS, "").split(",")
    keys = tuple(dict.fromkeys(key.strip() for key in given if key.strip()))
    if path is not None and not keys:
        raise CcrankError(f"{path} holds no API key; write one per line")
    for key in keys:
        if not key.isascii() or not key.isprintable() or " " in key:
            raise CcrankError(
                "an API key has characters that HTTP headers do not take; use letters and digits"
            )
    return keys


def _listen(host: str, port: int) -> socket.socket:
    """A socket, opened before anything slow, so that a port in use is an error at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:  # a name of thousands of characters
        reason = getattr(error, "strerror", None) or error
        raise CcrankError(
            f"cannot listen on {host}:{port}: {reason}; choose others with --host and --port"
        ) from None
