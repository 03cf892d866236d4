"""The routes that run no model: pages, what the server has, its health and metrics, and what a criterion means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import PlainTextResponse, Response

from ccrank.criteria import criterion_of
from ccrank.criteria.lexicon import poles_of
from ccrank.methods.registry import METHODS
from ccrank.server.middleware import BodyRoute
from ccrank.server.responses import JSONReply
from ccrank.server.routes.pages import page_files, report_reply, reports_in
from ccrank.server.routes.ranking import ERRORS, example
from ccrank.server.schemas import UnderstandBody
from ccrank.server.state import ServerState, state_of
from ccrank.version import __version__

router = APIRouter(route_class=BodyRoute)


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    return await page_files().get_response("index.html", request.scope)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    return await page_files().get_response("docs.html", request.scope)


@router.get("/reports/", include_in_schema=False)
async def reports(request: Request) -> Response:
    return await page_files().get_response("reports.html", request.scope)


@router.get("/page/{name}", include_in_schema=False)
async def page_file(request: Request, name: str) -> Response:
    return await page_files().get_response(name, request.scope)


@router.get("/reports/{name:path}", include_in_schema=False)
def report(request: Request, name: str) -> Response:
    return report_reply(_folder(state_of(request)), name)


def _folder(state: ServerState) -> Path | None:
    """The folder of reports. A browser opens them without a key, so that a server with keys shows none."""
    settings = state.settings
    return None if settings.reports is None or settings.keys else Path(settings.reports)


@router.get("/v1/page", include_in_schema=False)
def about(request: Request) -> Response:
    """Facts about the server, for the page."""
    return JSONReply({"version": __version__, "reports": [*reports_in(_folder(state_of(request)))]})


@router.post("/v1/understand", responses=ERRORS, openapi_extra=example({"by": "least expensive"}))
def understand(body: UnderstandBody) -> Response:
    """What a criterion is taken to mean, with words for its poles. No model is asked."""
    return JSONReply(understanding(body.by, body.category))


def understanding(phrase: str, category: str | None) -> Mapping[str, Any]:
    """What a phrase means: the JSON of `Understood`, any doubt about it, and pairs of words for the poles."""
    criterion = criterion_of(phrase, category=category)
    meaning = criterion.understood
    assert meaning is not None
    words = poles_of(criterion)
    low, high = meaning.poles
    senses = (sense.poles for sense in meaning.alternatives)
    pairs = [(low, high), *senses, *zip(words.low, words.high, strict=False)]
    return {
        **meaning.to_json(),
        "name": meaning.name,
        "last": meaning.last,
        "warning": meaning.warning,
        "suggestions": [list(pair) for pair in dict.fromkeys(pairs)],
    }


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """The models that requests may name, the default one first."""
    served = state_of(request).models.values()
    return JSONReply({"object": "list", "data": [model.about() for model in served]})


@router.get("/v1/methods")
async def methods() -> Response:
    """The methods, with their options and defaults."""
    return JSONReply({"data": [method.to_json() for method in METHODS.values()]})


@router.get("/v1/scales")
async def scales(request: Request) -> Response:
    """The scales that requests may name, the default one first."""
    served = state_of(request).scales.values()
    return JSONReply({"object": "list", "data": [scale.about() for scale in served]})


@router.get("/healthz", responses={503: {"description": "The process must be restarted."}})
async def healthz(request: Request) -> Response:
    """200 while the process works, 503 with reasons when it must be restarted.

    A model fails when the thread that reads it has died; passes stall when requests wait and no pass ends; a worker
    hangs when it does not end work that must end. An idle server and one with long passes are healthy.
    """
    state = state_of(request)
    models = state.models.values()
    failures = {
        "model failed": not all(model.alive for model in models),
        "passes stalled": any(model.stalled(state.settings.timeout) for model in models),
        "worker stuck": state.workers.stuck,
    }
    reasons = [reason for reason, holds in failures.items() if holds]
    content = {"status": "failed" if reasons else "ok", "reasons": reasons, "version": __version__}
    return JSONReply(content, 503 if reasons else 200)


@router.get("/readyz", responses={503: {"description": "No new work is taken."}})
async def readyz(request: Request) -> Response:
    """200 while new work is taken, 503 when the server drains, its queue is full or a model cannot be read.

    Servers of models behind other servers are asked for it, every few seconds at most.
    """
    state = state_of(request)
    ready = await asyncio.to_thread(lambda: all(model.ready() for model in state.models.values()))
    failures = {"draining": state.draining, "queue full": state.workers.full, "model failed": not ready}
    reasons = [reason for reason, holds in failures.items() if holds]
    return JSONReply({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format."""
    content = generate_latest(state_of(request).metrics.registry)
    return Response(content, media_type=CONTENT_TYPE_LATEST)
