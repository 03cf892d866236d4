"""The routes that run models: POST /v1/rank, /v1/rerank (/v2/rerank), /v1/score and /v1/question."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from scipy.special import expit
from starlette.responses import Response, StreamingResponse

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.io import rows_of_items
from ccrank.io.table import DECIMALS
from ccrank.models import Cost
from ccrank.models.reading import PartialProgress, Progress
from ccrank.models.remote import OpenModel
from ccrank.ranking import Ranking
from ccrank.server import schemas
from ccrank.server.middleware import BodyRoute
from ccrank.server.responses import RequestError, by_name, json_bytes, refusal_of, too_large
from ccrank.server.state import ServerState, state_of
from ccrank.server.work.run_request import (
    check_texts,
    expected_tokens,
    next_question,
    question_request,
    rank_request,
    ranking_kept,
    ranking_of,
)
from ccrank.server.work.worker_pool import Ticket, Work
from ccrank.task import Task, is_blank, normal_form

router = APIRouter(route_class=BodyRoute)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorReply, "description": description}
    for status, description in {
        400: "The body is not JSON.",
        401: "The API key is missing or wrong.",
        403: "A page of another site sent the request.",
        404: "The server has no such model.",
        408: "The body came too slowly.",
        413: "The body, a text, or the number of items or labels is too large.",
        415: "The body was not sent as application/json.",
        421: "The server does not answer for the host that the request names.",
        422: "The request has a mistake, which the message names.",
        429: "Too many requests are waiting; see Retry-After.",
        502: "The server of a model behind another server refuses to be read.",
        503: "The server is stopping or out of memory, or a model's server does not answer; see Retry-After.",
        504: "The time is up; the work was stopped.",
    }.items()
}
"""The errors of routes that run models, for the OpenAPI schema."""
RANKED: dict[str, Any] = {
    "model": schemas.RankReply,
    "description": "The ranking, as `ccrank rank --json` prints it; or events, for a request with stream.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
RERANKED = {"model": schemas.RerankReply, "description": "The documents, the most relevant first."}
SCORED = {"model": schemas.ScoreReply, "description": "The scores, in the order of the items."}
LIST = {"items": ["Russia", "Canada", "Chad", "Monaco"], "by": "size"}
DOCUMENTS = {"query": "capital of France", "documents": ["Bananas are yellow.", "Paris is in France."]}
FILLER = ("An empty page.", "A blank page.")
"""A ranking needs two documents. These fill up a shorter list: a document's score does not depend on the others."""


def example(body: Any) -> dict[str, Any]:
    """What a route adds to its schema: a body to try."""
    return {"requestBody": {"content": {"application/json": {"example": body}}}}


@router.post("/v1/rank", responses={200: RANKED, **ERRORS}, openapi_extra=example(LIST))
async def rank(request: Request, body: schemas.StreamBody) -> Response:
    """Rank items by a criterion, best first.

    The answer is what `ccrank rank --json` prints. With `"stream": true` it comes as server-sent events: `progress`
    {"done": tokens, "total": tokens or null}, then `result` with that answer, or `error`. With `"partial": true` there
    are also `partial` {"scores": {item: score}}: Z-scores of the items read so far, by the signals read so far.
    """
    state = state_of(request)
    work = await state.admit(lambda: ranking_work(body, state), "/v1/rank", len(body.items))
    if body.stream:
        return StreamingResponse(
            _events(state, work), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )
    return await state.answer(request, lambda ticket: work(ticket).to_json())


def ranking_work(body: schemas.RankBody, state: ServerState) -> Work[Ranking]:
    """The work of a request, if the server takes it."""
    models, request = state.jury(body.model), rank_request(body, state.settings)

    def work(ticket: Ticket) -> Ranking:
        readers = [model.reader_for(ticket) for model in models]
        if ticket.streamed:
            ticket.total = expected_tokens(request, readers)
            if isinstance(body, schemas.StreamBody) and body.partial and len(models) == 1:
                watch = PartialProgress(ticket.progress, ticket.partial)
                return ranking_kept(request, readers[0], watch, models[0].name, state.lists)
        return ranking_of(request, readers, ticket.progress)

    return work


async def _events(state: ServerState, work: Work[Ranking]) -> AsyncIterator[bytes]:
    """Server-sent events."""

    def event(kind: str, line: bytes) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + line + b"\n\n"

    try:
        async for kind, value in state.workers.stream(lambda ticket: json_bytes(work(ticket).to_json())):
            if kind == "partial":
                value = await state.workers.prepare(partial(json_bytes, {"scores": value}))
            yield event(kind, json_bytes(value) if kind == "progress" else value)
    except Exception as error:
        refused = refusal_of(error, state.settings.log_items)
        yield event("error", json_bytes({**refused.content(), "status": refused.status}))


@router.post("/v2/rerank", responses={200: RERANKED, **ERRORS}, openapi_extra=example(DOCUMENTS))
@router.post("/v1/rerank", responses={200: RERANKED, **ERRORS}, openapi_extra=example(DOCUMENTS))
async def rerank(request: Request, body: schemas.RerankBody) -> Response:
    """Rerank documents by their relevance to a query, the most relevant first.

    `relevance_score` is σ(g), with g the score of the method query-likelihood: how much more likely the document makes
    the query, per token. More than 0.5 means more likely. It does not depend on the other documents.
    """
    state = state_of(request)
    work = await state.admit(lambda: reranking_work(body, state), "/v1/rerank", len(body.documents))
    return await state.answer(request, lambda ticket: work(ticket).model_dump(exclude_none=True))


def reranking_work(body: schemas.RerankBody, state: ServerState) -> Work[schemas.RerankReply]:
    """The work of a request, if the server takes it."""
    model = by_name(state.models, body.model, "model")
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    check_texts(state.settings, texts, query=body.query)
    if is_blank(body.query):
        raise CcrankError("the query is empty; send a question or keywords")
    if len(texts) > state.settings.max_prompts:
        raise too_large("too_many_items", f"{len(texts):,} documents; send fewer")

    def work(ticket: Ticket) -> schemas.RerankReply:
        scores, cost = relevance_scores(body.query, texts, model.reader_for(ticket), ticket.progress)
        results = [
            schemas.RerankResult(
                index=index,
                relevance_score=float(scores[index]),
                document=schemas.Document(text=texts[index]) if body.return_documents else None,
            )
            for index in sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n]
        ]
        return schemas.RerankReply(
            id=str(uuid.uuid4()),
            model=model.name,
            results=results,
            meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
            usage={"total_tokens": cost.distinct_tokens, "prompt_tokens": cost.distinct_tokens},
        )

    return work


def relevance_scores(
    query: str, documents: Sequence[str], reader: OpenModel, progress: Progress | None = None
) -> tuple[np.ndarray, Cost]:
    """The relevance of each document, from 0 to 1, and what reading them cost; a blank document has 0."""
    distinct = {normal_form(text): text for text in documents if not is_blank(text)}
    if not distinct:
        return np.zeros(len(documents)), Cost()
    fillers = [text for text in FILLER if text not in distinct][: max(0, 2 - len(distinct))]
    task = Task.of_query(query, (*distinct.values(), *fillers), id="reranking")
    [ranking] = rank_tasks([task], reader, "query-likelihood", progress=progress)
    score_of = dict(zip([*distinct, *fillers], expit(ranking.scores), strict=True))
    return np.array([score_of.get(normal_form(text), 0.0) for text in documents]), ranking.cost


@router.post(
    "/v1/score", responses={200: SCORED, **ERRORS}, openapi_extra=example({"items": ["Could you help?"]})
)
async def score(request: Request, body: schemas.ScoreBody) -> Response:
    """Score items on a scale, one by one: each score depends on its item and the scale alone.

    The scales are those that `ccrank serve --scale NAME=FILE` was started with; `ccrank fit` makes them. Scales of
    `auto` and those with labels give a standard deviation too.
    """
    state = state_of(request)
    work = await state.admit(lambda: scoring_work(body, state), "/v1/score", len(body.items))
    return await state.answer(request, work)


def scoring_work(body: schemas.ScoreBody, state: ServerState) -> Work[dict[str, Any]]:
    """The work of a request, if the server takes it."""
    if not state.scales:
        raise RequestError(404, "unknown_scale", "this server has no scale; start it with --scale NAME=FILE")
    served = by_name(state.scales, body.scale, "scale")
    check_texts(state.settings, body.items)
    rows = rows_of_items(body.items)

    def work(ticket: Ticket) -> dict[str, Any]:
        readers = (state.models[name].reader_for(ticket) for name in served.models)
        scores = served.scale.with_reader(*readers).score(rows)
        columns = {"score": scores.values, "deviation": scores.deviation}
        known = {name: column.tolist() for name, column in columns.items() if column is not None}
        items = [
            {"item": item}
            | {
                name: round(value, DECIMALS)
                for name, value in zip(known, values, strict=True)
                if isfinite(value)
            }
            for item, *values in zip(body.items, *known.values(), strict=True)
        ]
        return {"scale": served.name, "model": served.model, "items": items}

    return work


@router.post("/v1/question", responses=ERRORS, openapi_extra=example(LIST))
async def question(request: Request, body: schemas.QuestionBody) -> Response:
    """The two items whose order would teach most, and the ranking that the labels so far give.

    The server keeps no answers: each request has all labels. It does keep what it read of the last few lists, so that
    only the first question of a list takes time. `question` is null if there is nothing left to ask.
    """
    state = state_of(request)
    model = by_name(state.models, body.model, "model")
    checked = await state.admit(lambda: question_request(body, state.settings))
    return await state.answer(
        request, lambda ticket: next_question(checked, model.reader_for(ticket), model.name, state.lists)
    )
