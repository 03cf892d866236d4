"""JSON over HTTP with retries; no answer and no error message ever contains a key.

Servers are not trusted: an attempt ends after its time-out, an answer has a largest size, and work that is no longer
wanted leaves its request at once. Time-outs of sockets start again with each byte, so every attempt runs in a thread of
its own, whose connection is shut down when nobody waits for it any more.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import os
import queue
import random
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import Message
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ccrank.errors import CcrankError, UnavailableError
from ccrank.models.remote.address import Address
from ccrank.util.cancellation import Stopped, check, checked_by
from ccrank.util.text import one_line

log = logging.getLogger(__name__)

KEY_VARIABLE = "OPENAI_API_KEY"
REQUESTS_VARIABLE, DEFAULT_REQUESTS = "CCRANK_REQUESTS", 8  # requests that are sent at once
TIMEOUT_VARIABLE, DEFAULT_TIMEOUT = "CCRANK_TIMEOUT", 120
"""Seconds after which a request without a whole answer is sent again, once."""
LIST_TIMEOUT = 15  # for requests that take a server no work, such as the list of its models
MAX_ATTEMPTS = 6
FIRST_WAIT_SECONDS = 0.5
"""Seconds before the second attempt; each further wait is twice as long, and up to a quarter longer at random."""
MAX_WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1  # seconds between looks at whether the work was stopped
MAX_ANSWER_BYTES, MAX_BYTES_PER_BYTE_SENT = 1 << 25, 64
"""The largest answer in bytes, and what each byte of the question adds to it. A prompt that is repeated with its
log-probabilities takes about 20 bytes for each of its own, a list of all tokens about 10 MB."""
PASSING_STATUSES = (408, 425, 429, 500, 502, 503, 504)  # statuses that may change by themselves
ADDRESS_STATUSES = (401, 403, 404)  # statuses that concern the key, the URL or the model's name

Argument = TypeVar("Argument")
Returned = TypeVar("Returned")


class RefusedError(CcrankError):
    """The server understood the request and refuses it: another attempt would be in vain."""

    def __init__(self, message: str, status: int, problem: str) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem  # what it answered, without its address


class SilentError(UnavailableError):
    """The server takes too long to answer: whatever else it is asked would take as long."""


class RefusedAddressError(RefusedError, UnavailableError):
    """The key, the URL or the model's name is at fault: no other form of the request would do."""


LASTING_ERRORS = (SilentError, RefusedAddressError)
"""Whatever else the server is asked, these would come again."""


class BadAnswerError(CcrankError):
    """The server gave an answer that is not of the form, or has a number out of the range, that the API promises."""


class _Request(urllib.request.Request):
    """A request that knows its connection, so that another thread can shut it down."""

    given_up = False
    connection: socket.socket | None = None

    def give_up(self) -> None:
        """Shut the connection down: the thread that reads from it ends."""
        self.given_up = True
        if self.connection is not None:
            with suppress(OSError):
                # Not the method of an SSLSocket, which is not for two threads.
                socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class _Connecting(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Tells requests their connections."""

    def do_open(self, http_class: Any, req: Any, **http_conn_args: Any) -> Any:
        class Connection(http_class):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                req.connection = self.sock
                if req.given_up:
                    req.give_up()

        return super().do_open(Connection, req, **http_conn_args)


class _PassingError(Exception):
    """An attempt failed, and another one may not."""

    def __init__(self, problem: str, *, wait: float = 0.0, silent: bool = False) -> None:
        self.problem, self.wait, self.silent = problem, wait, silent


class Client:
    """Sends requests to one server; what is None here is taken from the environment, or the usual value."""

    def __init__(
        self,
        address: Address,
        *,
        key: str | None = None,
        requests: int | None = None,
        timeout: float | None = None,
        first_wait: float | None = None,
        attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self.address = address
        self.requests = int(_number(REQUESTS_VARIABLE, DEFAULT_REQUESTS)) if requests is None else requests
        self.timeout = _number(TIMEOUT_VARIABLE, DEFAULT_TIMEOUT) if timeout is None else timeout
        self.first_wait = FIRST_WAIT_SECONDS if first_wait is None else first_wait
        self.attempts = attempts  # how often a request is sent that fails
        self._slots = threading.BoundedSemaphore(self.requests)
        self._key = (os.environ.get(KEY_VARIABLE, "") if key is None else key).strip()
        if not (self._key.isascii() and (self._key + "-").isprintable()):
            raise CcrankError(
                f"{KEY_VARIABLE} has characters that no key has: it is sent as a header, in ASCII"
            )
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "ccrank",
        }
        if authorization := address.credentials or (self._key and f"Bearer {self._key}"):
            self._headers["Authorization"] = authorization
        # Without urllib's handler of redirects, which could send the key to another server.
        self._opener = urllib.request.OpenerDirector()
        for handler in (_Connecting(), *(() if address.local else (urllib.request.ProxyHandler(),))):
            self._opener.add_handler(handler)
        self._answered = False  # whether the server has answered before

    def get(self, path: str) -> Any:
        """The JSON that a GET request is answered with."""
        return self._request(self.address.base + path, None)

    def post(self, path: str, body: Mapping[str, Any], *, outside: bool = False) -> Any:
        """The JSON that a POST request is answered with."""
        return self._request((self.address.root if outside else self.address.base) + path, body)

    def each(
        self, work: Callable[[Argument], Returned], jobs: Sequence[Argument]
    ) -> Iterator[tuple[int, Returned]]:
        """(index, result) of each job as it is done, several at once; after an error, the others are dropped.

        All threads that call this share the number of requests that are under way.
        """
        done: queue.SimpleQueue[tuple[int, Returned | BaseException]] = queue.SimpleQueue()
        stopped = threading.Event()

        def stop() -> None:
            if stopped.is_set():
                raise Stopped

        def run(index: int, job: Argument) -> None:
            try:
                with checked_by(stop):
                    check()
                    done.put((index, work(job)))
            except BaseException as error:
                # First, since others fail as soon as they are stopped: the error that counts is this one.
                done.put((index, error))
                stopped.set()

        with ThreadPoolExecutor(self.requests, "ccrank-request") as pool:
            try:
                for index, job in enumerate(jobs):
                    pool.submit(run, index, job)
                for _ in jobs:
                    index, result = _awaited(done)
                    if isinstance(result, BaseException):
                        raise result
                    yield index, result
            finally:
                stopped.set()

    def hidden(self, text: str) -> str:
        """The text without the key, in case a server repeats it."""
        for secret in (self._key, self.address.credentials.removeprefix("Basic "), self.address.query):
            text = text.replace(secret, "***") if secret else text
        return text

    def _request(self, url: str, body: Mapping[str, Any] | None) -> Any:
        """The JSON that the server answers in one of several attempts."""
        content = None if body is None else json.dumps(body).encode()
        sent_to = f"{url}?{self.address.query}" if self.address.query else url
        most_attempts, error_type = self.attempts, UnavailableError
        for attempt in count(1):
            while not self._slots.acquire(timeout=POLL_SECONDS):
                check()
            try:
                return self._attempt(url, _Request(sent_to, content, self._headers))
            except _PassingError as error:
                failure = error
            finally:
                self._slots.release()
            if failure.silent:
                most_attempts, error_type = min(most_attempts, attempt + 1), SilentError
            if attempt >= most_attempts:
                break
            seconds = self.first_wait * 2 ** (attempt - 1) * random.uniform(1.0, 1.25)
            seconds = min(MAX_WAIT_SECONDS, max(seconds, failure.wait))
            log.info("%s %s; attempt %d in %.1f s", url, failure.problem, attempt + 1, seconds)
            with suppress(TimeoutError):  # wait; meanwhile, look whether the work is still wanted
                _awaited(queue.SimpleQueue(), seconds)
        raise error_type(
            f"{url} {failure.problem}, after {attempt} attempt{'s' if attempt > 1 else ''}; see whether the server is "
            f"up and has this address, send fewer requests at once ({REQUESTS_VARIABLE}) or wait longer for answers "
            f"({TIMEOUT_VARIABLE}, seconds)"
        )

    def _attempt(self, url: str, request: _Request) -> Any:
        """The JSON of one answer; what another attempt may change is a `_PassingError`."""
        try:
            reply, body = self._answer(request)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            problem = f"gave no answer ({one_line(self.hidden(str(cause) or type(cause).__name__), 120)})"
            if remedy := self._remedy_of_lasting(cause):
                raise UnavailableError(f"{url} {problem}; {remedy}") from None
            raise _PassingError(problem, silent=isinstance(cause, TimeoutError)) from None
        self._answered = True
        if not 200 <= reply.status < 300:
            problem = f"answered {reply.status}{self._reason(body)}"
            if reply.status in PASSING_STATUSES:
                raise _PassingError(problem, wait=_asked_wait(reply.headers))
            kind = RefusedAddressError if reply.status in ADDRESS_STATUSES else RefusedError
            raise kind(f"{url} {problem}{self._remedy(reply)}", reply.status, problem)
        try:
            return json.loads(body)
        except RecursionError:
            raise _PassingError("answered with JSON that is nested too deep") from None
        except ValueError:
            raise _PassingError("answered with something that is not JSON") from None

    def _answer(self, request: _Request) -> tuple[http.client.HTTPResponse, bytes]:
        """An answer and its body; an error after the time-out, and at once when the work is no longer wanted."""
        done: queue.SimpleQueue[tuple[http.client.HTTPResponse, bytes] | BaseException] = queue.SimpleQueue()
        sent = len(request.data or b"")  # type: ignore[arg-type]
        timeout = self.timeout if sent else min(self.timeout, LIST_TIMEOUT)

        def run() -> None:
            try:
                with self._opener.open(request, timeout=timeout) as reply:
                    done.put((reply, _whole(reply, MAX_ANSWER_BYTES + MAX_BYTES_PER_BYTE_SENT * sent)))
            except BaseException as error:
                done.put(error)

        threading.Thread(target=run, name="ccrank-attempt", daemon=True).start()
        try:
            result = _awaited(done, timeout)
        finally:
            request.give_up()
        if isinstance(result, BaseException):
            raise result
        return result

    def _reason(self, body: bytes) -> str:
        """What the body of an error says, as an addition to its status."""
        try:
            reason = json.loads(body)
            if isinstance(reason, dict):
                reason = reason.get("error", reason)
            if isinstance(reason, dict):
                reason = reason.get("message") or reason.get("detail") or reason
            return f": {one_line(self.hidden(str(reason)), 300)}"
        except (ValueError, RecursionError):
            return ""

    def _remedy_of_lasting(self, cause: object) -> str | None:
        """What to do about a failure that no waiting cures; None for others."""
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                "see whether the address is right; a certificate that this machine does not know is given by the "
                "variable SSL_CERT_FILE"
            )
        if isinstance(cause, http.client.InvalidURL | UnicodeError):
            return "correct the address"
        # A name server can fail for a moment, and lose the name of a server that has answered.
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN and not self._answered:
            return f"see whether the host's name is right: {urlsplit(self.address.base).hostname}"
        return None

    def _remedy(self, reply: http.client.HTTPResponse) -> str:
        """What to do about a status."""
        if reply.status in (401, 403):
            return f"; set {KEY_VARIABLE} to a key of this server"
        if 300 <= reply.status < 400:
            target = one_line(self.hidden(str(reply.headers.get("Location", "nowhere"))), 300)
            return f": it points to {target}; give that address"
        if reply.status == 404:
            return "; see whether the address is that of an OpenAI-compatible API, such as …/v1"
        return ""


def _awaited(done: queue.SimpleQueue[Returned], seconds: float = math.inf) -> Returned:
    """The next result, or an error after some seconds; while waiting, look whether the work is still wanted."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            return done.get(timeout=max(0.0, min(POLL_SECONDS, left)))
        except queue.Empty:
            check()
            if left <= 0:
                raise TimeoutError(f"timed out after {seconds:g} s") from None


def _whole(reply: http.client.HTTPResponse, most: int) -> bytes:
    """The body; one that breaks off or is too long raises an error, unless the status is one."""
    refused = not 200 <= reply.status < 300
    try:
        body = reply.read(most + 1)
    except (OSError, http.client.HTTPException):
        if refused:
            return b""
        raise
    if len(body) > most and not refused:
        raise BadAnswerError(
            f"the server's answer has more than {most:,} bytes; this is not an answer of the API"
        )
    if reply.length and not refused:
        raise http.client.IncompleteRead(body, reply.length)
    return body


def _asked_wait(headers: Message) -> float:
    """The seconds of Retry-After; 0 for a date or nothing."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return 0.0


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        number = float(text or default)
    except ValueError:
        number = math.nan
    if not 1 <= number < 1e6:
        raise CcrankError(f"{variable} must be a number from 1 on, not {text!r}")
    return number
