"""`ccrank serve` as a process: it starts, says where it listens, and ends as it should."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import PATIENCE, until
from tiny import save_model, tiny_model

from ccrank.cli.commands.serve import KEYS

BODY = {"items": [f"thing {one}" for one in range(40)], "by": "size"}
Start = Callable[..., tuple[subprocess.Popen, str]]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama, saved as any model is."""
    return save_model(tiny_model("llama", max_position_embeddings=512), tmp_path_factory.mktemp("model"))


@pytest.fixture
def start(model_folder: Path) -> Iterator[Start]:
    """Starts servers that end with the test; gives (process, address)."""
    made: list[subprocess.Popen] = []

    def serve(*arguments: str) -> tuple[subprocess.Popen, str]:
        command = [sys.executable, "-m", "ccrank", "serve", "--port", "0", "-m", f"tiny={model_folder}"]
        process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
        made.append(process)
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"listening on (\S+)", line):
                return process, found[1]
        raise AssertionError("".join(lines))

    yield serve
    for process in made:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 200
    except httpx.TransportError:
        return False


def test_sigterm_under_load_finishes_what_was_begun(start: Start):
    """With requests in progress, SIGTERM lets each of them have its answer, takes no new ones, and the process exits
    with 0."""
    process, url = start("--drain", str(PATIENCE))
    until(lambda: ready(url))

    def ask(place: int) -> Any:
        items = [f"thing {place} {one}" for one in range(40)]
        return httpx.post(f"{url}/v1/rank", json={**BODY, "items": items}, timeout=PATIENCE)

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(ask, place) for place in range(8)]

        def active() -> bool:
            text = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
            done = re.search(r"ccrank_requests_total\{[^}]*/v1/rank[^}]*\} (\d+)", text)
            count = re.search(r"^ccrank_requests_active (\d+)", text, re.MULTILINE)
            assert count is not None
            return int(float(count[1])) + (int(float(done[1])) if done else 0) == 8

        until(active)
        process.send_signal(signal.SIGTERM)
        assert [one.result(PATIENCE).status_code for one in futures] == [200] * 8
    assert process.wait(PATIENCE) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/healthz", timeout=PATIENCE)


def test_sigterm_ends_even_what_takes_too_long(start: Start):
    """After the time to drain, work that is not finished is stopped, and the process still exits with 0."""
    process, url = start("--drain", "1")
    until(lambda: ready(url))
    body = {
        **BODY,
        "items": [f"thing {one} " * 10 for one in range(9000)],
    }  # minutes, or seconds on a fast machine
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(httpx.post, f"{url}/v1/rank", json=body, timeout=PATIENCE)
        until(lambda: "ccrank_requests_active 1" in httpx.get(f"{url}/metrics", timeout=PATIENCE).text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        with suppress(httpx.TransportError):  # or its connection was closed
            assert future.result(PATIENCE).status_code == 503


def refusal(*arguments: str, **environment: str) -> str:
    """What a server that does not start says."""
    done = subprocess.run(
        [sys.executable, "-m", "ccrank", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_a_server_that_cannot_start_says_why(tmp_path: Path, model_folder: Path):
    """A port in use, a key that no header can hold, and a truncated model are named, with exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot listen" in refusal("--port", port, "-m", str(model_folder))
    assert "API key" in refusal("--port", "0", "-m", str(model_folder), **{KEYS: "a key"})
    damaged = tmp_path / "model"
    damaged.mkdir()
    for path in model_folder.iterdir():
        content = path.read_bytes()
        (damaged / path.name).write_bytes(
            content[: len(content) // 2] if path.suffix == ".safetensors" else content
        )
    assert "damaged or incomplete" in refusal("--port", "0", "-m", str(damaged))
