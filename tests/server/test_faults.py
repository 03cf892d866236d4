"""Faults around a running server: it goes on, and says what happened."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from live_server import PATIENCE, held_reader, running, until
from tiny import tiny_model, tiny_reader

from ccrank.models import Reader, ReadingCache
from ccrank.server.settings import ServerSettings
from ccrank.server.work import worker_pool
from ccrank.util.cancellation import check

BODY = {"items": ["Russia", "Chad", "Peru", "Monaco"], "by": "size"}


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)


def head_of(body: bytes, path: str = "/v1/rank") -> bytes:
    length = f"content-length: {len(body)}\r\n"
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n".encode()
    )


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=PATIENCE)


def healthy(url: str) -> bool:
    """Whether the server still ranks."""
    reply = httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE)
    return reply.status_code == 200 and get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_its_work(stream: bool):
    """When a client closes its connection in the middle of a ranking, the remaining passes are not run."""
    reader, engine = held_reader()
    many = {"items": [f"thing {one}" for one in range(30)], "by": "size", "stream": stream}
    with running(ServerSettings(), reader) as (url, state):
        engine.open.clear()
        body = json.dumps(many).encode()
        with connect(url) as client:
            client.sendall(head_of(body) + body)
            until(lambda: engine.begun == 1)
            assert len(state.workers.tickets) == 1
            [ticket] = state.workers.tickets
        until(lambda: ticket.reason_to_stop() is not None)
        engine.open.set()
        until(lambda: not state.workers.tickets)
        assert engine.begun == 1
        assert healthy(url)


def test_a_client_that_leaves_in_its_body_costs_nothing():
    """A connection that closes before its body is complete leaves no work behind."""
    with running(ServerSettings(), tiny_reader()) as (url, state):
        with connect(url) as client:
            client.sendall(head_of(b" " * 100) + b"{")
        assert healthy(url)
        assert not state.workers.tickets


def test_a_slow_client_is_cut_off():
    """A body that does not arrive in time gets 408, and meanwhile others are served."""
    with running(ServerSettings(body_timeout=0.5), tiny_reader()) as (url, _), connect(url) as client:
        client.sendall(head_of(b" " * 100) + b"{")
        with connect(url) as other:
            # In one piece: on a busy machine half a second may pass between the head and the body of an httpx request.
            body = json.dumps(BODY).encode()
            other.sendall(head_of(body) + body)
            assert b" 200 " in other.recv(1000)
        assert get(f"{url}/healthz").status_code == 200
        assert b" 408 " in client.recv(1000)


def test_a_client_that_does_not_read_delays_nobody():
    """While one client takes nothing of its stream, others get their answers."""
    with running(ServerSettings(), tiny_reader()) as (url, _), connect(url) as client:
        body = json.dumps({**BODY, "stream": True}).encode()
        client.sendall(head_of(body) + body)
        assert healthy(url)


@pytest.mark.parametrize("stream", [False, True])
def test_a_time_out_stops_the_work(stream: bool):
    """A request whose time is up gets 504, as an event where it streams, and no further pass is run for it."""
    reader, engine = held_reader()
    many = {"items": [f"thing {one}" for one in range(30)], "by": "size", "stream": stream}
    with running(ServerSettings(), reader) as (url, state):
        engine.open.clear()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(httpx.post, f"{url}/v1/rank", json=many, timeout=PATIENCE)
            until(lambda: engine.begun == 1)
            [ticket] = state.workers.tickets
            ticket.deadline = 0.0
            engine.open.set()
            reply = future.result(PATIENCE)
        if stream:
            assert '"status":504' in reply.text.split("event: error")[1]
        else:
            assert reply.status_code == 504
            assert reply.json()["error"]["type"] == "timed_out"
        until(lambda: not state.workers.tickets)
        assert engine.begun == 1


def test_a_time_out_stops_work_that_reads_nothing(monkeypatch: pytest.MonkeyPatch):
    """A method that computes without reading, such as a long fit, is stopped when its time is up, and its thread is
    free again."""

    def fit_for_ever(*_: Any, **__: Any) -> None:
        while True:
            check()

    with running(ServerSettings(timeout=0.2, concurrency=1), tiny_reader()) as (url, state):
        with monkeypatch.context() as patch:
            patch.setattr("ccrank.request.RankRequest.run", fit_for_ever)
            reply = httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE)
        assert reply.status_code == 504
        until(lambda: not state.workers.tickets)
        state.workers.settings = replace(state.workers.settings, timeout=PATIENCE)
        other = httpx.post(f"{url}/v1/rank", json={**BODY, "method": "length"}, timeout=PATIENCE)
        assert other.status_code == 200


def test_a_full_queue_refuses_with_retry_after():
    """Beyond the queue, requests get 429 with Retry-After and /readyz says so; those that were let in are answered."""
    reader, engine = held_reader()
    with (
        running(ServerSettings(concurrency=1, queue=1), reader) as (url, state),
        ThreadPoolExecutor(2) as pool,
    ):
        engine.open.clear()
        futures = [pool.submit(httpx.post, f"{url}/v1/rank", json=BODY, timeout=PATIENCE) for _ in range(2)]
        until(lambda: len(state.workers.tickets) == 2)
        reply = httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE)
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) > 0
        streamed = httpx.post(f"{url}/v1/rank", json={**BODY, "stream": True}, timeout=PATIENCE)
        assert streamed.status_code == 429
        assert get(f"{url}/readyz").status_code == 503
        assert get(f"{url}/healthz").status_code == 200
        engine.open.set()
        assert [one.result(PATIENCE).status_code for one in futures] == [200, 200]
        assert get(f"{url}/readyz").status_code == 200


@pytest.mark.parametrize(
    ("error", "status"), [(MemoryError(), 503), (ZeroDivisionError("text of an item"), 500)]
)
def test_a_failing_pass_fails_its_request_only(error: BaseException, status: int):
    """A pass that fails, for lack of memory or by a bug, gives its request an error; the next one is answered."""
    reader, engine = held_reader()
    with running(ServerSettings(), reader) as (url, _):
        engine.error = error
        reply = httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE)
        assert reply.status_code == status
        assert "text of an item" not in reply.text
        streamed = httpx.post(f"{url}/v1/rank", json={**BODY, "stream": True}, timeout=PATIENCE)
        assert f'"status":{status}' in streamed.text
        engine.error = None
        assert healthy(url)


def test_memory_that_runs_out_halves_the_pass(monkeypatch: pytest.MonkeyPatch):
    """When a pass does not fit into memory, smaller passes give every request its answer."""
    loaded = tiny_model("llama", max_position_embeddings=512)
    reader = Reader(loaded, batch_tokens=512)
    run = type(reader.engine)._read

    def with_little_memory(self: Any, layout: Any, *more: Any) -> None:
        if layout.tokens.size > 64:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        run(self, layout, *more)

    monkeypatch.setattr(type(reader.engine), "_read", with_little_memory)
    with running(ServerSettings(), reader) as (url, _), ThreadPoolExecutor(4) as pool:
        bodies = [{**BODY, "items": [f"thing {one}{place}" for one in range(20)]} for place in range(4)]
        replies = list(
            pool.map(lambda body: httpx.post(f"{url}/v1/rank", json=body, timeout=PATIENCE), bodies)
        )
    assert [one.status_code for one in replies] == [200] * 4


def test_a_dead_scheduler_is_reported(monkeypatch: pytest.MonkeyPatch):
    """If the thread that runs the passes is killed, requests get an error at once, and /healthz says that the process
    must be restarted."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    reader, engine = held_reader()
    with running(ServerSettings(), reader) as (url, _):
        engine.error = SystemExit()
        assert httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE).status_code >= 500
        until(lambda: get(f"{url}/healthz").status_code == 503)
        assert get(f"{url}/readyz").json()["reasons"] == ["model failed"]
        assert httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE).status_code == 503


def test_a_pass_that_never_ends_is_reported():
    """While requests wait and no pass ends, /healthz says that the process must be restarted; also when the request
    is gone, and until a pass ends. A server that is idle is healthy."""
    reader, engine = held_reader()
    with running(ServerSettings(timeout=0.5), reader) as (url, _):
        assert get(f"{url}/healthz").status_code == 200
        engine.open.clear()
        try:
            assert httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE).status_code == 504
            until(lambda: get(f"{url}/healthz").status_code == 503)
            assert "passes stalled" in get(f"{url}/healthz").json()["reasons"]
        finally:
            engine.open.set()
        until(lambda: get(f"{url}/healthz").status_code == 200)


def test_a_worker_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch):
    """Work that does not end when it must, as if it waited for a lock for ever, is a reason to restart the process."""
    monkeypatch.setattr(worker_pool, "MAX_OVERDUE_SECONDS", 0.2)
    released = threading.Event()
    with (
        running(ServerSettings(timeout=0.2), tiny_reader()) as (url, _),
        ThreadPoolExecutor(1) as pool,
        monkeypatch.context() as patch,
    ):
        patch.setattr("ccrank.request.RankRequest.run", lambda *_, **__: released.wait(PATIENCE))
        asked = pool.submit(httpx.post, f"{url}/v1/rank", json=BODY, timeout=PATIENCE)
        try:
            until(lambda: get(f"{url}/healthz").json()["reasons"] == ["worker stuck"])
        finally:
            released.set()
        asked.result(PATIENCE)
        until(lambda: get(f"{url}/healthz").status_code == 200)


def test_two_servers_share_a_cache(tmp_path: Any):
    """Two servers that write one cache at the same time both answer as one without a cache does."""
    expected = [
        [one["item"] for one in httpx_items(tiny_reader(), {**BODY, "by": by})]
        for by in ("size", "age", "weight")
    ]
    readers = [
        Reader(tiny_model("llama", max_position_embeddings=512), cache=ReadingCache(tmp_path))
        for _ in range(2)
    ]
    with (
        running(ServerSettings(), readers[0]) as (first, _),
        running(ServerSettings(), readers[1]) as (second, _),
        ThreadPoolExecutor(6) as pool,
    ):
        asked = [(url, {**BODY, "by": by}) for by in ("size", "age", "weight") for url in (first, second)]
        replies = list(
            pool.map(lambda one: httpx.post(f"{one[0]}/v1/rank", json=one[1], timeout=PATIENCE), asked)
        )
    found = [[one["item"] for one in reply.json()["items"]] for reply in replies]
    assert found == [order for order in expected for _ in range(2)]


def httpx_items(reader: Reader, body: dict[str, Any]) -> list[dict[str, Any]]:
    with running(ServerSettings(), reader) as (url, _):
        items: list[dict[str, Any]] = httpx.post(f"{url}/v1/rank", json=body, timeout=PATIENCE).json()[
            "items"
        ]
    return items


def test_a_damaged_cache_changes_no_answer(tmp_path: Any):
    """A server whose cache is damaged while it runs answers as before."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512), cache=ReadingCache(tmp_path))
    with running(ServerSettings(), reader) as (url, _):
        first = httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE).json()["items"]
        for path in tmp_path.iterdir():
            content = bytearray(path.read_bytes())
            content[100:4000] = b"\x5a" * len(content[100:4000])
            path.write_bytes(content)
        assert httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE).json()["items"] == first
