"""`ccrank mcp`, called by the client of the protocol's own SDK."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the tools of assistants need the extra `mcp`")

from live_server import PATIENCE, held_reader, until
from mcp import Client, StdioServerParameters
from tiny import save_model, tiny_model, tiny_reader

import ccrank
from ccrank.server.mcp import create_mcp_server
from ccrank.server.routes.ranking import relevance_scores
from ccrank.server.settings import ServerSettings

ITEMS = ["ant", "whale", "horse", "cat"]
DOCUMENTS = ["Bananas are yellow.", "Paris is in France."]


def call(name: str, settings: ServerSettings | None = None, **arguments: Any) -> Any:
    """What a tool answers."""

    async def answer() -> Any:
        server = create_mcp_server(settings or ServerSettings(), {"tiny": tiny_reader()})
        async with Client(server) as client:
            return await client.call_tool(name, arguments)

    return asyncio.run(answer())


def test_rank_gives_the_ranking_of_the_library() -> None:
    """The items that are returned are those of `ccrank.rank`, and the meaning and the confidence come with them."""
    found = call("rank", items=ITEMS, by="smallest", category="animal", top=3).structured_content
    expected = ccrank.rank(ITEMS, by="smallest", category="animal", model=tiny_reader())
    assert [one["item"] for one in found["items"]] == list(expected.items[:3])
    assert found["understood"]["first"] == "smallest first"
    assert expected.confidence is not None
    assert found["confidence"]["level"] == expected.confidence.level
    assert found["warnings"] == list(expected.warnings)


@pytest.mark.parametrize("more", [{}, {"labels": {"ant": 1, "whale": 5}}])
def test_items_have_intervals(more: dict[str, object]) -> None:
    """Each item has an interval of ranks, with labels and without."""
    found = call("rank", items=ITEMS, by="size", **more).structured_content["items"]
    assert all(one["rank_low"] <= one["rank"] <= one["rank_high"] for one in found)


def test_score_puts_new_texts_on_the_scale_of_a_list() -> None:
    """The scores are those of `ccrank.fit`; a text of the list has the score that it has there."""
    new = ["whale", "mouse", "mouse"]
    found = call("score", items=ITEMS, by="size", category="animal", new=new).structured_content
    scale = ccrank.fit(ITEMS, "size", category="animal", model=tiny_reader())
    assert [one["score"] for one in found["scores"]] == pytest.approx(scale(new).tolist(), abs=1e-4)
    by_item = {one["item"]: one["score"] for one in found["ranking"]["items"]}
    whale, mouse, again = found["scores"]
    assert whale["score"] == pytest.approx(by_item["whale"], abs=1e-5)
    assert whale["above"] == sum(score < by_item["whale"] for score in by_item.values()) / 4
    assert mouse == again
    alone = call("score", items=ITEMS, by="size", category="animal", new=["mouse"]).structured_content[
        "scores"
    ]
    assert alone[0]["score"] == pytest.approx(mouse["score"], abs=1e-4)


def test_rerank_and_understand() -> None:
    """Documents get the scores of POST /v1/rerank, and a criterion is explained without a model."""
    found = call("rerank", query="capital of France", documents=DOCUMENTS).structured_content["results"]
    scores, _ = relevance_scores("capital of France", DOCUMENTS, tiny_reader())
    assert {one["index"]: one["relevance_score"] for one in found} == pytest.approx(dict(enumerate(scores)))
    assert call("understand", by="least expensive").structured_content["first"] == "cheapest first"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("rank", {"items": ITEMS, "by": "size"}, "4 items; this server takes up to 3"),
        ("rank", {"items": ["ant"], "by": "size"}, "items: List should have at least 2 items"),
        ("rank", {"items": ["ant", "cat"]}, "no criterion"),
        ("rank", {"items": ["ant", "cat"], "by": "size", "model": "other"}, "unknown model 'other'"),
        ("rank", {"items": ["ant", "cat"], "by": "size", "tpo": 1}, "tpo: Extra inputs are not permitted"),
        ("rerank", {"query": "a", "documents": ["word " * 99]}, "item 1 has 495 characters"),
        (
            "score",
            {"items": ["ant", "cat"], "by": "size", "new": []},
            "new: List should have at least 1 item",
        ),
        ("score", {"items": ["ant", "cat"], "by": "size", "new": ["x" * 100]}, "item 1 has 100 characters"),
        (
            "score",
            {"items": ["ant", "cat"], "by": "size", "method": "prompt-list", "new": ["dog"]},
            "prompt-list",
        ),
        ("score", {"items": ["ant", "cat"], "by": "size", "new": ["dog", " "]}, "text 2 of new is blank"),
        ("sort", {}, "no tool 'sort'; there are rank, rerank, score, understand"),
    ],
)
def test_a_mistake_is_said_to_the_assistant(name: str, arguments: dict[str, Any], message: str) -> None:
    """Arguments beyond the server's limits and wrong ones are answered with the value and the remedy."""
    answer = call(name, ServerSettings(max_items=3, max_characters=99), **arguments)
    assert answer.is_error
    assert answer.structured_content is None
    assert message in answer.content[0].text


def test_a_cancelled_call_reads_no_further() -> None:
    """After a call is cancelled, the pass that runs is the last one; until then, progress is reported."""

    async def passes(cancel: bool) -> tuple[int, list[tuple[float, float | None]]]:
        reader, engine = held_reader()
        seen: list[tuple[float, float | None]] = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total))

        async with Client(create_mcp_server(ServerSettings(), {"tiny": reader})) as client:
            engine.open.clear()
            arguments = {"items": ITEMS, "by": "size"}
            running = asyncio.create_task(client.call_tool("rank", arguments, progress_callback=note))
            await asyncio.to_thread(until, lambda: engine.begun == 1)
            if cancel:
                running.cancel()
                await asyncio.wait([running])
            engine.open.set()
            if not cancel:
                assert not (await running).is_error
        return engine.begun, seen  # the server has stopped, and with it all work

    whole, seen = asyncio.run(passes(cancel=False))
    assert whole > 1
    assert seen == sorted(seen)
    stopped, _ = asyncio.run(passes(cancel=True))
    assert stopped == 1


def test_the_command_serves_over_its_standard_streams(tmp_path: Path) -> None:
    """An assistant that starts `ccrank mcp` finds the tools with their schemas, and can call them."""
    folder = save_model(tiny_model("llama", max_position_embeddings=512), tmp_path / "tiny")
    environment = {**os.environ, "CCRANK_CACHE": str(tmp_path / "cache")}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "ccrank", "mcp", "-m", str(folder)], env=environment
    )

    async def talk() -> tuple[Any, Any]:
        async with Client(command) as client:
            tools = await client.list_tools()
            return tools, await client.call_tool("rank", {"items": ITEMS, "by": "weight"})

    tools, answer = asyncio.run(talk())
    assert [tool.name for tool in tools.tools] == ["rank", "rerank", "score", "understand"]
    assert all(tool.output_schema and tool.annotations.read_only_hint for tool in tools.tools)
    assert sorted(one["item"] for one in answer.structured_content["items"]) == sorted(ITEMS)
    assert answer.structured_content["model"] == "tiny"


def test_half_a_character_gets_an_answer(tmp_path: Path) -> None:
    """A call whose text was cut within an emoji, which JSON can hold, is answered, and so is the next one."""
    folder = save_model(tiny_model("llama", max_position_embeddings=512), tmp_path / "tiny")
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    calls = [
        {"items": ["cut \ud83d", "whole \U0001f600", "\\ud83d"], "by": "size"},
        {"items": ITEMS, "by": "size"},
    ]
    sent = [{"id": 0, "method": "initialize", "params": about}, {"method": "notifications/initialized"}]
    sent += [
        {"id": number, "method": "tools/call", "params": {"name": "rank", "arguments": call}}
        for number, call in enumerate(calls, start=1)
    ]
    served = subprocess.Popen(
        [sys.executable, "-m", "ccrank", "mcp", "-m", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CCRANK_CACHE": str(tmp_path / "cache")},
    )
    assert served.stdin is not None
    assert served.stdout is not None
    served.stdin.writelines(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in sent)
    served.stdin.flush()
    answers: dict[int, Any] = {}
    late = threading.Timer(PATIENCE, served.kill)
    late.start()
    for line in served.stdout:
        answer = json.loads(line)
        answers[answer.get("id")] = answer.get("result")
        if {1, 2} <= answers.keys():
            break
    served.stdin.close()
    assert served.wait() == 0
    late.cancel()
    found = [one["item"] for one in answers[1]["structuredContent"]["items"]]
    assert sorted(found) == sorted(["cut ?", "whole \U0001f600", "\\ud83d"])
    assert answers[2]["isError"] is False
