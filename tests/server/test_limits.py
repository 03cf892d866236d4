"""What the server refuses, with which status, and that it never takes more than it was asked to."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tiny import tiny_reader

from ccrank.server.app import create_app
from ccrank.server.settings import ServerSettings

BODY = {"items": ["Russia", "Chad", "Peru"], "by": "size"}


def client_of(**settings: Any) -> TestClient:
    return TestClient(create_app(ServerSettings(**settings), {"tiny": tiny_reader()}), "http://localhost")


def refused(client: TestClient, body: Any, status: int, kind: str, path: str = "/v1/rank") -> str:
    """Post and expect an error of one form; returns its message."""
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    assert reply.json()["error"]["type"] == kind
    return str(reply.json()["error"]["message"])


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"items": ["Russia"]}, "at least 2"),
        ({"items": ["Russia", "Russia "]}, "the same"),
        ({"items": ["Russia", ""]}, "empty"),
        ({"items": ["Russia", 3]}, "string"),
        ({"items": "Russia"}, "list"),
        ({"by": ""}, "at least 1"),
        ({"by": None}, "no criterion"),
        ({"by": " "}, "criterion"),
        ({"query": "big"}, "leave out by"),
        ({"poles": ["small"]}, "poles"),
        ({"poles": ["small", "small"]}, "different"),
        ({"labels": {"Atlantis": 3}}, "Atlantis"),
        ({"labels": {"Peru": float("nan")}}, "finite"),
        ({"labels": [["Peru"]]}, "at least 2"),
        ({"labels": {"Peru": 1}, "method": "pca"}, "labels"),
        ({"options": {"labels": "tasks"}}, "labels"),
        ({"method": "magic"}, "magic"),
        ({"options": {"no-such": 1}}, "no-such"),
        ({"method": "ccs", "options": {"seeds": 1000000}}, "seeds"),
        ({"method": "ccs", "options": {"epochs": "many"}}, "epochs"),
        ({"method": "ccs", "options": {"learning_rate": 10**400}}, "learning_rate"),
        ({"method": "ccs", "options": {"layer": "/etc/passwd"}}, "layer"),
        ({"method": "prompt-list", "options": {"shuffles": 10**9}}, "shuffles"),
        ({"method": "poles", "options": {"template": "../../secret"}}, "secret"),
        ({"colour": "red"}, "colour"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_mistakes_are_named(client: TestClient, more: dict[str, Any], cause: str):
    """A request with a mistake gets 422, and the message names what is wrong."""
    body = {**BODY, **more}
    reply = client.post(
        "/v1/rank", content=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    assert reply.status_code == 422, reply.text
    assert cause in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b'"text"', b"null", b"[" * 50_000, b"1" * 9000]
)
def test_a_body_that_is_no_object_is_a_client_error(client: TestClient, content: bytes):
    """Broken JSON, other JSON and bytes that are no text get 400 or 422, never 500."""
    for path in ("/v1/rank", "/v1/rerank"):
        reply = client.post(path, content=content, headers={"content-type": "application/json"})
        assert reply.status_code in (400, 422)
        assert reply.json()["error"]["message"]


def test_a_body_that_is_not_sent_as_json_is_explained(client: TestClient):
    """Broken JSON is named with its place; the body of a form, as `curl -d` sends it, with the header that it lacks."""
    broken = client.post("/v1/rank", content=b'{"by": }', headers={"content-type": "application/json"})
    assert broken.json()["error"]["message"] == "the body is not JSON: Expecting value, at character 7"
    form = {"content-type": "application/x-www-form-urlencoded"}
    reply = client.post("/v1/rank", content=json.dumps(BODY).encode(), headers=form)
    assert reply.status_code == 415
    assert "send it with the header Content-Type: application/json" in reply.json()["error"]["message"]


def test_a_text_that_is_not_unicode_is_refused(client: TestClient):
    """A lone surrogate, which JSON can spell and UTF-8 lacks, is refused with an answer that is valid JSON."""
    for content in (b'{"items":["a\\ud800","b"],"by":"size"}', b'{"items":["a","b"],"by":"size\\udfff"}'):
        reply = client.post("/v1/rank", content=content, headers={"content-type": "application/json"})
        assert reply.status_code == 422
        assert reply.json()["error"]["message"]


def test_unknown_models_are_never_opened(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    """A model that was not named at start gets 404 and nothing is loaded, not even a folder that exists."""
    monkeypatch.setattr("ccrank.models.reader.load_model", lambda *_, **__: pytest.fail("a model was opened"))
    for name in ("default", "/", ".", "bert-base-uncased"):
        assert "tiny" in refused(client, {**BODY, "model": name}, 404, "unknown_model")
    assert client.post("/v1/rank", json={**BODY, "model": "tiny"}).status_code == 200


def test_sizes_are_bounded():
    """Too many items, long items, long contexts, and large bodies get 413, with or without a content-length."""
    with client_of(max_items=3, max_characters=20, max_body_bytes=4000) as client:
        refused(client, {**BODY, "items": ["a", "b", "c", "d"]}, 413, "too_many_items")
        refused(client, {**BODY, "items": ["a", "b" * 21]}, 413, "item_too_long")
        refused(client, {**BODY, "context": "b" * 21}, 413, "text_too_long")
        refused(client, {"query": "b" * 21, "documents": ["a"]}, 413, "text_too_long", "/v1/rerank")
        refused(client, {"query": "b", "documents": ["a"] * 4}, 413, "too_many_items", "/v1/rerank")
        refused(client, {**BODY, "context": "b" * 5000}, 413, "body_too_large")
        reply = client.post(
            "/v1/rank", content=iter([b" " * 1000] * 5), headers={"content-type": "application/json"}
        )
        assert reply.status_code == 413


def test_a_ten_megabyte_item_is_refused_at_once(client: TestClient):
    """An item of 10 MB does not fit the default body; with a larger body, it is too long an item."""
    body = {**BODY, "items": ["a", "word " * 2_000_000]}
    refused(client, body, 413, "body_too_large")
    with client_of(max_body_bytes=20_000_000) as larger:
        assert "10,000,000" in refused(larger, body, 413, "item_too_long")


def test_a_long_item_within_the_limits_is_answered_or_explained():
    """With all limits lifted, an item longer than the model's window is a client error that says so."""
    with client_of(max_body_bytes=20_000_000, max_characters=20_000_000) as client:
        message = refused(client, {**BODY, "items": ["a", "word " * 5_000]}, 422, "bad_request")
        assert "window" in message


def test_methods_that_compare_all_pairs_are_bounded(client: TestClient):
    """A list for which a method would need millions of prompts is refused before any work."""
    body = {**BODY, "items": [f"item {one}" for one in range(1000)]}
    refused(client, {**body, "method": "ccs-pair"}, 413, "too_many_prompts")
    refused(client, {**body, "method": "prompt-pair", "options": {"pairs": "all"}}, 413, "too_many_prompts")
    refused(client, {**body, "method": "margin"}, 413, "too_many_items")


def test_labels_are_bounded(client: TestClient):
    """The time of a fit grows with the third power of the labels: too many are refused, before anything is read."""
    items = [f"item {one}" for one in range(1500)]
    body = {**BODY, "items": items, "labels": [items]}
    for path in ("/v1/rank", "/v1/question"):
        own = body if path == "/v1/rank" else {name: body[name] for name in ("items", "by", "labels")}
        assert "1,499 labels" in refused(client, own, 413, "too_many_labels", path)
    refused(client, {**body, "labels": {"best": items[:40], "worst": items[-40:]}}, 413, "too_many_labels")
    repeated = {**BODY, "labels": [["Peru", "Chad"]] * 1500}
    assert client.post("/v1/rank", json=repeated).status_code == 200


def test_keys():
    """With API keys, /v1 and /metrics need one of them as a bearer token; health probes and pages need none."""
    with client_of(keys=("first", "second")) as client:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic first"},
            {"Authorization": "first"},
        ):
            for path in ("/v1/rank", "/v1/rerank", "/v2/rerank"):
                reply = client.post(path, json=BODY, headers=headers)
                assert reply.status_code == 401
                assert reply.headers["www-authenticate"] == "Bearer"
            assert client.get("/metrics", headers=headers).status_code == 401
            assert client.get("/v1/models", headers=headers).status_code == 401
        for key in ("first", "second"):
            headers = {"Authorization": f"Bearer {key}"}
            assert client.post("/v1/rank", json=BODY, headers=headers).status_code == 200
            assert client.get("/metrics", headers=headers).status_code == 200
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_logs_hold_no_item(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """Neither an answer, nor a mistake, nor a failure of the server puts a text of the request into the log; with
    log_items a failure does."""

    def fail(*_: Any, **__: Any) -> None:
        raise LookupError("Zanzibar")

    for log_items in (False, True):
        caplog.clear()
        with caplog.at_level(logging.DEBUG), client_of(log_items=log_items) as client:
            body = {"items": ["Zanzibar", "Peru"], "by": "size"}
            assert client.post("/v1/rank", json=body).status_code == 200
            assert client.post("/v1/rank", json={**body, "labels": {"Zanzibarr": 1}}).status_code == 422
            with monkeypatch.context() as patch:
                patch.setattr("ccrank.request.RankRequest.run", fail)
                reply = client.post("/v1/rank", json=body)
            assert reply.status_code == 500
            assert "Zanzibar" not in reply.text
        assert ("Zanzibar" in caplog.text) == log_items
        assert "LookupError" in caplog.text


def test_what_can_be_asked_of_the_server(client: TestClient):
    """Models, methods, health, metrics and the OpenAPI schema are there."""
    assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"
    names = [one["name"] for one in client.get("/v1/methods").json()["data"]]
    assert "auto" in names
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").json() == {"ready": True, "reasons": []}
    client.post("/v1/rank", json=BODY)
    text = client.get("/metrics").text
    assert 'ccrank_requests_total{method="POST",route="/v1/rank",status="200"} 1.0' in text
    assert 'ccrank_passes_total{model="tiny"}' in text
    assert {"/v1/rank", "/v1/rerank"} <= client.get("/openapi.json").json()["paths"].keys()
    assert client.get("/docs").status_code == 200
    assert client.get("/nowhere").json()["error"]["type"] == "not_found"
    assert client.get("/v1/rank").status_code == 405
