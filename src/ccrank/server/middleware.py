"""What is checked before a route runs: host, origin and key of a request, the size and time of its body, and its JSON.

Parsing and validation hold the interpreter's lock, so what bounds a body's cost is the number of its values. It is
counted in the bytes, without making an object for each.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccrank.server.responses import RETRY_AFTER, RequestError, refusal_of, too_large
from ccrank.server.settings import ServerSettings
from ccrank.server.state import Metrics, state_of
from ccrank.util.text import quoted

log = logging.getLogger("ccrank.server")

CLIENT_GONE = 499
"""Counted as the status of requests whose clients left before the answer."""
OPEN = ("/healthz", "/readyz")
"""Paths without a key, for the probes of a container."""
PAGE = ("GET", "HEAD")
"""Methods without a body. They need a key for /v1, /v2 and /metrics alone, so that a browser can open the page."""
SMALL_BODY = 64 << 10
"""Bodies up to this size are accepted even while larger ones are refused."""
ANY_HOST, ANY_ADDRESS = "*", "IP"
"""Among the allowed hosts: every name; every IP address. An address cannot be rebound by a DNS server."""
MAX_FIELDS = 50
"""Fields of a body; each unknown one makes an error."""
MAX_DEPTH = 16
"""Maximum nesting; labels need 4."""
VALUES_PER_ITEM = 10
"""Values that a body may hold for each item of the largest list: the item, and labels of it."""
BRACES = bytes.maketrans(b"{}", b"[]")
NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{},'))


def allowed_hosts(bound: str, more: Sequence[str]) -> tuple[str, ...]:
    """The hosts that requests may name: this machine, the address that the server listens on, and others."""
    every = bound in ("", "0.0.0.0", "::")
    listening = ANY_ADDRESS if every else f"[{bound}]" if ":" in bound else bound.lower()
    return tuple(dict.fromkeys([*ServerSettings().hosts, listening, *(name.lower() for name in more)]))


class RequestMiddleware:
    """Checks hosts, origins and keys, bounds bodies, counts and logs requests: a plain ASGI layer, so that streams and
    disconnects pass through it untouched."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._keys = [key.encode() for key in settings.keys]
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, headers = time.monotonic(), Headers(scope=scope)
        method, path = scope["method"], scope["path"]
        status: int | None = None

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        parts: list[bytes] = []
        try:
            self._check_host(headers)
            self._check_key(path, method, headers)
            self._check_origin(method, headers)
            if await self._read_body(headers, receive, parts):
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
            self.metrics.count_request(method, route, status or CLIENT_GONE, seconds)
            log.info("%s %s %d %.0f ms", method, route, status or CLIENT_GONE, 1000 * seconds)

    def _check_host(self, headers: Headers) -> None:
        host, allowed = _without_port(headers.get("host", "")), self.settings.hosts
        if ANY_HOST in allowed or host in allowed or (ANY_ADDRESS in allowed and _is_address(host)):
            return
        remedy = "start it with --allow-host NAME if it should"
        message = f"this server does not answer for the host {quoted(host)}; {remedy}"
        raise RequestError(421, "unknown_host", message)

    def _check_origin(self, method: str, headers: Headers) -> None:
        """No page of another site may send requests. Its forms, without an origin in old browsers, send no JSON."""
        origin = headers.get("origin", "").lower()
        host = origin.partition("://")[2]
        if method in PAGE or not origin or host == headers.get("host", "").lower():
            return
        if _without_port(host) not in self.settings.origins:
            message = f"a page of {quoted(origin)} may not send requests; --allow-host NAME allows the pages of a host"
            raise RequestError(403, "other_origin", message)

    def _check_key(self, path: str, method: str, headers: Headers) -> None:
        private = path.startswith(("/v1", "/v2", "/metrics")) or method not in PAGE
        if not self._keys or path in OPEN or not private:
            return
        kind, _, given = headers.get("authorization", "").encode("latin-1").partition(b" ")
        # All keys are compared, each in constant time, so that timing reveals nothing about them.
        matches = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        if kind.lower() != b"bearer" or not any(matches):
            raise RequestError(401, "unauthorized", "send an API key: Authorization: Bearer KEY")

    async def _read_body(self, headers: Headers, receive: Receive, parts: list[bytes]) -> bool:
        """Read the body into `parts`; returns whether it is complete, or else the client has left."""
        most, size = self.settings.max_body_bytes, 0
        length = headers.get("content-length", "")
        too_long = too_large("body_too_large", f"the body has more than {most:,} bytes; send fewer items")
        if length.isdecimal() and int(length[:20]) > most:
            raise too_long
        deadline = time.monotonic() + self.settings.body_timeout
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(0.001, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                seconds = f"{self.settings.body_timeout:g} seconds"
                problem = f"the body did not arrive within {seconds}; send it faster"
                raise RequestError(408, "body_too_slow", problem) from None
            if message["type"] == "http.disconnect":
                return False
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._held += len(parts[-1])
            if size > most:
                raise too_long
            if size > SMALL_BODY and self._held > self.settings.max_held_bytes:
                problem = "too many large requests are in progress; try again later"
                raise RequestError(503, "busy", problem, RETRY_AFTER)
            if not message.get("more_body", False):
                return True


def _without_port(host: str) -> str:
    """The name or address in a Host header."""
    text = host.lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then the further messages of the connection."""
    pieces: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return pieces.pop() if pieces else await receive()

    return next_message


class BodyRoute(APIRoute):
    """A route whose body is parsed here, in a thread, before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def parsed(request: Request) -> Response:
            state = state_of(request)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise RequestError(
                    415,
                    "no_json",
                    "the body must be JSON; send it with the header Content-Type: application/json",
                )
            body = await request.body()
            content = await state.workers.prepare(lambda: parsed_body(body, state.settings.max_items))
            request._json = content  # where `Request.json` leaves what it has parsed
            return await handler(request)

        return parsed


def parsed_body(body: bytes, max_items: int) -> Any:
    """The JSON of a body, or the reason why it is refused."""
    most = VALUES_PER_ITEM * (max_items + MAX_FIELDS)
    structure = _structure(body, most)
    # Each value comes after a comma or an opening bracket, or first.
    if structure is None or structure.count(b",") + structure.count(b"[") >= most:
        raise too_large(
            "too_many_values",
            f"the body holds more than {most:,} values; this server takes {max_items:,} items with labels",
        )
    try:
        content = json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _not_json(f"it is not UTF-8, at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg}, at character {error.pos}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise _not_json("it has a number of thousands of digits") from None
    if _depth_exceeds(structure, MAX_DEPTH):
        raise _too_deep()
    if isinstance(content, dict) and len(content) > MAX_FIELDS:
        raise RequestError(
            422, "bad_request", f"the body has {len(content):,} fields; see /docs for those it takes"
        )
    return content


def _structure(body: bytes, most: int) -> bytes | None:
    """The commas and brackets outside of texts, with braces as brackets; None if there are too many texts.

    In UTF-8 no part of another character has the same byte.
    """
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(BRACES, NO_STRUCTURE)
    if plain.count(b'"') > 4 * most:  # two for the text of a value, and two for its key
        return None
    return b"".join(plain.split(b'"')[::2])


def _depth_exceeds(structure: bytes, most: int) -> bool:
    """Whether valid JSON is nested more than `most` levels deep."""
    brackets = structure.replace(b",", b"")
    for _ in range(most):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _not_json(reason: str) -> RequestError:
    return RequestError(400, "bad_request", f"the body is not JSON: {reason}")


def _too_deep() -> RequestError:
    return RequestError(400, "bad_request", f"the body has lists or objects in more than {MAX_DEPTH} levels")
