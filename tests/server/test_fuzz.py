"""Generated bad requests; `benchmarks/serve_fuzz.py` sends 10,000 of them to a process."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
from live_server import PATIENCE, running
from scripts import load_benchmark
from tiny import tiny_reader

from ccrank.server.settings import ServerSettings

REQUESTS, SEED = 150, 7


def test_bad_requests_are_refused_and_nothing_fails(caplog: pytest.LogCaptureFixture):
    """No 5xx, no request without an answer, no error in the log; afterwards the server answers as before."""
    body = {"items": ["Russia", "Chad", "Peru"], "by": "size"}
    with running(ServerSettings(timeout=PATIENCE, most_items=200), tiny_reader()) as (url, _):

        def answer() -> object:
            return httpx.post(f"{url}/v1/rank", json=body, timeout=PATIENCE).json()["items"]

        before = answer()
        with caplog.at_level(logging.ERROR):
            statuses, wrong = asyncio.run(load_benchmark("serve_fuzz").fuzz(url, REQUESTS, 8, SEED))
        assert not wrong, wrong
        assert sum(statuses.values()) == REQUESTS
        assert not caplog.records
        assert answer() == before
