"""Whether the server runs, whether it takes work, and its metrics."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from ccrank.server.responses import JSONReply
from ccrank.server.state import state_of
from ccrank.version import __version__

router = APIRouter()


@router.get("/healthz", responses={503: {"description": "The process must be restarted."}})
async def healthz(request: Request) -> Response:
    """200 while the process works, 503 with reasons when it must be restarted.

    A model fails when the thread that reads it has died; passes stall when requests wait and no pass ends; a worker
    hangs when it does not end work that must end. An idle server and one with long passes are healthy.
    """
    state = state_of(request)
    reasons = {
        "model failed": not state.models.alive,
        "passes stalled": state.models.stalled(state.settings.timeout),
        "worker stuck": state.workers.stuck,
    }
    holding = [reason for reason, holds in reasons.items() if holds]
    content = {"status": "failed" if holding else "ok", "reasons": holding, "version": __version__}
    return JSONReply(content, 503 if holding else 200)


@router.get("/readyz", responses={503: {"description": "No new work is taken."}})
async def readyz(request: Request) -> Response:
    """200 while new work is taken, 503 when the server drains, its queue is full or a model cannot be read.

    Servers of models behind other servers are asked for it, every few seconds at most.
    """
    state = state_of(request)
    ready = await asyncio.to_thread(state.models.ready)
    reasons = {
        "draining": state.draining,
        "queue full": state.workers.full,
        "model failed": not ready,
    }
    holding = [reason for reason, holds in reasons.items() if holds]
    return JSONReply({"ready": not holding, "reasons": holding}, 503 if holding else 200)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(state_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)
