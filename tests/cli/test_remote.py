"""Models behind servers on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from completion_server import KEY, StandIn, serving
from tiny import tiny_reader

ITEMS = ("Russia", "Monaco", "Chad", "--by", "size", "--poles", "small", "large")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A server like llama.cpp's that wants a key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(tiny_reader(), "llamacpp") as one:
        one.key = KEY
        yield one


def test_rank_with_a_server(ccrank: Callable[..., Any], stand_in: StandIn) -> None:
    """The JSON names the model by its address; no secret is in any output."""
    address = stand_in.url.replace("http://", "http://ada:secret@")
    stand_in.key = None
    done = ccrank("rank", *ITEMS, "--method", "poles", "--model", f"openai:{address}", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["model"] == f"openai:{stand_in.url}#tiny"
    assert {one["item"] for one in found["items"]} == {"Russia", "Monaco", "Chad"}
    assert not any(secret in done.out + done.err for secret in (KEY, "secret"))


def test_auto_names_what_works(ccrank: Callable[..., Any], stand_in: StandIn) -> None:
    """The default method needs hidden states; the message has the remedy."""
    done = ccrank("rank", *ITEMS, "--model", f"openai:{stand_in.url}")
    assert done.code == 2
    assert "no hidden states; use --method poles" in done.err
    assert KEY not in done.err


def test_info_of_a_server(ccrank: Callable[..., Any], stand_in: StandIn) -> None:
    """How the model is read, by whom it is served, and the methods that work."""
    done = ccrank("models", "info", f"openai:{stand_in.url}", "--json")
    found = json.loads(done.out)
    assert found["served_by"] == "llamacpp"
    assert found["window"] == 512
    assert "logit_bias" in found["read_as"]
    assert "prompt-pair" in found["methods"]


@pytest.mark.parametrize(
    "command",
    [
        ["cost", "--model"],
        ["rank", *ITEMS, "--device", "cpu", "--model"],
    ],
)
def test_commands_that_load_models_refuse_servers(
    command: list[str], ccrank: Callable[..., Any], stand_in: StandIn
) -> None:
    """They say that the model itself is needed, or that an option is for such models."""
    done = ccrank(*command, f"openai:{stand_in.url}")
    assert done.code != 0
    assert "load the model itself" in done.err or "models that ccrank loads itself" in done.err
