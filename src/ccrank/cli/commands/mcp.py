"""`ccrank mcp`: rankings as tools of an assistant."""

from __future__ import annotations

import asyncio

from ccrank.cli import options as shared
from ccrank.cli.commands.serve import ServedFlags, WorkFlags
from ccrank.cli.screen import spinner
from ccrank.errors import needs_extra

SHOWN_FIRST = ("model", "device", "max_items", "timeout")


@shared.with_flags
def mcp_command(
    *,
    served: ServedFlags,
    reader_flags: shared.ReaderFlags,
    cache: shared.UseCache = True,
    limits: WorkFlags,
    help_all: shared.HelpAll = False,
) -> None:
    """Give an assistant the tools rank, rerank, score and understand, by the Model Context Protocol.

    [bold]claude mcp add ccrank -- ccrank mcp[/bold]

    The assistant starts this command itself and talks to it over its standard input and output.
    """
    with spinner("starting") as say:
        with needs_extra("mcp", "ccrank mcp"):
            from ccrank.server.mcp import create_mcp_server, serve_stdio
            from ccrank.server.settings import ServerSettings
            from ccrank.server.work.open_models import open_readers
        settings = ServerSettings(
            models=tuple(served.model or ("default",)),
            reader=reader_flags.options(),
            cache=cache,
            most_items=limits.max_items,
            most_item_characters=limits.max_characters,
            timeout=limits.timeout,
        )
        server = create_mcp_server(settings, open_readers(settings, say))
    asyncio.run(serve_stdio(server))
