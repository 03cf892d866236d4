"""POST /v1/rerank and /v2/rerank: documents by their relevance to a query, in the form that search tools speak."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from scipy.special import expit
from starlette.responses import Response

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.models import Cost
from ccrank.models.reading import Progress
from ccrank.models.remote import OpenModel
from ccrank.server.parsing import BodyRoute
from ccrank.server.responses import JSONReply, RequestError, json_bytes
from ccrank.server.routes.rank import ERRORS
from ccrank.server.schemas import Document, RerankBody, RerankReply, RerankResult
from ccrank.server.settings import ServerSettings
from ccrank.server.state import state_of
from ccrank.server.work.run_request import check_texts
from ccrank.server.work.worker_pool import Ticket
from ccrank.task import Task, is_blank, normal_form

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": RerankReply, "description": "The documents, the most relevant first."},
    **ERRORS,
}
router = APIRouter(route_class=BodyRoute)
METHOD = "query-likelihood"
FILLER = ("An empty page.", "A blank page.")
"""A ranking needs two documents. These fill up a shorter list: a document's score does not depend on the others."""


@router.post("/v2/rerank", responses=ANSWERS, response_class=JSONReply)
@router.post("/v1/rerank", responses=ANSWERS, response_class=JSONReply)
async def rerank(request: Request, body: RerankBody) -> Response:
    """Rerank documents by their relevance to a query, the most relevant first.

    `relevance_score` is σ(g), with g the score of the method query-likelihood: how much more likely the document makes
    the query, per token. More than 0.5 means more likely. It does not depend on the other documents.
    """
    state = state_of(request)
    model = state.models.get(body.model)
    state.workers.check_room()
    texts = await state.workers.prepare(lambda: checked_texts(body, state.settings))
    state.metrics.items.labels("/v1/rerank").inc(len(texts))

    def run(ticket: Ticket) -> bytes:
        scores, cost = relevance_scores(body.query, texts, model.reader_for(ticket))
        reply = reply_to(body, texts, scores, cost, model.name)
        return json_bytes(reply.model_dump(exclude_none=True))

    return Response(await state.workers.run(request, run), media_type="application/json")


def checked_texts(body: RerankBody, settings: ServerSettings) -> list[str]:
    """The documents of a request that the server takes."""
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    check_texts(settings, texts, query=body.query)
    if is_blank(body.query):
        raise CcrankError("the query is empty; send a question or keywords")
    if len(texts) > settings.most_prompts:
        raise RequestError(413, "too_many_items", f"{len(texts):,} documents; send fewer")
    return texts


def reply_to(
    body: RerankBody, texts: Sequence[str], scores: np.ndarray, cost: Cost, model: str
) -> RerankReply:
    """The answer to a request."""
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n]
    results = [
        RerankResult(
            index=index,
            relevance_score=float(scores[index]),
            document=Document(text=texts[index]) if body.return_documents else None,
        )
        for index in order
    ]
    return RerankReply(
        id=str(uuid.uuid4()),
        model=model,
        results=results,
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
        usage={"total_tokens": cost.distinct_tokens, "prompt_tokens": cost.distinct_tokens},
    )


def relevance_scores(
    query: str, documents: Sequence[str], reader: OpenModel, progress: Progress | None = None
) -> tuple[np.ndarray, Cost]:
    """The relevance of each document, from 0 to 1, and what reading them cost; a blank document has 0."""
    distinct = {normal_form(text): text for text in documents if not is_blank(text)}
    scores = np.zeros(len(documents))
    if not distinct:
        return scores, Cost()
    fillers = [text for text in FILLER if text not in distinct][: max(0, 2 - len(distinct))]
    task = Task.of_query(query, (*distinct.values(), *fillers), id="reranking")
    [ranking] = rank_tasks([task], reader, METHOD, progress=progress)
    score_of = dict(zip([*distinct, *fillers], expit(ranking.scores), strict=True))
    for index, text in enumerate(documents):
        scores[index] = score_of.get(normal_form(text), 0.0)
    return scores, ranking.cost
