"""Serving an application until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ccrank.server.connections import BACKLOG, protocol_for
from ccrank.server.settings import ServerSettings

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients and proxies wait before they use one again."""


class Server(uvicorn.Server):
    """Finishes the requests in progress on SIGTERM or SIGINT and returns, so that the process exits with 0.

    uvicorn itself raises the signal again after it has shut down, which makes the exit code that of a killed process.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self._drain) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _drain(self, number: int, frame: FrameType | None) -> None:
        app = self.config.app
        if isinstance(app, FastAPI) and hasattr(app.state, "server"):
            app.state.server.draining = True
        self.handle_exit(number, frame)


def serve(app: FastAPI, settings: ServerSettings, bound: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; requests in progress are finished."""
    Server(configured(app, settings)).run(sockets=[bound])


def configured(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """How uvicorn serves an application."""
    return uvicorn.Config(
        app,
        http=protocol_for(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, round(settings.drain)),
        timeout_keep_alive=KEEP_ALIVE,
        server_header=False,
    )
