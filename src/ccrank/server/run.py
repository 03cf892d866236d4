"""Serving an application until SIGTERM or SIGINT, with logs that a client cannot fill."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections import Counter
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

    uvicorn itself raises the signal again after it has shut down, so that the process seems to have been killed.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._drain) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

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


MAX_ALIKE = 20
"""Warnings of one kind that are logged in a window."""
WINDOW_SECONDS = 60.0


class Throttle(logging.Filter):
    """Passes the first warnings and errors of each kind in a window, and counts the others."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._seen: Counter[tuple[str, object]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; those below warnings always are."""
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        kind = (record.name, record.msg)
        if now - self._began > WINDOW_SECONDS or len(self._seen) > 1000:
            dropped = max(0, self._seen[kind] - MAX_ALIKE)
            self._began, self._seen = now, Counter()
            if dropped:
                record.msg, record.args = f"{record.getMessage()} (and {dropped:,} more like this)", None
        self._seen[kind] += 1
        return self._seen[kind] <= MAX_ALIKE
