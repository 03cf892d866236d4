"""State that the routes of an application share, and its Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ccrank.jury import SEPARATOR, names_in
from ccrank.models.remote import OpenModel
from ccrank.server.responses import by_name, json_bytes
from ccrank.server.settings import ServerSettings
from ccrank.server.work.open_models import ServedModel, ServedScale
from ccrank.server.work.run_request import ReadLists
from ccrank.server.work.worker_pool import Work, Workers

T = TypeVar("T")
SECONDS = (0.005, 0.02, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (16, 64, 256, 512, 1024, 2048, 8192, 32768)


class Metrics:
    """The metrics of one application, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.requests = counter(
            "ccrank_requests_total", "Requests by method, route and status.", ["method", "route", "status"]
        )
        self.seconds = histogram(
            "ccrank_request_seconds", "Seconds from a request to its answer.", ["route"], buckets=SECONDS
        )
        self.items = counter("ccrank_items_total", "Items that were ranked.", ["route"])
        self.active = gauge("ccrank_requests_active", "Requests that are worked on.")
        self.waiting = gauge("ccrank_requests_waiting", "Requests that wait for a thread.")
        self.passes = counter("ccrank_passes_total", "Forward passes.", ["model"])
        self.tokens = counter("ccrank_tokens_total", "Tokens that the model computed.", ["model"])
        self.pass_seconds = histogram(
            "ccrank_pass_seconds", "Seconds of a forward pass.", ["model"], buckets=SECONDS
        )
        self.pass_requests = histogram(
            "ccrank_pass_requests", "Requests that share a forward pass.", ["model"], buckets=COUNTS
        )
        self.pass_tokens = histogram(
            "ccrank_pass_tokens", "Tokens of a forward pass.", ["model"], buckets=TOKENS
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self.requests.labels(known, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def count_pass(self, model: str, requests: int, tokens: int, seconds: float) -> None:
        self.passes.labels(model).inc()
        self.tokens.labels(model).inc(tokens)
        self.pass_seconds.labels(model).observe(seconds)
        self.pass_requests.labels(model).observe(requests)
        self.pass_tokens.labels(model).observe(tokens)


@dataclass
class ServerState:
    """The settings, the open models and the threads of a server."""

    settings: ServerSettings
    models: Mapping[str, ServedModel]
    """Name in requests → model, the default one first."""
    workers: Workers
    metrics: Metrics
    scales: Mapping[str, ServedScale]
    """Name in requests → scale, the default one first."""
    lists: ReadLists = field(default_factory=ReadLists)
    """Readings of the lists that questions are asked about."""
    draining: bool = False
    """Whether the server is about to stop, and takes no new work."""

    @classmethod
    def of(
        cls,
        settings: ServerSettings,
        readers: Mapping[str, OpenModel],
        metrics: Metrics | None = None,
        scales: Mapping[str, ServedScale] | None = None,
    ) -> ServerState:
        """The state of a server that begins."""
        workers, metrics = Workers(settings), metrics or Metrics()
        metrics.active.set_function(lambda: min(len(workers.tickets), settings.concurrency))
        metrics.waiting.set_function(lambda: max(0, len(workers.tickets) - settings.concurrency))
        models = {
            name: ServedModel(name, reader, settings.threads, metrics.count_pass)
            for name, reader in readers.items()
        }
        return cls(settings, models, workers, metrics, scales or {})

    def jury(self, name: str | None) -> list[ServedModel]:
        """The models of "first,second", each of which the server has; of any other name the one model."""
        names = [name] if name is None or name in self.models or SEPARATOR not in name else names_in(name)
        return [by_name(self.models, member, "model") for member in names]

    async def admit(self, check: Callable[[], T], route: str = "", items: int = 0) -> T:
        """A request as it was checked in a thread, if there is room for its work."""
        self.workers.check_room()
        checked = await self.workers.prepare(check)
        self.workers.check_room()
        if items:
            self.metrics.items.labels(route).inc(items)
        return checked

    async def answer(self, request: Request, work: Work[Any]) -> Response:
        """The JSON of the result of work, which is done in a thread."""
        content = await self.workers.run(request, lambda ticket: json_bytes(work(ticket)))
        return Response(content, media_type="application/json")

    def drain(self) -> None:
        """Take no new work, and end all work shortly before connections are closed, so that clients get the reason."""
        if not self.draining:
            seconds = max(1.0, self.settings.drain)
            self.workers.drain(seconds - min(2.0, seconds / 2))
        self.draining = True

    def stop(self) -> None:
        """Cancel all work and end the threads."""
        self.workers.stop()
        for model in self.models.values():
            if model.scheduler is not None:
                model.scheduler.stop()


def state_of(request: HTTPConnection) -> ServerState:
    """The state of the application that serves a request."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state
