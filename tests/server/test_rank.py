"""POST /v1/rank."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tiny import tiny_reader

import ccrank
from ccrank.io import rows_of_items
from ccrank.jury import Verdict, combined
from ccrank.request import RankRequest
from ccrank.server.app import create_app
from ccrank.server.settings import ServerSettings

BODY = {"items": ["Russia", "Chad", "Peru", "Monaco"], "by": "size", "category": "country"}


def events_of(text: str) -> list[tuple[str, Any]]:
    """The server-sent events of a body."""
    found = []
    for block in text.strip().split("\n\n"):
        kind, data = block.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"poles": ["small", "large"]},
        {"context": "A list of countries."},
        {"labels": {"Russia": 17.1, "Chad": 1.3, "best": ["Russia"]}},
        {"method": "prompt-pair", "options": {"aggregate": "wins"}},
        {"method": "pca"},
    ],
    ids=lambda more: " ".join(more) or "plain",
)
def test_the_answer_is_that_of_the_library(client: TestClient, more: dict[str, Any]):
    """/v1/rank answers with the JSON that `ccrank.rank` gives for the same arguments, whatever the method."""
    answer = client.post("/v1/rank", json={**BODY, **more})
    assert answer.status_code == 200, answer.text
    given = {key: tuple(value) if key == "poles" else value for key, value in {**BODY, **more}.items()}
    expected = ccrank.rank(**given, model=tiny_reader()).to_json()
    found = answer.json()
    assert [one["item"] for one in found["items"]] == [one["item"] for one in expected["items"]]
    assert [one["score"] for one in found["items"]] == pytest.approx(
        [one["score"] for one in expected["items"]], abs=1e-4
    )
    assert found.keys() == expected.keys()


def test_a_stream_ends_with_the_same_answer(client: TestClient):
    """With "stream" the events are progress, never falling, and then the answer of the plain request."""
    answer = client.post("/v1/rank", json={**BODY, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *progress, (kind, result) = events_of(answer.text)
    assert {one for one, _ in progress} == {"progress"}
    done = [value["done"] for _, value in progress]
    assert done == sorted(done)
    assert kind == "result"
    assert result == client.post("/v1/rank", json=BODY).json()


def test_several_models_are_a_jury():
    """A model "a,b" is the jury of both, plain and in a stream; each must be one that the server has."""
    readers = {"one": tiny_reader(), "other": tiny_reader("gpt2")}
    with TestClient(create_app(ServerSettings(), readers), "http://localhost") as client:
        found = client.post("/v1/rank", json={**BODY, "model": "one,other"}).json()
        request = RankRequest(items=rows_of_items(BODY["items"]), by=BODY["by"], category=BODY["category"])
        [expected] = combined([Verdict.of(request.run(reader), reader) for reader in readers.values()])
        assert [one["item"] for one in found["items"]] == list(expected.items)
        assert found["details"]["jury"]["weights"].keys() == {one.name for one in readers.values()}
        body = {**BODY, "model": "one,other", "stream": True, "partial": True}
        assert events_of(client.post("/v1/rank", json=body).text)[-1] == ("result", found)
        assert client.post("/v1/rank", json={**BODY, "model": "one,none"}).status_code == 404
        assert client.post("/v1/rank", json={**BODY, "model": "one,one"}).status_code == 422
        assert client.post("/v1/rank", json={**BODY, "model": "x," * 5000}).status_code == 422
