"""Whether the server runs, whether it takes work, and its metrics."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from ccrank.server.replies import JSONReply
from ccrank.server.state import state_of
from ccrank.version import __version__

router = APIRouter()


@router.get("/healthz", responses={503: {"description": "A model cannot be read."}})
async def healthz(request: Request) -> Response:
    """200 while the process works and every model can be read, else 503."""
    alive = state_of(request).models.alive
    return JSONReply({"status": "ok" if alive else "failed", "version": __version__}, 200 if alive else 503)


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
    found = [reason for reason, holds in reasons.items() if holds]
    return JSONReply({"ready": not found, "reasons": found}, 503 if found else 200)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(state_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)
