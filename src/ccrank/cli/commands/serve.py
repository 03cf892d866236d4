"""`ccrank serve`: rankings over HTTP."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import typer

from ccrank.cli import options as shared
from ccrank.cli.options import flag
from ccrank.cli.screen import spinner
from ccrank.errors import CcrankError, needs_extra
from ccrank.util.files import read_text

KEYS = "CCRANK_API_KEYS"
"""The environment variable that holds API keys, separated by commas."""
SHOWN_FIRST = (
    "model",
    "scale",
    "host",
    "port",
    "api_keys",
    "reports",
    "device",
    "max_items",
    "timeout",
    "log_level",
)


@dataclass(frozen=True)
class ServedFlags:
    """What is served."""

    panel: ClassVar = None
    model: list[str] | None = flag(
        "A model that requests may name; repeat it for several. ALIAS=MODEL gives it another name; openai:URL#NAME is "
        "one behind another server.",
        "--model",
        "-m",
        autocompletion=shared.model_names,
    )


@dataclass(frozen=True)
class ServerFlags(ServedFlags):
    """What is served, where and to whom."""

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
    log_items: bool = flag("Let the log show texts of requests, in tracebacks.", "--log-items", default=False)

    def __post_init__(self) -> None:
        if self.reports is not None and not self.reports.is_dir():
            raise CcrankError(
                f"--reports {self.reports} is not a folder; give the folder that `ccrank bench --out` wrote to"
            )
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise CcrankError(f"--log-level must be debug, info, warning or error, not {self.log_level!r}")


@dataclass(frozen=True)
class WorkFlags:
    """What may be asked for at a time."""

    panel: ClassVar = "Limits"
    max_items: int = flag("Items in a request.", default=10_000, min=2)
    max_characters: int = flag("Characters in an item or a context.", default=20_000, min=1)
    timeout: float = flag("Seconds until a request is stopped.", default=300.0, min=0.1)


@dataclass(frozen=True)
class LimitFlags(WorkFlags):
    """What a request may have."""

    max_body: float = flag("Megabytes of a request.", default=8.0, min=0.001)


@dataclass(frozen=True)
class LoadFlags:
    """How much is done at a time."""

    panel: ClassVar = "Load"
    concurrency: int = flag("Requests that share forward passes.", default=64, min=1)
    queue: int = flag("Further requests that may wait; others get status 429.", default=256, min=0)
    drain: float = flag("Seconds to finish requests after SIGTERM.", default=30.0, min=0)
    threads: int | None = flag("CPU threads of a forward pass.", min=1)


@shared.with_flags
def serve_command(
    *,
    server: ServerFlags,
    reader_flags: shared.ReaderFlags,
    cache: shared.UseCache = True,
    limits: LimitFlags,
    load: LoadFlags,
    help_all: shared.HelpAll = False,
) -> None:
    """Serve rankings over HTTP: POST /v1/rank, /v1/rerank and /v1/score, documented at /docs, and a page at /.

    [bold]ccrank serve --port 8000[/bold]

    Listens on this machine only, unless --host is given. SIGTERM finishes the requests in progress and exits with 0.
    """
    keys = _keys(server.api_keys)
    if server.reports is not None and keys:
        raise CcrankError("--reports shows files without a key; leave it out where --api-keys are set")
    bound = _listen(server.host, server.port)
    # Read when torch is loaded. Threads that wait for each other in a loop hold the cores that the browser and others
    # need: on two busy cores a ranking took four times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with spinner("starting") as say:
        with needs_extra("server", "ccrank serve"):
            from ccrank.server.app import create_app
            from ccrank.server.middleware import allowed_hosts
            from ccrank.server.run import Throttle, serve
            from ccrank.server.settings import ServerSettings
            from ccrank.server.work.open_models import open_readers
        settings = ServerSettings(
            models=tuple(server.model or ("default",)),
            scales=tuple(server.scale or ()),
            reader=reader_flags.options(),
            cache=cache,
            reports=None if server.reports is None else str(server.reports),
            keys=keys,
            hosts=allowed_hosts(server.host, server.allow_host or ()),
            origins=tuple(name.lower() for name in server.allow_host or ()),
            most_body_bytes=round(limits.max_body * 1e6),
            most_items=limits.max_items,
            most_item_characters=limits.max_characters,
            timeout=limits.timeout,
            **asdict(load),
            log_items=server.log_items,
        )
        app = create_app(settings, open_readers(settings, say))
    logging.basicConfig(
        level=server.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(Throttle())
    typer.echo(f"ccrank: listening on http://{server.host}:{bound.getsockname()[1]}", err=True)
    serve(app, settings, bound)


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
    """A socket, before anything slow: a port that is in use is an error at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise CcrankError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose others with --host and --port"
        ) from None
