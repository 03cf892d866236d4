"""The application, and how it is served: until SIGTERM or SIGINT, with bounds on connections and on what is logged.

uvicorn bounds no connections: it waits for the rest of a head for ever, accepts connections until no file can be
opened, and keeps those whose clients do not read.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from ccrank.models.remote import OpenModel
from ccrank.server.middleware import RequestMiddleware
from ccrank.server.responses import JSONReply, add_error_replies
from ccrank.server.routes import about, ranking
from ccrank.server.settings import ServerSettings
from ccrank.server.state import Metrics, ServerState
from ccrank.server.work.open_models import open_readers, open_scales
from ccrank.version import __version__

CHECK_SECONDS = 1.0
"""How often each connection is checked."""
SPARE_FILES = 256
"""Files that are reserved for models, the cache, and connections that are accepted but not yet counted."""
BACKLOG = 100
"""Connections that the operating system holds, and that are accepted before the first of them is counted."""
MAX_HEAD_BYTES = 32 << 10
MAX_HEADERS = 100
FREE_CHUNKS, MIN_CHUNK = 1000, 512
"""Chunks of a body that may have any size, and the minimum mean size of further ones."""
KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than clients and proxies wait before they use one again."""
MAX_ALIKE = 20
"""Warnings of one kind that are logged in a window."""
WINDOW_SECONDS = 60.0


def create_app(settings: ServerSettings, readers: Mapping[str, OpenModel] | None = None) -> FastAPI:
    """The application, with its models open."""
    opened = open_readers(settings) if readers is None else readers
    scales = open_scales(settings, opened)
    metrics = Metrics()

    @asynccontextmanager
    async def lifetime(app: FastAPI) -> AsyncIterator[None]:
        state = app.state.server = ServerState.of(settings, opened, metrics, scales)
        try:
            yield
        finally:
            state.drain()
            await asyncio.to_thread(state.stop)

    app = FastAPI(
        title="ccrank",
        version=__version__,
        summary="Rank any list of items by any criterion with a language model.",
        lifespan=lifetime,
        default_response_class=JSONReply,
        docs_url=None,  # FastAPI's pages load their scripts from elsewhere
        redoc_url=None,
    )
    add_error_replies(app, settings.log_items)
    app.add_middleware(RequestMiddleware, settings=settings, metrics=metrics)
    for routes in (ranking, about):
        app.include_router(routes.router)
    return app


class BoundedConnection(h11.Connection):
    """Refuses heads with many headers, and bodies in tiny chunks: each chunk costs as much as a large one."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._chunks = self._bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            if len(event.headers) > MAX_HEADERS:
                raise h11.RemoteProtocolError("too many headers")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._bytes // MIN_CHUNK:
                raise h11.RemoteProtocolError("tiny chunks")
        return event


def allowed_connections(settings: ServerSettings) -> int:
    """Maximum open connections: as in the settings, or fewer if the process may open fewer files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return settings.max_connections
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = files - SPARE_FILES if files != resource.RLIM_INFINITY else settings.max_connections
    return max(16, min(settings.max_connections, room))


def protocol_for(settings: ServerSettings) -> type[H11Protocol]:
    """The protocol of a server's connections."""
    most = allowed_connections(settings)

    class BoundedProtocol(H11Protocol):
        """Closes connections that wait too long, and the one that has waited longest if there are too many."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self.conn = BoundedConnection()
            self.waits_since: float | None = None
            """Since when an incomplete head, or an incomplete body that was already answered, is waited for."""
            self.idle_since = 0.0
            """When the last answer was complete."""
            self._unread, self._read_at = 0, 0.0
            self._check: asyncio.TimerHandle | None = None

        @property
        def busy(self) -> bool:
            """Whether a request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def connection_made(self, transport: Any) -> None:
            """Take a connection, in place of an older one that waits if there are too many."""
            super().connection_made(transport)
            self.waits_since = self.loop.time()
            self._check = self.loop.call_later(CHECK_SECONDS, self._look)
            if len(self.connections) > most:
                idle = [
                    connection
                    for connection in self.connections
                    if isinstance(connection, BoundedProtocol) and not connection.busy
                ]
                oldest = min(idle, key=lambda connection: connection.waits_since or connection.idle_since)
                oldest.transport.abort()
                self.connections.discard(oldest)  # at once, for those that come in the same turn of the loop

        def connection_lost(self, exc: Exception | None) -> None:
            if self._check is not None:
                self._check.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.busy:
                self.waits_since = None
            elif self.waits_since is None:
                self.waits_since = self.loop.time()

        def on_response_complete(self) -> None:
            self.idle_since = self.loop.time()
            super().on_response_complete()

        def send_400_response(self, msg: str) -> None:
            """Refuse what is not HTTP; once an answer has begun, only the connection can be closed."""
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
            else:
                self.transport.abort()

        def _look(self) -> None:
            now, unread = self.loop.time(), self.transport.get_write_buffer_size()
            if not unread or unread < self._unread or not self._unread:
                self._read_at = now
            self._unread = unread
            waits = self.waits_since is not None and now - self.waits_since > settings.head_timeout
            if waits or now - self._read_at > settings.write_timeout:
                self.transport.abort()
            else:
                self._check = self.loop.call_later(CHECK_SECONDS, self._look)

    return BoundedProtocol


class Server(uvicorn.Server):
    """On SIGTERM or SIGINT, finishes the requests in progress and returns, so that the process exits with 0.

    uvicorn itself raises the signals that it has handled again at the end, so that the process would seem to have been
    killed.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain; a second SIGINT does not wait."""
        app = self.config.app
        if isinstance(app, FastAPI) and hasattr(app.state, "server"):  # it has started
            app.state.server.drain()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


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
