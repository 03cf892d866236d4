"""The application: routes, limits and the lifetime of models and threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI

from ccrank.models.remote import OpenModel
from ccrank.server.metrics import Metrics
from ccrank.server.middleware import RequestMiddleware
from ccrank.server.responses import JSONReply, add_error_replies
from ccrank.server.routes import health as health_routes
from ccrank.server.routes import page as page_routes
from ccrank.server.routes import rank as rank_routes
from ccrank.server.routes import rerank as rerank_routes
from ccrank.server.routes import score as score_routes
from ccrank.server.routes.score import open_scales
from ccrank.server.settings import ServerSettings
from ccrank.server.state import ServerState
from ccrank.server.work.open_models import ServedModels, open_readers
from ccrank.server.work.worker_pool import Workers
from ccrank.version import __version__


def create_app(settings: ServerSettings, readers: Mapping[str, OpenModel] | None = None) -> FastAPI:
    """The application, with its models open."""
    opened = open_readers(settings) if readers is None else readers
    scales = open_scales(settings, opened)
    metrics = Metrics()

    @asynccontextmanager
    async def lifetime(app: FastAPI) -> AsyncIterator[None]:
        models = ServedModels(opened, settings.threads, metrics.count_pass)
        state = ServerState(settings, models, Workers(settings), metrics, scales)
        metrics.watch(lambda: state.workers.active, lambda: state.workers.waiting)
        app.state.server = state
        try:
            yield
        finally:
            state.draining = True
            await asyncio.to_thread(state.workers.stop)
            await asyncio.to_thread(state.models.stop)

    app = FastAPI(
        title="ccrank",
        version=__version__,
        summary="Rank any list of items by any criterion with a language model.",
        lifespan=lifetime,
        default_response_class=JSONReply,
        docs_url=None,  # FastAPI's pages load their scripts from elsewhere
        redoc_url=None,
    )
    add_error_replies(app, settings.log_items)
    app.add_middleware(RequestMiddleware, settings=settings, metrics=metrics)
    app.include_router(rank_routes.router)
    app.include_router(rerank_routes.router)
    app.include_router(score_routes.router)
    app.include_router(health_routes.router)
    app.include_router(page_routes.router)
    return app
