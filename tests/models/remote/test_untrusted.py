"""Whatever a server answers, the result is right or an error that a user can read, in bounded time and memory."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from completion_server import CANDIDATES, KINDS, PATIENCE, PROMPTS, StandIn, serving
from live_server import until
from tiny import tiny_reader

from ccrank.errors import CcrankError, UnavailableError
from ccrank.models.remote import Address, Client, RemoteReader
from ccrank.models.remote import client as remote_client
from ccrank.models.remote.client import KEY_VARIABLE, BadAnswerError, SilentError
from ccrank.models.remote.completions import (
    MIN_LOG_PROBABILITY,
    choices,
    models,
    positions,
    prompt_ids,
    token_pieces,
)
from ccrank.models.remote.server import ModelServer, served_model
from ccrank.util.cancellation import Stopped, checked_by

ODD = (
    math.nan,
    math.inf,
    -math.inf,
    "-1.5",
    True,
    3.5,
    10**400,
    [],
    {},
    "",
    None,
    -1,
    1 << 70,
    "\x1b[2J",
    "\ud800",
)
"""What may stand in place of anything."""


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A server that repeats prompts."""
    with serving(tiny_reader(), "vllm") as one:
        yield one


def client_of(one: StandIn, **more: Any) -> Client:
    return Client(Address.parse(f"openai:{one.url}"), **{"timeout": PATIENCE, "first_wait": 0.001, **more})


def inside(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value within a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in [*pairs]:
        yield value, key
        yield from inside(one)


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "listing"])
def test_no_answer_of_a_server_is_a_bug_of_ours(kind: str) -> None:
    """Anything odd in any place of any answer is an error for users or is not used: every number that comes through
    is a log-probability, and every token an id or a text."""
    one = StandIn(tiny_reader(), KINDS[kind])
    asked = {
        "model": "tiny",
        "prompt": "a fox",
        "logprobs": 5,
        "max_tokens": 1,
        "echo": True,
        "return_token_ids": True,
    }
    whole = [one.answer("/v1/models", None)[1], one.answer("/v1/completions", asked)[1]]
    if one.kind.tokenize:
        whole.append(one.answer("/tokenize", {one.kind.tokenize: "a fox", "with_pieces": True})[1])
    generator = random.Random(0)
    for reply in whole:
        for place in range(len([*inside(reply)])):
            for odd in generator.sample(ODD, 5):
                twisted = json.loads(json.dumps(reply))
                container, key = [*inside(twisted)][place]
                container[key] = odd
                for read in (read_models, read_tokens, read_completion):
                    with suppress(CcrankError):
                        read(twisted)


def read_models(reply: Any) -> None:
    for one in models(reply):
        assert json.loads(json.dumps(one, allow_nan=False)) == one
        assert all(value.isprintable() for value in (one["id"], *one["aliases"]))


def read_tokens(reply: Any) -> None:
    assert all(type(token) is int and token >= 0 for token, _ in token_pieces(reply))


def read_completion(reply: Any) -> None:
    for choice in choices(reply, 1):
        assert all(type(token) is int and token >= 0 for token in prompt_ids(choice) or ())
        for by_text in (False, True):
            for one in positions(choice, by_text):
                numbers = [*one.top.values(), *([] if one.log_probability is None else [one.log_probability])]
                assert all(type(number) is float and MIN_LOG_PROBABILITY <= number <= 0 for number in numbers)
                assert all(type(token) in (int, str) for token in (one.token, *one.top))


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "listing-all"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, "-1.5", True, 3.5])
def test_what_is_no_log_probability_is_an_error(kind: str, odd: Any) -> None:
    """A number that is none, or out of the range, is named; it never becomes a score."""
    with serving(tiny_reader(), kind) as one:
        reader = RemoteReader(ModelServer.of(client_of(one)))

        def twist(path: str, found: Any) -> Any:
            for container, key in inside([one["logprobs"] for one in found.get("choices", ())]):
                container[key] = odd if isinstance(container[key], float) else container[key]
            return found

        one.twist = twist
        with pytest.raises(BadAnswerError, match=r"the server gave .* as "):
            reader.read(PROMPTS[:2], [["Yes", "No"], ["1", "10"]])


@pytest.mark.parametrize(
    "indices", [[0, 0], [1, 2], ["0", "1"], [None, None], [-1, 0], [True, False], [0.0, 1.0]]
)
def test_answers_without_a_clear_order_are_asked_for_one_by_one(indices: list[Any]) -> None:
    """A server whose answers do not say to which prompts they are gets one prompt at a time, and the numbers are
    right."""
    with serving(tiny_reader(), "vllm") as one:

        def twist(path: str, found: Any) -> Any:
            listed = found.get("choices", ())
            for place, choice in enumerate(listed if len(listed) > 1 else ()):
                choice["index"] = indices[place % 2]
            return found

        one.twist = twist
        server = ModelServer.of(client_of(one))
        assert server.batch == 1
        found = RemoteReader(server).read(PROMPTS, CANDIDATES)
    expected = tiny_reader().read(PROMPTS, CANDIDATES, log_probabilities=True)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-4)


@pytest.mark.parametrize(
    "sent", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900, b"1" * 5000, b"\xff", b""]
)
@pytest.mark.parametrize("status", [200, 400])
def test_bodies_that_are_no_use(sent: bytes, status: int, stand_in: StandIn) -> None:
    """JSON that is nested too deep, numbers without end and no text at all are errors, whatever the status."""
    stand_in.answer = lambda path, body: (status, sent)  # type: ignore[method-assign]
    with pytest.raises(CcrankError):
        served_model(client_of(stand_in))


def test_an_answer_has_a_largest_size(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """More is not read, and not asked for again."""
    monkeypatch.setattr(remote_client, "MAX_ANSWER_BYTES", 1000)
    stand_in.twist = lambda path, found: b" " * 2000
    with pytest.raises(BadAnswerError, match="more than 1,000 bytes"):
        client_of(stand_in).get("/models")
    assert len(stand_in.asked) == 1


def test_an_answer_that_drips_ends_with_the_time_out(stand_in: StandIn) -> None:
    """The time-out is that of the whole answer; the connection is closed, and the request sent again."""
    stand_in.dripping = "/v1/models"
    with pytest.raises(UnavailableError, match=r"timed out after 0.2 s.* after 2 attempts"):
        client_of(stand_in, timeout=0.2, attempts=2).get("/models")
    until(lambda: stand_in.drips == 0)


@pytest.mark.parametrize("dripping", ["/v1/models", "/v1/completions", "/tokenize"])
def test_a_server_that_drips_is_given_up_before_all_attempts(
    dripping: str, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked twice, and nothing else after that."""
    stand_in.dripping = dripping
    client, answer = client_of(stand_in), Client._answer

    def impatient(self: Client, request: Any) -> Any:
        self.timeout = 0.2 if request.full_url.endswith(dripping) else PATIENCE
        return answer(self, request)

    monkeypatch.setattr(Client, "_answer", impatient)
    with pytest.raises(SilentError, match="after 2 attempts"):
        ModelServer.of(client)
    assert len(stand_in.dripped) == 2


def test_a_list_of_models_is_awaited_for_less_time(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no work for the server, however long other answers may take."""
    monkeypatch.setattr(remote_client, "LIST_TIMEOUT", 0.2)
    stand_in.dripping = "/v1/models"
    with pytest.raises(SilentError, match=r"timed out after 0.2 s.* after 2 attempts"):
        client_of(stand_in, timeout=10 * PATIENCE).get("/models")


def test_work_that_is_not_wanted_leaves_a_dripping_server(stand_in: StandIn) -> None:
    """It ends at its next check, its connections are closed, and its places are free for other work."""
    client = client_of(stand_in, requests=2)
    reader = RemoteReader(ModelServer.of(client))
    stand_in.dripping = "/v1/completions"

    def stop() -> None:
        if stand_in.drips == 2:
            raise Stopped

    with checked_by(stop), pytest.raises(Stopped):
        reader.read(PROMPTS, CANDIDATES)
    until(lambda: stand_in.drips == 0)
    stand_in.dripping = None
    assert reader.read(PROMPTS, CANDIDATES).logits is not None


@pytest.mark.parametrize("waiting", ["for a place", "for the next attempt"])
def test_work_that_is_not_wanted_stops_waiting(waiting: str, stand_in: StandIn) -> None:
    """Also while no request of its own is under way."""
    stand_in.answer = lambda path, body: (503, {})  # type: ignore[method-assign]
    client = client_of(stand_in, requests=1, first_wait=PATIENCE)
    begun = threading.Event()

    def stop() -> None:
        if begun.is_set():
            raise Stopped

    if waiting == "for a place":
        client._slots.acquire()
        begun.set()
    else:
        stand_in.twist = lambda path, found: begun.set() or found
    start = time.monotonic()
    with checked_by(stop), pytest.raises(Stopped):
        client.get("/models")
    assert time.monotonic() - start < PATIENCE / 2


def test_names_of_models_are_plain_text(stand_in: StandIn) -> None:
    """Names with control characters, of another type or without end are none; neither are such facts."""
    entries = [{"id": odd, "aliases": odd, "meta": odd, "root": odd, "max_model_len": odd} for odd in ODD]
    good = {
        "id": "good",
        "aliases": 5,
        "meta": {"n_ctx": 64, "n_params": [[]]},
        "root": "\x1b",
        "max_model_len": True,
    }
    stand_in.twist = lambda path, found: {"data": [*entries, 7, good]}
    name, facts = served_model(Client(Address.parse(f"openai:{stand_in.url}#good")))
    assert (name, facts["aliases"], facts["meta"], "root" in facts) == ("good", [], {"n_ctx": 64}, False)
    with pytest.raises(UnavailableError, match=r"has 2 models: -1\.5, good"):
        served_model(client_of(stand_in))


@pytest.mark.parametrize("key", ["a\nb", "schlüssel", "a\x7f"])
def test_a_key_that_is_no_header_is_named(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being shown."""
    monkeypatch.setenv(KEY_VARIABLE, key)
    with pytest.raises(CcrankError, match=KEY_VARIABLE) as refused:
        Client(Address.parse("openai:http://127.0.0.1:9"))
    assert key not in str(refused.value)


def test_many_requests_leave_no_threads_behind(stand_in: StandIn) -> None:
    """Each attempt has a thread, which ends with it."""
    client = client_of(stand_in)
    work: Callable[[int], Any] = lambda _: client.get("/models")  # noqa: E731
    assert len([*client.each(work, range(100))]) == 100
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith("ccrank-")])
