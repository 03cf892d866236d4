"""Answers of the server: JSON for any text, and errors of one form."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from ccrank.errors import CcrankError, UnavailableError
from ccrank.models.remote.client import BadAnswerError, RefusedError
from ccrank.util.text import shortened

T = TypeVar("T")
RETRY_AFTER = 5
"""Seconds after which a refused client should try again."""
log = logging.getLogger(__name__)


class JSONReply(JSONResponse):
    """JSON in UTF-8; a lone surrogate, which UTF-8 lacks, is escaped."""

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


def json_bytes(content: Any) -> bytes:
    """A value as JSON in UTF-8."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class RequestError(Exception):
    """A request that gets an error as its answer: `kind` is for programs, such as "too_many_items", the message, with
    the offending value and the remedy, for people. After `retry_after` seconds the request may succeed."""

    def __init__(self, status: int, kind: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.retry_after = status, kind, message, retry_after

    def reply(self) -> JSONReply:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONReply(self.content(), self.status, headers)

    def content(self) -> dict[str, Any]:
        """The JSON of the response; `detail` is where clients of Jina's API look for the message."""
        return {"error": {"type": self.kind, "message": self.message}, "detail": self.message}


def by_name(served: Mapping[str, T], name: str | None, kind: str) -> T:
    """The model or scale of a name, by default the first; only those named at start can be reached."""
    if name is None:
        return next(iter(served.values()))
    if name not in served:
        message = f"unknown {kind} {name[:100]!r}; this server has {', '.join(served)}"
        raise RequestError(404, f"unknown_{kind}", message)
    return served[name]


def too_large(kind: str, message: str) -> RequestError:
    """The answer to a request that is more than the server takes."""
    return RequestError(413, kind, message)


def refusal_of(error: BaseException, log_items: bool) -> RequestError:
    """The answer to a request whose work raised an error."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RequestValidationError):
        return RequestError(422, "bad_request", "; ".join(explained(error.errors())))
    if isinstance(error, HTTPException):
        kind = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        return RequestError(error.status_code, kind, str(error.detail))
    if isinstance(error, (UnavailableError, BadAnswerError)):
        return _model_server_error(error)
    if isinstance(error, CcrankError):
        problem = f"the model's server {error.problem}" if isinstance(error, RefusedError) else str(error)
        return RequestError(422, "bad_request", problem)
    if isinstance(error, MemoryError):
        log.error("out of memory")
        message = "the server has not enough memory for this request; send fewer items"
        return RequestError(503, "out_of_memory", message, 10)
    if log_items:
        log.error("a request failed", exc_info=error)
    else:
        where = traceback.extract_tb(error.__traceback__)[-1:]
        location = f" at {where[0].filename}:{where[0].lineno}" if where else ""
        log.error(
            "a request failed: %s%s (its message is shown with --log-items)", type(error).__name__, location
        )
    return RequestError(500, "internal_error", "the server failed; its log says where")


def _model_server_error(error: CcrankError) -> RequestError:
    """The answer when a model's server cannot be used. Its message may concern a key: it goes to the log alone."""
    log.warning("a model's server cannot be read: %s", error)
    if isinstance(error, BadAnswerError):
        message = "the model's server gave an answer that cannot be used; this server's log has it"
    elif isinstance(error, RefusedError):
        message = f"the model's server refuses to be read (status {error.status}); this server's log says why"
    else:
        message = "the model's server cannot be read at present; try again later"
        return RequestError(503, "model_unavailable", message, RETRY_AFTER)
    return RequestError(502, "model_server_error", message)


def add_error_replies(app: FastAPI, log_items: bool) -> None:
    """Give every error the form {"error": {"type", "message"}}."""

    async def refused(request: Request, error: Exception) -> Response:
        reply = refusal_of(error, log_items).reply()
        if isinstance(error, HTTPException):
            reply.headers.update(error.headers or {})
        return reply

    for kind in (RequestError, CcrankError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)


def explained(errors: Sequence[Any]) -> list[str]:
    """Where and why, for the first few; never the value, which may be long."""
    lines = [
        f"{'.'.join(shortened(str(part), 40) for part in error['loc'][:6])}: {error['msg']}"
        for error in errors[:5]
    ]
    return [*lines, *([f"and {len(errors) - 5} more"] if len(errors) > 5 else [])]
