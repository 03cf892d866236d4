"""`ccrank serve`: rankings over HTTP."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from ccrank.cli import options as shared
from ccrank.cli.screen import spinner
from ccrank.errors import CcrankError
from ccrank.files import read_text

KEYS = "CCRANK_API_KEYS"
"""The environment variable that holds API keys, separated by commas."""
LIMITS, LOAD = "Limits", "Load"


@shared.with_reader_flags
def serve_command(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A model that requests may name; repeat it for several. ALIAS=MODEL gives it another name; "
            "openai:URL#NAME is one behind another server.",
            rich_help_panel=shared.READER_PANEL,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port.", min=0, max=65535)] = 8000,
    api_keys: Annotated[
        Path | None,
        typer.Option("--api-keys", help=f"A file of API keys, one per line; or the variable {KEYS}."),
    ] = None,
    reports: Annotated[
        Path | None, typer.Option("--reports", help="A folder of studies, whose reports the page shows.")
    ] = None,
    reader_flags: shared.ReaderFlags = shared.NO_FLAGS,
    no_cache: shared.NoCache = False,
    most_items: Annotated[
        int, typer.Option("--max-items", min=2, help="Items in a request.", rich_help_panel=LIMITS)
    ] = 10_000,
    most_characters: Annotated[
        int,
        typer.Option(
            "--max-characters", min=1, help="Characters in an item or a context.", rich_help_panel=LIMITS
        ),
    ] = 20_000,
    most_megabytes: Annotated[
        float, typer.Option("--max-body", min=0.001, help="Megabytes of a request.", rich_help_panel=LIMITS)
    ] = 8.0,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, help="Seconds until a request is stopped.", rich_help_panel=LIMITS
        ),
    ] = 300.0,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", min=1, help="Requests that share forward passes.", rich_help_panel=LOAD
        ),
    ] = 64,
    queue: Annotated[
        int,
        typer.Option(
            "--queue",
            min=0,
            help="Further requests that may wait; others get status 429.",
            rich_help_panel=LOAD,
        ),
    ] = 256,
    drain: Annotated[
        float,
        typer.Option(
            "--drain", min=0, help="Seconds to finish requests after SIGTERM.", rich_help_panel=LOAD
        ),
    ] = 30.0,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="CPU threads of a forward pass.", rich_help_panel=LOAD),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "warning",
    log_items: Annotated[
        bool, typer.Option("--log-items", help="Let the log show texts of requests, in tracebacks.")
    ] = False,
) -> None:
    """Serve rankings over HTTP: POST /v1/rank and /v1/rerank, documented at /docs, and a page at /.

    [bold]ccrank serve --port 8000[/bold]

    Listens on this machine only, unless --host is given. SIGTERM finishes the requests in progress and exits with 0.
    """
    if reports is not None and not reports.is_dir():
        raise CcrankError(
            f"--reports {reports} is not a folder; give the folder that `ccrank bench --out` wrote to"
        )
    if log_level not in ("debug", "info", "warning", "error"):
        raise CcrankError(f"--log-level must be debug, info, warning or error, not {log_level!r}")
    keys = _keys(api_keys)
    if reports is not None and keys:
        raise CcrankError("--reports shows files without a key; leave it out where --api-keys are set")
    bound = _listen(host, port)
    # Read when torch is loaded. Threads that wait for each other in a loop hold the cores that the browser and others
    # need: on two busy cores a ranking took four times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with spinner("starting") as say:
        try:
            from ccrank.server.app import create_app
            from ccrank.server.models import open_readers
            from ccrank.server.run import serve
            from ccrank.server.settings import ServerSettings
        except ModuleNotFoundError as error:
            raise CcrankError(
                f"ccrank serve needs the package {error.name}: pip install 'ccrank[server]'"
            ) from None
        settings = ServerSettings(
            models=tuple(model or ("default",)),
            reader=reader_flags.options(),
            cache=not no_cache,
            reports=None if reports is None else str(reports),
            keys=keys,
            most_body_bytes=round(most_megabytes * 1e6),
            most_items=most_items,
            most_item_characters=most_characters,
            concurrency=concurrency,
            queue=queue,
            timeout=timeout,
            drain=drain,
            threads=threads,
            log_items=log_items,
        )
        app = create_app(settings, open_readers(settings, say))
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    typer.echo(f"ccrank: listening on http://{host}:{bound.getsockname()[1]}", err=True)
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
