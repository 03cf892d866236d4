"""Clients of search tools, from the package index, pointed at a local server: `make clients` runs these.

Each is skipped where its client is not installed; requirements/clients.txt lists them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest
from live_server import PATIENCE, running
from tiny import tiny_reader

from ccrank.server.settings import ServerSettings

QUERY = "Is the tower taller than the bridge?"
DOCUMENTS = ["The height of the tower.", "A red fox.", "The old stone bridge.", "Blue and red."]
KEY = "secret"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server that needs a key."""
    with running(ServerSettings(keys=(KEY,)), tiny_reader()) as (url, _):
        yield url


@pytest.fixture
def order(server: str) -> list[int]:
    """The order that the server gives."""
    body = {"query": QUERY, "documents": DOCUMENTS, "top_n": 3}
    headers = {"Authorization": f"Bearer {KEY}"}
    reply = httpx.post(f"{server}/v1/rerank", json=body, headers=headers, timeout=PATIENCE)
    return [one["index"] for one in reply.json()["results"]]


@pytest.mark.parametrize("version", [1, 2])
def test_cohere(server: str, order: list[int], version: int):
    """The Cohere SDK, in both versions of its API, parses the answer; a wrong key is its UnauthorizedError."""
    cohere = pytest.importorskip("cohere", reason="pip install -r requirements/clients.txt")
    make = cohere.Client if version == 1 else cohere.ClientV2
    reply = make(api_key=KEY, base_url=server).rerank(model="tiny", query=QUERY, documents=DOCUMENTS, top_n=3)
    assert [one.index for one in reply.results] == order
    assert all(0 <= one.relevance_score <= 1 for one in reply.results)
    assert reply.id
    with pytest.raises(cohere.UnauthorizedError):
        make(api_key="wrong", base_url=server).rerank(model="tiny", query=QUERY, documents=DOCUMENTS)
    with pytest.raises(cohere.NotFoundError):
        make(api_key=KEY, base_url=server).rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS)


def test_llama_index(server: str, order: list[int]):
    """LlamaIndex' postprocessor for Jina's API reorders its nodes."""
    module = pytest.importorskip(
        "llama_index.postprocessor.jinaai_rerank", reason="pip install -r requirements/clients.txt"
    )
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in DOCUMENTS]
    reranker = module.JinaRerank(top_n=3, model="tiny", base_url=f"{server}/v1", api_key=KEY)
    found = reranker.postprocess_nodes(nodes, query_str=QUERY)
    assert [DOCUMENTS.index(one.node.get_content()) for one in found] == order
    wrong = module.JinaRerank(top_n=3, model="other", base_url=f"{server}/v1", api_key=KEY)
    with pytest.raises(RuntimeError, match="unknown model 'other'"):
        wrong.postprocess_nodes(nodes, query_str=QUERY)


def test_haystack(server: str, order: list[int]):
    """Haystack's Cohere ranker reorders its documents."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    module = pytest.importorskip(
        "haystack_integrations.components.rankers.cohere", reason="pip install -r requirements/clients.txt"
    )
    from haystack import Document
    from haystack.utils import Secret

    ranker = module.CohereRanker(model="tiny", api_key=Secret.from_token(KEY), api_base_url=server, top_k=3)
    found = ranker.run(query=QUERY, documents=[Document(content=text) for text in DOCUMENTS])["documents"]
    assert [DOCUMENTS.index(one.content) for one in found] == order
