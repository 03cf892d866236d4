"""Generated bad requests; `benchmarks/serve_fuzz.py` sends 10,000 of them to a process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import PATIENCE, running
from scripts import load_benchmark
from tiny import tiny_reader

from ccrank import fit
from ccrank.server.settings import ServerSettings

REQUESTS, SEED = 150, 7


def test_bad_requests_are_refused_and_nothing_fails(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    """No 5xx, no request without an answer, no error in the log; afterwards the server answers as before."""
    body: dict[str, Any] = {"items": ["Russia", "Chad", "Peru"], "by": "size"}
    fit(body["items"], "size", model=tiny_reader()).save(tmp_path / "size.scale")
    settings = ServerSettings(timeout=PATIENCE, max_items=200, scales=(f"size={tmp_path / 'size.scale'}",))
    with running(settings, tiny_reader()) as (url, _):

        def answer() -> object:
            return httpx.post(f"{url}/v1/rank", json=body, timeout=PATIENCE).json()["items"]

        before = answer()
        with caplog.at_level(logging.ERROR):
            statuses, wrong = asyncio.run(load_benchmark("serve_fuzz").fuzz(url, REQUESTS, 8, SEED))
        assert not wrong, wrong
        assert sum(statuses.values()) == REQUESTS
        assert not caplog.records
        assert answer() == before
