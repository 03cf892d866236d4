"""From the bytes of a body to JSON: bounded before anything is made of it, and parsed off the event loop.

Parsing and validation hold the interpreter's lock, so what bounds a body's cost is the number of its values. It is
counted in the bytes, without making an object for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from ccrank.server.responses import RequestError
from ccrank.server.state import state_of

MAX_FIELDS = 50
"""Fields of a body; each unknown one makes an error."""
MAX_DEPTH = 16
"""Maximum nesting; labels need 4."""
VALUES_PER_ITEM = 10
"""Values that a body may hold for each item of the largest list: the item, and labels of it."""
BRACES = bytes.maketrans(b"{}", b"[]")
NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{},'))


class BodyRoute(APIRoute):
    """A route whose body is parsed here, in a thread, before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, which gets a request with its JSON at hand."""
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
            content = await state.workers.prepare(lambda: parsed_body(body, state.settings.most_items))
            return await handler(ParsedRequest(request, body, content))

        return parsed


class ParsedRequest(Request):
    """A request whose body was read and parsed."""

    def __init__(self, request: Request, body: bytes, content: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._read, self._content = body, content

    async def body(self) -> bytes:
        """The bytes of the body."""
        return self._read

    async def json(self) -> Any:
        """The JSON of the body."""
        return self._content


def parsed_body(body: bytes, most_items: int) -> Any:
    """The JSON of a body, or the reason why it is refused."""
    most = VALUES_PER_ITEM * (most_items + MAX_FIELDS)
    structure = _structure(body, most)
    # Each value comes after a comma or an opening bracket, or first.
    if structure is None or structure.count(b",") + structure.count(b"[") >= most:
        raise RequestError(
            413,
            "too_many_values",
            f"the body holds more than {most:,} values; this server takes {most_items:,} items with labels",
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

    In UTF-8 no byte of another character looks like one of them.
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
