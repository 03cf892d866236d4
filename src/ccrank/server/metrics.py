"""Prometheus metrics: requests, queue, and forward passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from ccrank.server.work.scheduler import Pass

SECONDS = (0.005, 0.02, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (16, 64, 256, 512, 1024, 2048, 8192, 32768)


class Metrics:
    """The metrics of one application, in a registry of its own."""

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

    def watch(self, active: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Where the gauges get their values when they are read."""
        self.active.set_function(active)
        self.waiting.set_function(waiting)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        known = method if method in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self.requests.labels(known, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def count_pass(self, model: str, done: Pass) -> None:
        """A forward pass was run."""
        self.passes.labels(model).inc()
        self.tokens.labels(model).inc(done.tokens)
        self.pass_seconds.labels(model).observe(done.seconds)
        self.pass_requests.labels(model).observe(done.requests)
        self.pass_tokens.labels(model).observe(done.tokens)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
