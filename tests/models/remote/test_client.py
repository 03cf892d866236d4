"""Requests to servers that fail, and secrets that stay secret."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from completion_server import CANDIDATES, KEY, PATIENCE, PROMPTS, StandIn, serving
from tiny import tiny_reader

from ccrank.errors import CcrankError, UnavailableError
from ccrank.models.remote import Address, Client, RemoteReader
from ccrank.models.remote.client import KEY_VARIABLE, MAX_ATTEMPTS, REQUESTS_VARIABLE
from ccrank.models.remote.server import ModelServer
from ccrank.util.cancellation import Stopped, check


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A server that repeats prompts."""
    with serving(tiny_reader(), "vllm") as one:
        yield one


def patient_reader(one: StandIn) -> RemoteReader:
    """A reader that does not wait long between attempts."""
    client = Client(Address.parse(f"openai:{one.url}"), timeout=PATIENCE, first_wait=0.001)
    return RemoteReader(ModelServer.of(client))


@pytest.mark.parametrize("fault", ["429", "500", "503", "drop", "half", "no JSON"])
def test_passing_faults_change_nothing(fault: str, stand_in: StandIn) -> None:
    """A server that is busy, restarts, drops connections or sits behind a broken gateway is asked again, and the
    numbers are those of a sound one."""
    reader = patient_reader(stand_in)
    stand_in.asked.clear()
    expected = reader.read(PROMPTS, CANDIDATES)
    sound = len(stand_in.completions)
    stand_in.faults = [fault] * (MAX_ATTEMPTS - 1)
    found = reader.read(PROMPTS, CANDIDATES)
    np.testing.assert_array_equal(found.logits, expected.logits)
    assert len(stand_in.completions) == 2 * sound + MAX_ATTEMPTS - 1


def test_a_server_that_does_not_answer_is_asked_again(stand_in: StandIn) -> None:
    """A request without an answer is given up after the time-out."""
    reader = patient_reader(stand_in)
    expected = reader.read(PROMPTS, CANDIDATES)
    reader.server.client.timeout = 5.0  # from now on: how the server is read was found out with more time
    stand_in.faults = ["slow"]
    np.testing.assert_array_equal(reader.read(PROMPTS, CANDIDATES).logits, expected.logits)
    assert stand_in.faults == []


@pytest.mark.parametrize("fault", ["429", "500", "drop"])
def test_lasting_faults_are_an_error(fault: str, stand_in: StandIn) -> None:
    """After all attempts the message has the address, the cause and what to change."""
    reader = patient_reader(stand_in)
    stand_in.faults = [fault] * 100
    with pytest.raises(
        CcrankError, match=rf"{stand_in.url}/completions .*after {MAX_ATTEMPTS} attempts.*fewer requests"
    ):
        reader.read(PROMPTS, CANDIDATES)


def test_a_server_that_fails_at_echo_is_read_otherwise(stand_in: StandIn) -> None:
    """A failure while the ways of reading are tried rules out that way alone."""
    stand_in.kind = replace(stand_in.kind, echo=False, echo_fails=True)
    assert patient_reader(stand_in).server.scoring.name.endswith("(logit_bias)")


def test_what_a_server_refuses_is_not_sent_again(stand_in: StandIn) -> None:
    """A bad request stays one; the server's own words are in the message."""
    reader = patient_reader(stand_in)
    before = len(stand_in.completions)
    stand_in.faults = ["422"]
    with pytest.raises(CcrankError, match="answered 422: please come again"):
        reader.read(PROMPTS[:1], CANDIDATES[:1])
    assert len(stand_in.completions) == before + 1


def test_no_server_is_an_error() -> None:
    """An address where nothing listens is named in the message."""
    with serving(tiny_reader(), "vllm") as one:
        address = Address.parse(f"openai:{one.url}")
    with pytest.raises(
        CcrankError, match=r"/v1/models gave no answer .*refused.*see whether the server is up"
    ):
        ModelServer.of(Client(address, first_wait=0.001))


class Unreachable:
    """Stands in for urllib's opener: every request fails."""

    def __init__(self, cause: Exception) -> None:
        self.cause, self.requests = cause, 0

    def open(self, *_: object, **__: object) -> None:
        self.requests += 1
        raise self.cause


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "whether the host's name is right: nowhere.invalid",
        ),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "SSL_CERT_FILE"),
        (http.client.InvalidURL("URL can't contain control characters"), "correct the address"),
    ],
)
def test_what_waiting_does_not_cure_is_tried_once(cause: Exception, remedy: str) -> None:
    """A host that does not exist, a refused certificate or a malformed address is an error after one attempt."""
    client = Client(Address.parse("openai:https://nowhere.invalid/v1#x"))
    opener = client._opener = Unreachable(
        cause if isinstance(cause, http.client.InvalidURL) else urllib.error.URLError(cause)
    )
    with pytest.raises(UnavailableError, match=f"/v1/models gave no answer .*; .*{remedy}"):
        client.get("/models")
    assert opener.requests == 1


def test_a_name_that_was_known_is_looked_up_again(stand_in: StandIn) -> None:
    """A name server that fails for a moment does not end work that has begun."""
    client = Client(Address.parse(f"openai:{stand_in.url}"), first_wait=0.001)
    client.get("/models")
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    opener = client._opener = Unreachable(urllib.error.URLError(unknown))
    with pytest.raises(UnavailableError, match=f"Name or service not known.*after {MAX_ATTEMPTS} attempts"):
        client.get("/models")
    assert opener.requests == MAX_ATTEMPTS


def test_a_name_server_that_fails_for_a_moment_is_asked_again() -> None:
    """It does not say that the host does not exist, so even the first request is repeated."""
    client = Client(Address.parse("openai:http://nowhere.invalid/v1#x"), first_wait=0.001)
    failure = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    opener = client._opener = Unreachable(urllib.error.URLError(failure))
    with pytest.raises(UnavailableError, match=f"Temporary failure.*after {MAX_ATTEMPTS} attempts"):
        client.get("/models")
    assert opener.requests == MAX_ATTEMPTS


def test_the_key_is_sent_and_never_shown(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The environment's key reaches the server; names, representations, messages and logs do not have it, even where
    the server repeats it."""
    caplog.set_level(logging.DEBUG)
    stand_in.key = KEY
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    reader = patient_reader(stand_in)
    stand_in.faults = ["500"]
    reader.read(PROMPTS[:1], CANDIDATES[:1])
    assert {one["authorization"] for one in stand_in.headers} == {f"Bearer {KEY}"}
    stand_in.key = "another"
    with pytest.raises(
        CcrankError, match=rf"answered 401: Bearer \*\*\* is no key; set {KEY_VARIABLE}"
    ) as refused:
        reader.read(PROMPTS[:1], CANDIDATES[:1])
    client = reader.server.client
    shown = [str(refused.value), caplog.text, reader.name, repr(client.address), repr(vars(reader.loaded))]
    assert not any(KEY in text for text in shown)


def test_secrets_of_the_address_are_never_shown(stand_in: StandIn) -> None:
    """A user, a password and a query are sent, and left out of the model's name."""
    host = stand_in.url.removeprefix("http://")
    reader = RemoteReader.open(f"openai:http://ada:pass%20word@{host}?token=abc123#tiny")
    assert reader.name == f"openai:{stand_in.url}#tiny"
    assert stand_in.headers[-1]["authorization"] == "Basic YWRhOnBhc3Mgd29yZA=="
    shown = repr(reader.server.client.address) + str(reader.about())
    assert not any(secret in shown for secret in ("pass word", "pass%20word", "abc123", "YWRhOnBhc3M"))


def test_redirects_are_not_followed(stand_in: StandIn) -> None:
    """A redirect could carry the key elsewhere; the message has the new address."""
    reader = patient_reader(stand_in)
    stand_in.faults = ["307"]
    with pytest.raises(
        CcrankError, match=r"answered 307.*points to http://127\.0\.0\.1:9/elsewhere; give that"
    ):
        reader.read(PROMPTS[:1], CANDIDATES[:1])


def test_requests_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many jobs as the environment says are under way at once, and no more."""
    monkeypatch.setenv(REQUESTS_VARIABLE, "3")
    lock, gate = threading.Lock(), threading.Barrier(3)  # each job waits until there are three
    running, most = 0, 0

    def work(job: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(PATIENCE)
        with lock:
            running -= 1
        return job

    client = Client(Address.parse("openai:http://127.0.0.1:9"))
    assert sorted(client.each(work, range(9))) == [(job, job) for job in range(9)]
    assert most == 3


def test_each_stops_after_an_error() -> None:
    """What is not begun when a job fails is not begun later."""
    client = Client(Address.parse("openai:http://127.0.0.1:9"), requests=1)
    begun: list[int] = []

    def work(job: int) -> int:
        begun.append(job)
        if job == 3:
            raise CcrankError("three")
        return job * 10

    assert sorted(client.each(lambda job: job * 10, [1, 2, 4])) == [(0, 10), (1, 20), (2, 40)]
    with pytest.raises(CcrankError, match="three"):
        list(client.each(work, [1, 3, 5, 6]))
    assert begun == [1, 3]


def test_the_error_is_that_of_the_job_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that are stopped because another one failed fail too, and later, however slow the thread of the first."""

    class SlowEvent(threading.Event):
        def set(self) -> None:
            first = not self.is_set()
            super().set()
            time.sleep(0.2 * first)

    both = threading.Barrier(2)

    def work(job: str) -> None:
        both.wait(PATIENCE)
        if job == "second":
            with suppress(Stopped):
                while True:
                    check()
                    time.sleep(0.001)
        raise CcrankError(job)

    monkeypatch.setattr(threading, "Event", SlowEvent)
    client = Client(Address.parse("openai:http://127.0.0.1:9"), requests=2)
    with pytest.raises(CcrankError, match="first"):
        list(client.each(work, ["first", "second"]))


@pytest.mark.parametrize(
    ("text", "base", "model"),
    [
        ("openai:http://127.0.0.1:8000/v1#a/b", "http://127.0.0.1:8000/v1", "a/b"),
        ("openai:http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", None),
        ("openai:https://example.org/api/v1/#m", "https://example.org/api/v1", "m"),
        ("openai:http://[::1]:80/v1", "http://[::1]:80/v1", None),
    ],
)
def test_addresses(text: str, base: str, model: str | None) -> None:
    """The URL and the name are told apart; a bare host gets the usual path."""
    found = Address.parse(text)
    assert (found.base, found.model) == (base, model)


@pytest.mark.parametrize(
    "text", ["openai:", "openai:gpt", "openai:ftp://a/v1", "openai:http://:80", "openai:http://a:b"]
)
def test_bad_addresses(text: str) -> None:
    """What is no address of a server is an error with an example."""
    with pytest.raises(CcrankError, match=r"openai:http://127\.0\.0\.1:8000/v1#NAME"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [("http://a:99999", "Port"), ("http://a:b", "Port"), ("http://[::1", "IPv6"), ("http://a..b", "label")],
)
def test_bad_addresses_say_what_is_wrong(text: str, why: str) -> None:
    """A port out of range or an open bracket is named, not called an address without a host."""
    with pytest.raises(CcrankError, match=why):
        Address.parse(f"openai:{text}")


@pytest.mark.parametrize("value", ["0", "many", "nan"])
def test_a_bad_number_in_the_environment(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named in the message."""
    monkeypatch.setenv(REQUESTS_VARIABLE, value)
    with pytest.raises(CcrankError, match=f"{REQUESTS_VARIABLE} must be a number from 1 on, not '{value}'"):
        Client(Address.parse("openai:http://127.0.0.1:9"))
