"""`ccrank serve`: rankings over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccrank.cli import options as shared
from ccrank.cli.screen import spinner
from ccrank.errors import CcrankError


@shared.with_reader_flags
def serve_command(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A model that requests may name; repeat for several. ALIAS=MODEL renames it.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="The port; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    reports: Annotated[
        Path | None, typer.Option("--reports", help="A folder of studies whose reports are shown.")
    ] = None,
    reader_flags: shared.ReaderFlags = shared.NO_FLAGS,
    no_cache: shared.NoCache = False,
) -> None:
    """Serve rankings over HTTP: POST /v1/rank and /v1/rerank, and a page at /.

    [bold]ccrank serve --port 8000[/bold]
    """
    if reports is not None and not reports.is_dir():
        raise CcrankError(
            f"--reports {reports} is not a folder; give the folder that `ccrank bench --out` wrote to"
        )
    with spinner("starting") as say:
        try:
            from ccrank.server.app import create_app
            from ccrank.server.models import open_readers
            from ccrank.server.run import serve
            from ccrank.server.settings import ServerSettings
        except ModuleNotFoundError as error:
            raise CcrankError(
                f"ccrank serve needs {error.name}: install it with pip install 'ccrank[server]'"
            ) from None
        settings = ServerSettings(
            models=tuple(model or ("default",)),
            reader=reader_flags.options(),
            cache=not no_cache,
            reports=None if reports is None else str(reports),
        )
        app = create_app(settings, open_readers(settings, say))
    serve(app, settings, host, port)
