"""What the server answers with: JSON that any text fits into, and errors of one form."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from ccrank.errors import CcrankError, UnavailableError
from ccrank.models.remote.client import BadAnswerError, RefusedError
from ccrank.util.text import shortened

RETRY_AFTER = 5
"""Seconds after which a refused client should try again."""
log = logging.getLogger(__name__)


class JSONReply(JSONResponse):
    """JSON in UTF-8; a lone surrogate, which UTF-8 lacks, is escaped."""

    def render(self, content: Any) -> bytes:
        """The bytes of a value."""
        return json_bytes(content)


def json_bytes(content: Any) -> bytes:
    """A value as JSON in UTF-8."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class RequestError(Exception):
    """A request that gets an error as its answer.

    Parameters
    ----------
    status
        The HTTP status.
    kind
        A word for programs, such as "too_many_items".
    message
        For people: the offending value and the remedy.
    retry_after
        Seconds after which the request may succeed.
    """

    def __init__(self, status: int, kind: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.retry_after = status, kind, message, retry_after

    def reply(self) -> JSONReply:
        """The response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONReply(self.content(), self.status, headers)

    def content(self) -> dict[str, Any]:
        """The JSON of the response; `detail` is where clients of Jina's API look for the message."""
        return {"error": {"type": self.kind, "message": self.message}, "detail": self.message}


def refusal_of(error: BaseException, log_items: bool) -> RequestError:
    """The answer to a request whose work raised an error."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, UnavailableError):
        log.warning("a model's server cannot be read: %s", error)
        if isinstance(error, RefusedError):
            # What a server says of a key is not for clients.
            message = (
                f"the model's server refuses to be read (status {error.status}); this server's log says why"
            )
            return RequestError(502, "model_server_error", message)
        message = "the model's server cannot be read at present; try again later"
        return RequestError(503, "model_unavailable", message, RETRY_AFTER)
    if isinstance(error, BadAnswerError):
        log.warning("a model's server cannot be read: %s", error)
        return RequestError(
            502,
            "model_server_error",
            "the model's server gave an answer that cannot be used; this server's log has it",
        )
    if isinstance(error, RefusedError):
        return RequestError(422, "bad_request", f"the model's server {error.problem}")
    if isinstance(error, CcrankError):
        return RequestError(422, "bad_request", str(error))
    if isinstance(error, MemoryError):
        log.error("out of memory")
        return RequestError(
            503, "out_of_memory", "the server has not enough memory for this request; send fewer items", 10
        )
    if log_items:
        log.error("a request failed", exc_info=error)
    else:
        where = traceback.extract_tb(error.__traceback__)[-1:]
        location = f" at {where[0].filename}:{where[0].lineno}" if where else ""
        log.error(
            "a request failed: %s%s (its message is shown with --log-items)", type(error).__name__, location
        )
    return RequestError(500, "internal_error", "the server failed; its log says where")


def add_error_replies(app: FastAPI, log_items: bool) -> None:
    """Give every error the form {"error": {"type", "message"}}."""

    async def refused(request: Request, error: Exception) -> Response:
        return refusal_of(error, log_items).reply()

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return RequestError(422, "bad_request", "; ".join(explained(error.errors()))).reply()

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        reply = RequestError(error.status_code, kind, str(error.detail)).reply()
        reply.headers.update(error.headers or {})
        return reply

    app.add_exception_handler(RequestError, refused)
    app.add_exception_handler(CcrankError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)


def explained(errors: Sequence[Any]) -> list[str]:
    """Where and why, for the first few; never the value, which may be long."""
    found = [_explained_one(one) for one in errors[:5]]
    return [*found, *([f"and {len(errors) - 5} more"] if len(errors) > 5 else [])]


def _explained_one(error: Mapping[str, Any]) -> str:
    where = (shortened(str(part), 40) for part in error["loc"][:6])
    return f"{'.'.join(where)}: {error['msg']}"
