"""POST /v1/rank, and what can be asked about the server's models and methods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from ccrank.methods.registry import METHODS
from ccrank.models.reading import PartialProgress
from ccrank.server.parsing import BodyRoute
from ccrank.server.responses import JSONReply, json_bytes, refusal_of
from ccrank.server.schemas import ErrorReply, StreamBody
from ccrank.server.state import state_of
from ccrank.server.work.active_labels import watched
from ccrank.server.work.run_request import RankWork
from ccrank.server.work.worker_pool import Reports, Ticket

router = APIRouter(route_class=BodyRoute)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply, "description": description}
    for status, description in {
        400: "The body is not JSON.",
        401: "The API key is missing or wrong.",
        403: "A page of another site sent the request.",
        404: "The server has no such model.",
        408: "The body came too slowly.",
        413: "The body, the number of items or a text is too large.",
        415: "The body was not sent as application/json.",
        421: "The server does not answer for the host that the request names.",
        422: "The request has a mistake, which the message names.",
        429: "Too many requests are waiting; see Retry-After.",
        502: "The server of a model behind another server refuses to be read.",
        503: "The server is stopping or out of memory, or a model's server does not answer; see Retry-After.",
        504: "The time is up; the work was stopped.",
    }.items()
}
"""The errors of routes that work, for the OpenAPI schema."""
ANSWERS: dict[str, Any] = {
    "description": "The ranking, as `ccrank rank --json` prints it; or events, for a request with stream.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["task", "criterion", "model", "method", "directed", "items", "warnings"],
                "properties": {
                    "items": {
                        "type": "array",
                        "description": "Best first; deviation, rank_low and rank_high where they are known.",
                        "items": {
                            "type": "object",
                            "required": ["rank", "item", "score"],
                            "properties": {
                                "rank": {"type": "integer"},
                                "item": {"type": "string"},
                                "score": {"type": "number"},
                            },
                        },
                    }
                },
            }
        },
        "text/event-stream": {"schema": {"type": "string"}},
    },
}


@router.post("/v1/rank", responses={200: ANSWERS, **ERRORS}, response_class=JSONReply)
async def rank(request: Request, body: StreamBody) -> Response:
    """Rank items by a criterion, best first.

    The answer is what `ccrank rank --json` prints. With `"stream": true` it comes as server-sent events: `progress`
    {"done": tokens, "total": tokens or null}, then `result` with that answer, or `error`. With `"partial": true` there
    are also `partial` {"scores": {item: score}}: Z-scores of the items read so far, by the signals read so far.
    """
    state = state_of(request)
    model = state.models.get(body.model)
    state.workers.check_room()
    work = await state.workers.prepare(lambda: RankWork(body, state.settings))
    state.workers.check_room()
    state.metrics.items.labels("/v1/rank").inc(len(body.items))
    if body.stream:
        return StreamingResponse(
            _events(request, work, body.model, body.partial),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    def run(ticket: Ticket) -> bytes:
        return json_bytes(work.run(model.reader_for(ticket)).to_json())

    return Response(await state.workers.run(request, run), media_type="application/json")


async def _events(
    request: Request, work: RankWork, model: str | None, watched_too: bool
) -> AsyncIterator[bytes]:
    state = state_of(request)
    served = state.models.get(model)

    def run(ticket: Ticket, reports: Reports) -> bytes:
        reader = served.reader_for(ticket)
        reports.total = work.tokens(reader)
        if watched_too:
            watcher = PartialProgress(reports, reports.partial)
            return json_bytes(watched(work, reader, watcher, served.name, state.lists).to_json())
        return json_bytes(work.run(reader, reports).to_json())

    try:
        async for kind, value in state.workers.stream(run):
            if kind == "progress":
                yield event(kind, json_bytes(value))
            elif kind == "partial":
                yield event(kind, await state.workers.prepare(partial(json_bytes, {"scores": value})))
            else:
                yield event(kind, value)
    except Exception as error:
        refused = refusal_of(error, state.settings.log_items)
        yield event("error", json_bytes({**refused.content(), "status": refused.status}))


def event(kind: str, line: bytes) -> bytes:
    """One server-sent event."""
    return b"event: " + kind.encode() + b"\ndata: " + line + b"\n\n"


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """The models that requests may name, the default one first."""
    found = [model.about() for model in state_of(request).models.all()]
    return JSONReply({"object": "list", "data": found})


@router.get("/v1/methods")
async def methods() -> Response:
    """The methods, with their options and defaults."""
    return JSONReply({"data": [method.to_json() for method in METHODS.values()]})
