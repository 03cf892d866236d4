"""Requests made to freeze the server, to fill its memory, its connections or its log, or to reach it from a page."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import httpx
import pytest
from fastapi.testclient import TestClient
from live_server import PATIENCE, running, until
from tiny import save_model, tiny_model, tiny_reader

from ccrank import fit
from ccrank.server.app import (
    MAX_ALIKE,
    SPARE_FILES,
    BoundedConnection,
    Throttle,
    allowed_connections,
    create_app,
)
from ccrank.server.middleware import allowed_hosts
from ccrank.server.settings import ServerSettings
from ccrank.server.work.open_models import open_readers
from ccrank.util.cancellation import check

JSON = {"content-type": "application/json"}
BODY: dict[str, Any] = {"items": ["Russia", "Chad", "Peru"], "by": "size"}
FULL = 7_900_000
"""Bytes of a body that is just small enough."""


def filled(start: bytes, unit: bytes, end: bytes, size: int = FULL) -> bytes:
    return start + (unit * (size // len(unit))).rstrip(b",") + end


def numbered(start: bytes, unit: bytes, end: bytes, count: int) -> bytes:
    return start + b",".join(unit % number for number in range(count)) + end


RANK, RERANK = b'{"by":"size","method":"length",', b'{"query":"q",'
BODIES: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: filled(RERANK + b'"documents":[', b"1,", b"]}"),
    "some numbers": lambda: filled(RERANK + b'"documents":[', b"1,", b"]}", 200_000),
    "lists": lambda: filled(RANK + b'"items":[', b"[],", b"]}"),
    "objects": lambda: filled(RERANK + b'"documents":[', b"{},", b"]}"),
    "texts": lambda: filled(RANK + b'"items":[', b'"a",', b"]}"),
    "poles": lambda: filled(RANK + b'"items":["a","b"],"poles":[', b"1,", b"]}", 200_000),
    "quotation marks": lambda: b'"' * FULL,
    "escapes": lambda: filled(RANK + b'"items":["', rb"\\\"", b'","b"]}'),
    "brackets": lambda: b"[" * FULL,
    "deep objects": lambda: filled(b"", b'{"a":', b"1" + b"}" * 100),
    "unknown fields": lambda: numbered(b"{", b'"k%d":1', b"}", 90_000),
    "options": lambda: numbered(RANK + b'"items":["a","b"],"options":{', b'"k%d":{}', b"}}", 40_000),
    "labels of strangers": lambda: numbered(
        RANK + b'"items":["a","b"],"labels":{', b'"k%d":1', b"}}", 90_000
    ),
    "repeated labels": lambda: filled(RANK + b'"items":["a","b"],"labels":[', b'["a","b"],', b"]}", 300_000),
    "long numbers": lambda: filled(b"[", b"9" * 4200 + b",", b"]"),
    "a long field": lambda: filled(b'{"', b"k", b'":1}'),
    "many long items": lambda: numbered(RANK + b'"items":[', b'"%d ' + b"ab " * 240 + b'"', b"]}", 9900),
    "combining marks": lambda: numbered(
        RANK + b'"items":[', b'"%d' + "\u0301\u0323".encode() * 9000 + b'"', b"]}", 20
    ),
    "texts to score": lambda: filled(b'{"items":[', b'"a",', b"]}"),
    "long texts to score": lambda: numbered(b'{"items":[', b'"%d ' + b"ab " * 240 + b'"', b"]}", 9900),
    "a long scale": lambda: filled(b'{"items":["a"],"scale":"', b"k", b'"}'),
    "a long criterion": lambda: json.dumps({"items": ["a", "b"], "by": "a " * 9999}).encode(),
    "UTF-16": lambda: json.dumps({"items": ["a", '\\"', *"," * 9]}).encode("utf-16"),
}


def peak_memory(begin: bool = False) -> int:
    """The largest number of kB that this process held since the last call with `begin`; 0 where the system does not
    say. Not `ru_maxrss`, which is that of all tests before."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    if begin:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text())
    assert found
    return int(found[1])


@pytest.mark.parametrize("name", BODIES)
def test_no_body_holds_the_event_loop_or_fills_the_memory(name: str, tmp_path: Path):
    """Every body of at most 8 MB has an answer for 2 s of the event loop's processor time and 500 MB of memory."""
    body = BODIES[name]()
    fit(BODY["items"], "size", model=tiny_reader()).save(tmp_path / "size.scale")
    app = create_app(ServerSettings(scales=(f"size={tmp_path / 'size.scale'}",)), {"tiny": tiny_reader()})
    assert len(body) <= ServerSettings().max_body_bytes

    async def post() -> tuple[float, list[int]]:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENCE) as client,
        ):
            start = time.thread_time()
            paths = ("/v1/rank", "/v1/rerank", "/v1/score", "/v1/question", "/v1/understand")
            replies = [await client.post(path, content=body, headers=JSON) for path in paths]
            return time.thread_time() - start, [reply.status_code for reply in replies]

    before = peak_memory(begin=True)
    seconds, statuses = asyncio.run(post())
    assert set(statuses) <= {200, 400, 404, 413, 422}  # 404: an unknown scale
    assert seconds < 2
    assert peak_memory() - before < 500_000  # kB


def test_labels_need_few_levels(client: TestClient):
    """Values in more than 16 levels are refused, whether or not Python could parse them; orders of labels are not."""
    assert (
        client.post("/v1/rank", json={**BODY, "labels": {"orders": [["Russia", "Chad"]]}}).status_code == 200
    )
    for depth in (14, 15, 900, 100_000):
        body = b'{"items":["a","b"],"by":"x","labels":' + b"[" * depth + b"]" * depth + b"}"
        assert client.post("/v1/rank", content=body, headers=JSON).status_code in (400, 422)


def test_bodies_together_are_bounded():
    """When large bodies hold all the memory that they may, a further large one is refused and a small one is not."""
    settings = ServerSettings(max_held_bytes=100_000)
    with running(settings, tiny_reader()) as (url, _):
        half = b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-length: 200000\r\n\r\n" + b" " * 99_000
        with connect(url) as first:
            first.sendall(half)
            large = {**BODY, "context": "word " * 14_000}

            def refused() -> bool:
                return httpx.post(f"{url}/v1/rank", json=large, timeout=PATIENCE).status_code == 503

            until(refused)
            assert httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE).status_code == 200
        until(lambda: not refused())


@pytest.mark.parametrize(
    ("bound", "more", "allowed", "refused"),
    [
        (
            "127.0.0.1",
            (),
            ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "LOCALHOST"],
            ["10.0.0.1"],
        ),
        ("192.168.1.5", (), ["192.168.1.5", "localhost"], ["192.168.1.6", "a.example"]),
        (
            "0.0.0.0",
            (),
            ["10.1.2.3:80", "[fe80::1]"],
            ["a.example", "1.2.3.4.a.example", "localhost.a.example"],
        ),
        ("::1", ("A.example",), ["a.example:8000", "[::1]"], ["b.example", "", "b.a.example"]),
        ("127.0.0.1", ("*",), ["a.example"], []),
    ],
)
def test_only_known_hosts_are_answered(
    bound: str, more: tuple[str, ...], allowed: list[str], refused: list[str]
):
    """A page whose name was pointed at this machine can read nothing: its requests name another host."""
    settings = ServerSettings(hosts=allowed_hosts(bound, more))
    with TestClient(create_app(settings, {"tiny": tiny_reader()}), "http://localhost") as client:
        for path in ("/v1/models", "/", "/reports/", "/healthz"):
            for host in allowed:
                assert client.get(path, headers={"host": host}).status_code == 200
            for host in refused:
                assert client.get(path, headers={"host": host}).status_code == 421


def test_pages_of_other_sites_cannot_send_requests():
    """A request with another origin, or of a type that a form can have, is refused; those of the page are not."""
    settings = ServerSettings(hosts=("localhost", "a.example"), origins=("a.example",))
    with TestClient(create_app(settings, {"tiny": tiny_reader()}), "http://localhost:8000") as client:
        for origin in ("http://evil.example", "null", "http://localhost:3000", "https://localhost", "x"):
            assert client.post("/v1/rank", json=BODY, headers={"origin": origin}).status_code == 403
        for origin in ("http://localhost:8000", "https://a.example", "https://a.example:444"):
            assert client.post("/v1/rank", json=BODY, headers={"origin": origin}).status_code == 200
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
        ):
            for path in ("/v1/rank", "/v2/rerank", "/v1/score", "/v1/question", "/v1/understand"):
                content = json.dumps(BODY).encode()
                assert client.post(path, content=content, headers={"content-type": kind}).status_code == 415
        reply = client.post(
            "/v1/rank", content=json.dumps(BODY), headers={"content-type": "application/JSON; a=b"}
        )
        assert reply.status_code == 200


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)


def closed(one: socket.socket) -> bool:
    """Whether the server has closed a connection; what it sent before is read."""
    one.setblocking(False)
    try:
        while one.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
        b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a second head", "a body that was refused"],
)
def test_a_head_must_come_in_time(sent: bytes):
    """A connection whose next head does not come is closed, also after an answer, and however slowly it drips."""
    with running(ServerSettings(head_timeout=0.5), tiny_reader()) as (url, _), connect(url) as client:
        if sent:
            client.sendall(sent)

        def ends() -> bool:
            if sent:
                try:
                    client.send(b"x")
                except OSError:
                    return True
            return closed(client)

        until(ends)


def test_a_client_that_never_reads_is_cut_off():
    """A connection whose client takes nothing of a large answer is closed, so that it does not count for ever."""
    with running(ServerSettings(write_timeout=0.5), tiny_reader()) as (url, _), connect(url) as client:
        request = b"GET /page/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client.setblocking(False)

        def ends() -> bool:
            try:
                client.send(request)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        until(ends)


def test_connections_are_bounded_and_the_oldest_gives_way():
    """With more connections than there may be, those that wait longest are closed, and new requests are answered."""
    with running(ServerSettings(max_connections=20, head_timeout=PATIENCE), tiny_reader()) as (url, _):
        held = [connect(url) for _ in range(60)]
        for one in held:
            one.sendall(b"GET / HTTP/1.1\r\nX: ")
        until(lambda: sum(map(closed, held[:40])) == 40)
        assert httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
        assert not closed(held[-1])
        for one in held:
            one.close()


def test_files_are_left_for_other_things(monkeypatch: pytest.MonkeyPatch):
    """Where a process may open few files, there are fewer connections than that."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert allowed_connections(ServerSettings()) == 1024 - SPARE_FILES


def test_heads_and_chunks_are_bounded():
    """Many headers and many tiny chunks are refused; a body in a thousand chunks is not."""
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"

    def events(content: bytes) -> Iterator[Any]:
        connection = BoundedConnection()
        connection.receive_data(content)
        while (event := connection.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
            yield event

    assert len([*events(head + b"\r\n" + b"1\r\n \r\n" * 900)]) > 900
    with pytest.raises(h11.RemoteProtocolError):
        list(events(head + b"\r\n" + b"1\r\n \r\n" * 2000))
    with pytest.raises(h11.RemoteProtocolError):
        list(events(head + b"a: b\r\n" * 200 + b"\r\n"))


def test_a_client_cannot_fill_the_log(caplog: pytest.LogCaptureFixture):
    """Of many bad requests, the log has a few and the number of the others; what is below a warning is all there."""
    throttle = Throttle()
    records = [
        logging.LogRecord("x", logging.WARNING, "", 0, "bad request %d", (n,), None) for n in range(1000)
    ]
    assert sum(map(throttle.filter, records)) == MAX_ALIKE
    assert throttle.filter(logging.LogRecord("x", logging.WARNING, "", 0, "another", None, None))
    assert all(
        throttle.filter(logging.LogRecord("x", logging.INFO, "", 0, "answer", None, None)) for _ in range(99)
    )
    throttle._began -= 100
    assert throttle.filter(records[0])
    assert "and 980 more" in records[0].getMessage()


def test_the_path_of_a_local_model_is_no_answer(tmp_path: Any):
    """Neither the list of models, nor an answer, nor a mistake says where a model lies on the server."""
    folder = save_model(tiny_model("llama", max_position_embeddings=512), tmp_path / "secret" / "small-model")
    readers = open_readers(ServerSettings(models=(str(folder), f"mine={folder}"), cache=False))
    assert [*readers] == ["small-model", "mine"]
    with TestClient(create_app(ServerSettings(), readers), "http://localhost") as client:
        bodies: list[dict[str, Any]] = [BODY, {**BODY, "model": "mine"}, {**BODY, "model": "none"}]
        bodies += [{**BODY, "method": "margin"}, {**BODY, "context": "long " * 900}, {**BODY, "stream": True}]
        bodies += [{**BODY, "method": "ccs", "options": {"layer": "99"}}]
        answers = [client.post(path, json=body) for body in bodies for path in ("/v1/rank", "/v1/question")]
        for answer in [*answers, client.get("/v1/models"), client.get("/readyz"), client.get("/metrics")]:
            assert "secret" not in answer.text
        assert answers[2].json()["model"] == "mine"


STORM = int(os.environ.get("CCRANK_STORM", "300"))
"""Cancellations."""


def test_a_storm_of_cancellations():
    """However many clients leave at any moment, no lock, thread, ticket or pass is left behind: the server answers."""
    rng = random.Random(4)
    body = json.dumps({**BODY, "items": [f"thing {one}" for one in range(12)]}).encode()
    streamed = json.dumps(
        {**BODY, "stream": True, "partial": True, "labels": {"Peru": 2, "Chad": 1}}
    ).encode()
    settings = ServerSettings(concurrency=8, queue=64, max_connections=500)
    with running(settings, tiny_reader()) as (url, state):
        threads = threading.active_count()
        left = iter(range(STORM))

        def leave() -> None:
            for number in left_safely(left):
                content = (body, streamed)[number % 2]
                path = ("/v1/rank", "/v1/question")[number % 7 == 6 and number % 2 == 0]
                with connect(url) as client:
                    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                    client.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
                    time.sleep(rng.random() ** 3 * 0.02)

        clients = [threading.Thread(target=leave) for _ in range(8)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        until(lambda: not state.workers.tickets)
        assert httpx.post(f"{url}/v1/rank", json=BODY, timeout=PATIENCE).status_code == 200
        assert httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
        assert threading.active_count() <= threads + settings.concurrency + 8
        until(lambda: not any(lock.locked() for lock in state.lists._reading.values()))


LOCK = threading.Lock()


def left_safely(numbers: Iterator[int]) -> Iterator[int]:
    """The numbers, each to one thread."""
    while True:
        with LOCK:
            number = next(numbers, None)
        if number is None:
            return
        yield number


def test_a_stream_that_is_cut_by_the_end_of_the_server_says_so(monkeypatch: pytest.MonkeyPatch):
    """A stream that is not finished when the time to drain is over, whether it is worked on or waits, ends with an
    event `error`, status 503."""
    begun = threading.Event()

    def work_for_ever(*_: Any, **__: Any) -> None:
        begun.set()
        while True:
            check()
            time.sleep(0.01)

    monkeypatch.setattr("ccrank.request.RankRequest.run", work_for_ever)
    found: list[str] = []

    def ask(url: str) -> None:
        try:
            found.append(httpx.post(f"{url}/v1/rank", json={**BODY, "stream": True}, timeout=PATIENCE).text)
        except httpx.HTTPError as error:
            found.append(repr(error))

    with running(ServerSettings(drain=2, concurrency=1), tiny_reader()) as (url, state):
        asked = [threading.Thread(target=ask, args=(url,)) for _ in range(3)]
        for one in asked:
            one.start()
        assert begun.wait(PATIENCE)
        until(lambda: len(state.workers.tickets) == 3)
        state.drain()
    for one in asked:
        one.join(PATIENCE)
    assert len(found) == 3
    for text in found:
        assert "event: error" in text
        assert '"status":503' in text
