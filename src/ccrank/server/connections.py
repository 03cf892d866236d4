"""Connections: how many there may be, and how long a client may take for a request's head or for its answer.

uvicorn bounds neither: it waits for the rest of a head for ever, accepts connections until no file can be opened, and
keeps those whose clients do not read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ccrank.server.settings import ServerSettings

CHECK_SECONDS = 1.0
"""How often a connection is looked at."""
SPARE_FILES = 256
"""Files that are left for models, the cache, and connections that are accepted but not yet counted."""
BACKLOG = 100
"""Connections that the operating system holds, and that are accepted before the first of them is counted."""
MAX_HEAD_BYTES = 32 << 10
MAX_HEADERS = 100
FREE_CHUNKS, LEAST_CHUNK = 1000, 512
"""Chunks of a body that may have any size, and the minimum mean size of further ones."""


class BoundedConnection(h11.Connection):
    """Refuses heads with many headers, and bodies in tiny chunks: each chunk costs as much as a large one."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._chunks = self._bytes = 0

    def next_event(self) -> Any:
        """The next event, as h11 has it."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            if len(event.headers) > MAX_HEADERS:
                raise h11.RemoteProtocolError("too many headers")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._bytes // LEAST_CHUNK:
                raise h11.RemoteProtocolError("tiny chunks")
        return event


def most_connections(settings: ServerSettings) -> int:
    """Maximum open connections: as in the settings, or fewer if the process may open fewer files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return settings.most_connections
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = files - SPARE_FILES if files != resource.RLIM_INFINITY else settings.most_connections
    return max(16, min(settings.most_connections, room))


def protocol_for(settings: ServerSettings) -> type[H11Protocol]:
    """The protocol of a server's connections."""
    most = most_connections(settings)

    class BoundedProtocol(H11Protocol):
        """Closes connections that wait too long, and the one that has waited longest if there are too many."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self.conn = BoundedConnection()
            self.waits_since: float | None = None
            """Since when a head, or the rest of a body that was answered already, is not complete."""
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
            """Forget the connection."""
            if self._check is not None:
                self._check.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Take bytes of a request."""
            super().data_received(data)
            if self.busy:
                self.waits_since = None
            elif self.waits_since is None:
                self.waits_since = self.loop.time()

        def on_response_complete(self) -> None:
            """Wait for the next request."""
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
