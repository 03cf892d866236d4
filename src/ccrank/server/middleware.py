"""What every request passes before any route: host, origin and key, and the size and time of its body.

A plain ASGI layer, so that streams and disconnects pass through it untouched.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import time
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccrank.server.metrics import Metrics
from ccrank.server.responses import RETRY_AFTER, RequestError, refusal_of
from ccrank.server.settings import ServerSettings
from ccrank.util.text import quoted

log = logging.getLogger("ccrank.server")

CLIENT_GONE = 499
"""Counted in place of a status where the client left before its answer."""
OPEN = ("/healthz", "/readyz")
"""Paths that need no key: probes of a container have none."""
PAGE = ("GET", "HEAD")
"""Without a body; outside of /v1, /v2 and /metrics these need no key, so that a browser can open the page."""
SMALL_BODY = 64 << 10
"""A body of this size is taken even while large ones are refused."""
ANY_HOST, ANY_ADDRESS = "*", "IP"
"""Among the allowed hosts: every name; every IP address. An address cannot be rebound by a DNS server."""


def allowed_hosts(bound: str, more: Sequence[str]) -> tuple[str, ...]:
    """The hosts that requests may name: this machine, the address that the server listens on, and others."""
    every = bound in ("", "0.0.0.0", "::")
    listening = ANY_ADDRESS if every else f"[{bound}]" if ":" in bound else bound.lower()
    return tuple(dict.fromkeys([*ServerSettings().hosts, listening, *(name.lower() for name in more)]))


class DisconnectedError(Exception):
    """The client left before its body was complete."""


class RequestMiddleware:
    """Checks hosts, origins and keys, bounds bodies, counts and logs requests."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._keys = [key.encode() for key in settings.keys]
        self._held = 0

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

        parts: list[bytes] = []
        try:
            try:
                self._check_host(scope)
                self._check_key(scope)
                self._check_origin(scope)
                await self._read_body(scope, receive, parts)
            except RequestError as error:
                await error.reply()(scope, receive, counted)
                return
            except DisconnectedError:
                return
            try:
                await self.app(scope, _replayed(b"".join(parts), receive), counted)
            except Exception as error:
                # Further out it would be logged with its message, which may hold texts of the request.
                refused = refusal_of(error, self.settings.log_items)
                if status is None:
                    await refused.reply()(scope, receive, counted)
        finally:
            self._held -= sum(map(len, parts))
            seconds = time.monotonic() - started
            route = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.count_request(scope["method"], route, status or CLIENT_GONE, seconds)
            log.info("%s %s %d %.0f ms", scope["method"], route, status or CLIENT_GONE, 1000 * seconds)

    def _check_host(self, scope: Scope) -> None:
        host, allowed = _without_port(_header(scope, b"host")), self.settings.hosts
        if ANY_HOST in allowed or host in allowed or (ANY_ADDRESS in allowed and _is_address(host)):
            return
        raise RequestError(
            421,
            "unknown_host",
            f"this server does not answer for the host {quoted(host)}; start it with --allow-host NAME if it should",
        )

    def _check_origin(self, scope: Scope) -> None:
        """No page of another site may send requests. Its forms, without an origin in old browsers, send no JSON."""
        if scope["method"] in PAGE:
            return
        origin = _header(scope, b"origin").decode("latin-1").lower()
        if origin:
            named = origin.partition("://")[2]
            if named != _header(scope, b"host").decode("latin-1").lower() and (
                _without_port(named.encode("latin-1")) not in self.settings.origins
            ):
                raise RequestError(
                    403,
                    "other_origin",
                    f"a page of {quoted(origin)} may not send requests; --allow-host NAME allows the pages of a host",
                )

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

    async def _read_body(self, scope: Scope, receive: Receive, parts: list[bytes]) -> None:
        most = self.settings.most_body_bytes
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
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
                raise DisconnectedError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._held += len(parts[-1])
            if size > most:
                raise _too_large(most)
            if size > SMALL_BODY and self._held > self.settings.most_held_bytes:
                raise RequestError(
                    503, "busy", "too many large requests are in progress; try again later", RETRY_AFTER
                )
            if not message.get("more_body", False):
                return


def _too_large(most: int) -> RequestError:
    return RequestError(413, "body_too_large", f"the body has more than {most:,} bytes; send fewer items")


def _header(scope: Scope, name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")


def _without_port(host: bytes) -> str:
    """The name or address in a Host header."""
    text = host.decode("latin-1").lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


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
