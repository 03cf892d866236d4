"""Ranking in front of a model's server: the same rankings, and clear errors when that server fails."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from completion_server import PATIENCE, StandIn, serving
from fastapi.testclient import TestClient
from live_server import until
from tiny import tiny_model, tiny_reader

from ccrank.api import rank, rank_tasks
from ccrank.errors import CcrankError
from ccrank.methods.registry import methods_without_states
from ccrank.models import Reader
from ccrank.models.remote import client as remote_client
from ccrank.models.remote.client import REQUESTS_VARIABLE
from ccrank.reader_options import ReaderOptions
from ccrank.server.app import create_app
from ccrank.server.routes.ranking import relevance_scores
from ccrank.server.settings import ServerSettings
from ccrank.server.work import open_models
from ccrank.server.work.open_models import open_readers
from ccrank.task import Criterion, Task

ITEMS = ["Russia", "Monaco", "Chad"]
BODY: dict[str, Any] = {"items": ITEMS, "by": "size", "poles": ["small", "large"], "method": "poles"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed requests are sent again at once, and whether a server is ready is asked each time, without a hurry."""
    monkeypatch.setattr(remote_client, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(open_models, "READY_SECONDS", 0.0)
    monkeypatch.setattr(open_models, "READY_TIMEOUT", PATIENCE)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A server of the tiny model."""
    with serving(tiny_reader(), "vllm") as one:
        yield one


def app_of(one: StandIn, **more: Any) -> TestClient:
    """A client of a ranking server in front of it, without a cache."""
    return TestClient(
        create_app(ServerSettings(models=(f"openai:{one.url}",), cache=False, **more)), "http://localhost"
    )


@pytest.fixture
def client(stand_in: StandIn) -> Iterator[TestClient]:
    with app_of(stand_in) as client:
        yield client


def scores_of(reply: Any) -> dict[str, float]:
    assert reply.status_code == 200, reply.text
    return {one["item"]: one["score"] for one in reply.json()["items"]}


def local_scores(items: list[str], reader: Reader) -> dict[str, float]:
    found = rank(items, "size", poles=("small", "large"), model=reader, method="poles")
    return dict(zip(found.task.items, found.scores, strict=True))


def test_rankings_are_those_of_the_loaded_model(client: TestClient, stand_in: StandIn) -> None:
    """By pole words, by prompts and by relevance; the reply has the model's name and not its address."""
    reply = client.post("/v1/rank", json=BODY)
    assert scores_of(reply) == pytest.approx(local_scores(ITEMS, tiny_reader()), abs=1e-3)
    assert reply.json()["model"] == "tiny"
    reply = client.post("/v1/rank", json={**BODY, "method": "prompt-pair", "model": "tiny"})
    task = Task(Criterion("size", poles=("small", "large")), tuple(ITEMS))
    [expected] = rank_tasks([task], tiny_reader(), "prompt-pair")
    assert scores_of(reply) == pytest.approx(dict(zip(ITEMS, expected.scores, strict=True)), abs=1e-3)
    documents = ["The tower is tall.", "A fox jumps over the dog.", "Chad is a country."]
    reply = client.post("/v1/rerank", json={"query": "how tall is it?", "documents": documents})
    found = sorted((one["index"], one["relevance_score"]) for one in reply.json()["results"])
    expected_scores, _ = relevance_scores("how tall is it?", documents, tiny_reader())
    np.testing.assert_allclose([score for _, score in found], expected_scores, atol=1e-3)
    [about] = client.get("/v1/models").json()["data"]
    assert (about["id"], about["remote"], about["layers"]) == ("tiny", True, None)
    assert about["methods"] == methods_without_states()
    assert stand_in.url not in client.get("/v1/models").text + reply.text


def test_progress_is_streamed(client: TestClient) -> None:
    """As server-sent events that end with the ranking."""
    text = client.post("/v1/rank", json={**BODY, "stream": True}).text
    kinds = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert kinds[-1] == "result"
    assert "progress" in kinds


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("/v1/rank", {"method": "auto"}),
        ("/v1/rank", {"method": "triplet"}),
        ("/v1/rank", {"method": "auto", "stream": True, "partial": True}),
        ("/v1/rank", {"method": "auto", "labels": {"Russia": 3, "Chad": 1}}),
        ("/v1/question", {}),
    ],
)
def test_what_needs_states_is_refused(path: str, changes: dict[str, Any], client: TestClient) -> None:
    """With the methods that can be used."""
    body = {**BODY, **changes}
    if path == "/v1/question":
        del body["method"]
    reply = client.post(path, json=body)
    assert reply.status_code == (
        200 if body.get("stream") else 422
    )  # a stream has its status before it begins
    assert "tiny is behind a server" in reply.text
    assert "--method poles" in reply.text


def test_concurrent_requests_share_the_limit(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve clients at once get their own rankings, and the model's server has no more requests than it should."""
    monkeypatch.setenv(REQUESTS_VARIABLE, "3")
    names = [
        "Peru",
        "Canada",
        "Brazil",
        "fox",
        "dog",
        "tower",
        "bridge",
        "red",
        "blue",
        "warm",
        "cold",
        "rich",
    ]
    with app_of(stand_in) as client, ThreadPoolExecutor(len(names)) as pool:
        bodies = [{**BODY, "items": [*ITEMS, name]} for name in names]
        replies = list(pool.map(lambda body: client.post("/v1/rank", json=body), bodies))
    assert stand_in.most_running <= 3
    for body, reply in zip(bodies, replies, strict=True):
        assert scores_of(reply) == pytest.approx(local_scores(body["items"], tiny_reader()), abs=1e-3)


@pytest.mark.parametrize("fault", ["500", "drop", "no JSON"])
def test_a_failing_server_is_503_and_passes(fault: str, client: TestClient, stand_in: StandIn) -> None:
    """A model's server that fails makes an error that says so, without its address; when it works again, so does the
    ranking server, whose own health is not at stake."""
    stand_in.faults = [fault] * 1000
    reply = client.post("/v1/rank", json=BODY)
    assert reply.status_code == 503
    assert reply.json()["error"]["type"] == "model_unavailable"
    assert reply.headers["retry-after"]
    assert stand_in.url.removeprefix("http://").partition("/")[0] not in reply.text
    events = client.post("/v1/rank", json={**BODY, "stream": True}).text
    assert '"status":503' in events.replace(" ", "")
    assert client.get("/healthz").status_code == 200
    stand_in.faults = []
    assert client.post("/v1/rank", json=BODY).status_code == 200


def test_a_server_that_is_gone_is_503_and_not_ready() -> None:
    """A ranking server whose model's server is down is alive and not ready."""
    with serving(tiny_reader(), "vllm") as one:
        client = app_of(one)
        client.__enter__()
        assert client.get("/readyz").json() == {"ready": True, "reasons": []}
    try:
        assert client.post("/v1/rank", json=BODY).status_code == 503
        reply = client.get("/readyz")
        assert (reply.status_code, reply.json()["reasons"]) == (503, ["model failed"])
        assert client.get("/healthz").status_code == 200
    finally:
        client.__exit__(None, None, None)


def test_a_server_that_hangs_is_504(stand_in: StandIn) -> None:
    """The time-out of a request holds even while the model's server says nothing, and its place is free again."""
    with app_of(stand_in, timeout=1.0) as client:
        stand_in.faults = ["slow"]
        reply = client.post("/v1/rank", json=BODY)
        assert (reply.status_code, reply.json()["error"]["type"]) == (504, "timed_out")
        state = client.app.state.server  # type: ignore[attr-defined]
        until(lambda: not state.workers.tickets)


def test_a_wrong_key_is_502(client: TestClient, stand_in: StandIn) -> None:
    """A model's server that refuses this one is no fault of the client, who does not learn what was said."""
    stand_in.key = "another"
    reply = client.post("/v1/rank", json=BODY)
    assert (reply.status_code, reply.json()["error"]["type"]) == (502, "model_server_error")
    assert "is no key" not in reply.text


def test_a_text_that_the_server_refuses_is_422(client: TestClient, stand_in: StandIn) -> None:
    """What the model's server says of the request itself is passed on."""
    reply = client.post("/v1/rank", json={**BODY, "items": ["a tower " * 600, *ITEMS]})
    assert reply.status_code == 422
    assert "exceeds the context of 512 tokens" in reply.text
    assert stand_in.url not in reply.text


def test_another_model_is_noticed_and_read(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the model's server has other weights, one request fails, and the next has the scores of the new model."""
    monkeypatch.setattr(open_models, "CHECK_SECONDS", 0.0)
    with app_of(stand_in) as client:
        assert client.post("/v1/rank", json=BODY).status_code == 200
        stand_in.reader = Reader(tiny_model("llama", seed=1, max_position_embeddings=512))
        assert client.post("/v1/rank", json=BODY).status_code == 503
        expected = local_scores(ITEMS, stand_in.reader)
        assert scores_of(client.post("/v1/rank", json=BODY)) == pytest.approx(expected, abs=1e-3)


def test_names_of_served_models(stand_in: StandIn) -> None:
    """A model behind a server has its own name or an alias; a = in its address is no alias; options of loading are
    refused."""
    address = f"openai:{stand_in.url.replace('http://', 'http://ada:hunter2@')}?token=a=b"
    readers = open_readers(ServerSettings(models=(address, f"mine={address}"), cache=False))
    assert [*readers] == ["tiny", "mine"]
    assert [reader.name for reader in readers.values()] == ["tiny", "mine"]
    assert all("hunter2" not in json.dumps(reader.about(), default=str) for reader in readers.values())  # type: ignore[union-attr]
    with pytest.raises(CcrankError, match="'tiny' is given twice"):
        open_readers(ServerSettings(models=(address, address), cache=False))
    with pytest.raises(CcrankError, match=r"--dtype .*is for models that ccrank loads itself"):
        open_readers(ServerSettings(models=(address,), reader=ReaderOptions(dtype="float16")))


@pytest.mark.parametrize("odd", [float("nan"), "-1.5", 7.0])
def test_a_server_whose_answers_cannot_be_used_is_502(
    odd: Any, client: TestClient, stand_in: StandIn
) -> None:
    """It is no fault of the client, and no ranking of ties."""

    def twist(path: str, found: Any) -> Any:
        for choice in found.get("choices", ()):
            numbers = choice["logprobs"]["token_logprobs"]
            choice["logprobs"]["token_logprobs"] = [None, *(odd for _ in numbers[1:])]
        return found

    stand_in.twist = twist
    reply = client.post("/v1/rank", json=BODY)
    assert (reply.status_code, reply.json()["error"]["type"]) == (502, "model_server_error")


def test_many_who_ask_whether_it_is_ready_ask_the_server_once(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a model's server drips, those who wait take the answer of the one who asks."""
    monkeypatch.setattr(open_models, "READY_SECONDS", PATIENCE)
    monkeypatch.setattr(open_models, "READY_TIMEOUT", 0.5)
    with app_of(stand_in) as client, ThreadPoolExecutor(20) as pool:
        stand_in.dripping = "/v1/models"
        replies = list(pool.map(lambda _: client.get("/readyz"), range(20)))
    assert [reply.json()["reasons"] for reply in replies] == [["model failed"]] * 20
    assert stand_in.dripped == ["/v1/models"]


def test_sigterm_ends_a_server_whose_upstream_drips(stand_in: StandIn) -> None:
    """While requests and /readyz wait for a model's server that sends byte after byte, SIGTERM ends the process when
    it has drained, and with 0."""
    command = [sys.executable, "-m", "ccrank", "serve", "--port", "0", "--drain", "1", "--no-cache"]
    process = subprocess.Popen([*command, "-m", f"openai:{stand_in.url}"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = next(found[1] for line in process.stderr if (found := re.search(r"listening on (\S+)", line)))
        stand_in.dripping = "/v1/"
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(httpx.post, f"{url}/v1/rank", json=BODY, timeout=PATIENCE) for _ in range(3)]
            until(lambda: stand_in.drips > 0)
            asked.append(pool.submit(httpx.get, f"{url}/readyz", timeout=PATIENCE))
            until(lambda: "/v1/models" in stand_in.dripped)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
            for one in asked:
                one.exception(PATIENCE)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
