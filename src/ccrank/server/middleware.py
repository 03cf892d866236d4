"""What every request passes before any route: its key, the size of its body, and the time that the body takes.

A plain ASGI layer, so that streams and disconnects pass through it untouched.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccrank.server.metrics import Metrics
from ccrank.server.replies import RequestError, refusal_of
from ccrank.server.settings import ServerSettings

log = logging.getLogger("ccrank.server")

CLIENT_GONE = 499
"""Counted in place of a status where the client left before its answer."""
OPEN = ("/healthz", "/readyz")
"""Paths that need no key: probes of a container have none."""
PAGE = ("GET", "HEAD")
"""Without a body; outside of /v1, /v2 and /metrics these need no key, so that a browser can open the page."""


class Gate:
    """Checks keys, bounds bodies, counts and logs requests.

    Parameters
    ----------
    app
        The application behind it.
    settings
        Keys and limits.
    metrics
        What is counted.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._keys = [key.encode() for key in settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        status: int | None = None

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            try:
                self._check_key(scope)
                body = await self._body(scope, receive)
            except RequestError as error:
                await error.reply()(scope, receive, counted)
                return
            if body is None:  # the client left before its body was complete
                return
            try:
                await self.app(scope, _replayed(body, receive), counted)
            except Exception as error:
                # Further out it would be logged with its message, which may hold texts of the request.
                refused = refusal_of(error, self.settings.log_items)
                if status is None:
                    await refused.reply()(scope, receive, counted)
        finally:
            seconds = time.monotonic() - started
            route = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.count_request(scope["method"], route, status or CLIENT_GONE, seconds)
            log.info("%s %s %d %.0f ms", scope["method"], route, status or CLIENT_GONE, 1000 * seconds)

    def _check_key(self, scope: Scope) -> None:
        path: str = scope["path"]
        private = path.startswith(("/v1", "/v2", "/metrics")) or scope["method"] not in PAGE
        if not self._keys or path in OPEN or not private:
            return
        header = _header(scope, b"authorization")
        kind, _, given = header.partition(b" ")
        # All keys are compared, each in constant time, so that timing says nothing about them.
        matches = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        if kind.lower() != b"bearer" or not any(matches):
            raise RequestError(401, "unauthorized", "send an API key: Authorization: Bearer KEY")

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        most = self.settings.most_body_bytes
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size = 0
        deadline = time.monotonic() + self.settings.body_timeout
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(0.001, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                raise RequestError(
                    408,
                    "body_too_slow",
                    f"the body did not arrive within {self.settings.body_timeout:g} seconds; send it faster",
                ) from None
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                return b"".join(parts)


def _too_large(most: int) -> RequestError:
    return RequestError(413, "body_too_large", f"the body has more than {most:,} bytes; send fewer items")


def _header(scope: Scope, name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body in one piece, and then what the connection gives: its end."""
    given = False

    async def next_message() -> dict[str, Any]:
        nonlocal given
        if given:
            return dict(await receive())
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
