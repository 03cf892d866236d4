"""POST /v1/rerank and /v2/rerank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from scipy.special import expit
from tiny import scores_by_item, tiny_reader

import ccrank
from ccrank.models import Reader
from ccrank.server.routes.ranking import relevance_scores

QUERY = "Is the tower taller than the bridge?"
DOCUMENTS = ["The height of the tower.", "A red fox.", "The old stone bridge.", "Blue and red."]


def scores_of(reply: Any) -> dict[int, float]:
    assert reply.status_code == 200, reply.text
    return {one["index"]: one["relevance_score"] for one in reply.json()["results"]}


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_scores_are_query_likelihoods(client: TestClient, path: str):
    """Results are in the order of query likelihood, and a score is its logistic function, from 0 to 1."""
    found = scores_of(client.post(path, json={"query": QUERY, "documents": DOCUMENTS}))
    ranking = ccrank.rank(DOCUMENTS, query=QUERY, method="query-likelihood", model=tiny_reader())
    expected = scores_by_item(ranking)
    assert [DOCUMENTS[index] for index in found] == list(ranking.items)
    for index, score in found.items():
        assert score == pytest.approx(expit(expected[DOCUMENTS[index]]), abs=1e-5)


def test_the_fields_of_both_apis(client: TestClient):
    """top_n cuts the results, return_documents repeats the texts, objects with a text are documents, and fields that
    have no meaning here are ignored."""
    documents = [{"text": one, "title": "x"} for one in DOCUMENTS]
    body = {"model": "tiny", "query": QUERY, "documents": documents, "top_n": 2, "max_tokens_per_doc": 4096}
    whole = client.post("/v1/rerank", json={**body, "top_n": 99, "return_documents": True}).json()
    reply = client.post("/v1/rerank", json=body).json()
    assert [one["index"] for one in reply["results"]] == [one["index"] for one in whole["results"]][:2]
    assert all("document" not in one for one in reply["results"])
    assert all(one["document"] == {"text": DOCUMENTS[one["index"]]} for one in whole["results"])
    assert reply["id"] != whole["id"]
    assert reply["meta"]["api_version"]["version"]
    assert reply["usage"]["total_tokens"] > 0
    assert reply["model"] == "tiny"


def test_odd_documents():
    """Equal documents have equal scores, blank ones 0, and a document alone has the score that it has among others."""
    reader = tiny_reader()
    among, _ = relevance_scores(QUERY, [*DOCUMENTS, DOCUMENTS[0] + " ", "", " \n"], reader)
    assert among[0] == among[4]
    assert among[5] == among[6] == 0
    alone, _ = relevance_scores(QUERY, [DOCUMENTS[0]], reader)
    assert alone[0] == pytest.approx(among[0], abs=1e-5)
    none, cost = relevance_scores(QUERY, ["", " "], reader)
    assert none.tolist() == [0, 0]
    assert cost.prompts == 0


@pytest.mark.parametrize(
    "body",
    [
        {"query": "", "documents": ["a"]},
        {"query": " ", "documents": ["a"]},
        {"query": "a", "documents": []},
        {"query": "a", "documents": [3]},
        {"query": "a", "documents": [{"title": "a"}]},
        {"query": "a", "documents": ["a"], "top_n": 0},
        {"documents": ["a"]},
    ],
    ids=str,
)
def test_mistakes(client: TestClient, body: dict[str, Any]):
    """A request with a mistake gets 422 and a message, also where clients of Jina's API look for it."""
    reply = client.post("/v1/rerank", json=body)
    assert reply.status_code == 422
    assert reply.json()["detail"] == reply.json()["error"]["message"] != ""


@pytest.mark.real
def test_relevant_documents_come_first(default_reader: Reader):
    """The default model puts the answers to a question before texts about something else."""
    documents = [
        "Bananas are rich in potassium.",
        "Paris is the capital and largest city of France.",
        "The violin has four strings.",
        "The Louvre is a museum in Paris.",
    ]
    scores, _ = relevance_scores("What is the capital of France?", documents, default_reader)
    assert np.argmax(scores) == 1
    assert min(scores[1], scores[3]) > max(scores[0], scores[2])


def test_a_document_that_is_not_unicode_is_given_back(client: TestClient):
    """A lone surrogate, which JSON can spell and UTF-8 lacks, is escaped in the answer."""
    content = b'{"query": "storms", "documents": ["A gale.", "a\\ud800"], "return_documents": true}'
    reply = client.post("/v1/rerank", content=content, headers={"content-type": "application/json"})
    assert reply.status_code in (200, 422)
    assert reply.json()
