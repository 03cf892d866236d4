"""JSON over HTTP with retries; no answer and no error message ever contains a key.

Servers are not trusted: an attempt ends after its time-out even if bytes keep coming, an answer has a largest size, and
work that is no longer wanted leaves its request at once, whatever the server does. Time-outs of sockets, and of clients
built on them, start again with each byte. So every attempt runs in a thread of its own, whose connection is shut down
when nobody waits for it any more.
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
from contextlib import suppress
from email.message import Message
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ccrank.errors import CcrankError, UnavailableError
from ccrank.models.remote.address import Address
from ccrank.util.cancellation import Stopped, check, checked_by
from ccrank.util.text import one_line

log = logging.getLogger(__name__)

KEY_VARIABLE = "OPENAI_API_KEY"
REQUESTS_VARIABLE, DEFAULT_REQUESTS = "CCRANK_REQUESTS", 8
"""Requests that are sent at once."""
TIMEOUT_VARIABLE, DEFAULT_TIMEOUT = "CCRANK_TIMEOUT", 120
"""Seconds after which a request without a whole answer is sent again."""
ATTEMPTS = 6
FIRST_WAIT = 0.5
"""Seconds before the second attempt; each further wait is twice as long, and up to a quarter longer at random."""
MAX_WAIT = 60.0
POLL = 0.1
"""Seconds between looks at whether the work was stopped."""
MAX_ANSWER, MAX_ANSWER_PER_BYTE = 1 << 25, 64
"""The largest answer in bytes, and what each byte of the question adds to it. A prompt that is repeated with its
log-probabilities takes about 20 bytes for each of its own, a list of all tokens about 10 MB."""
AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses that may change by themselves."""
ADDRESS_STATUSES = (401, 403, 404)
"""Statuses that concern the key, the URL or the model's name."""
LOST = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)

Argument = TypeVar("Argument")
Returned = TypeVar("Returned")


class RefusedError(CcrankError):
    """The server understood the request and refuses it: another attempt would be in vain."""

    def __init__(self, message: str, status: int, problem: str) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem
        """What it answered, without its address."""

    @property
    def concerns_address(self) -> bool:
        """Whether the key, the URL or the model's name is at fault, so that no other form of the request would do."""
        return self.status in ADDRESS_STATUSES


class RefusedAddressError(RefusedError, UnavailableError):
    """The server refuses whatever is sent to this address with this key."""


class BadAnswerError(CcrankError):
    """The server gave an answer that is not of the form, or has a number out of the range, that the API promises."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could send the key to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Request(urllib.request.Request):
    """A request that knows its connection, so that another thread can shut it down."""

    given_up = False
    connection: socket.socket | None = None

    def connected(self, sock: socket.socket) -> None:
        """Remember the connection."""
        self.connection = sock
        if self.given_up:
            self.give_up()

    def give_up(self) -> None:
        """Shut the connection down: the thread that reads from it ends."""
        self.given_up = True
        if self.connection is not None:
            with suppress(OSError):
                # Not the method of an SSLSocket, which is not for two threads.
                socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class _Connecting(urllib.request.AbstractHTTPHandler):
    """Tells requests their connections."""

    def do_open(self, http_class: Any, req: Any, **http_conn_args: Any) -> Any:
        def connection(*arguments: Any, **more: Any) -> Any:
            http = http_class(*arguments, **more)
            connect = http.connect

            def connected() -> None:
                connect()
                req.connected(http.sock)

            http.connect = connected
            return http

        return super().do_open(connection, req, **http_conn_args)


class _HTTP(_Connecting, urllib.request.HTTPHandler):
    pass


class _HTTPS(_Connecting, urllib.request.HTTPSHandler):
    pass


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
        attempts: int = ATTEMPTS,
    ) -> None:
        self.address = address
        self.requests = int(_number(REQUESTS_VARIABLE, DEFAULT_REQUESTS)) if requests is None else requests
        self.timeout = _number(TIMEOUT_VARIABLE, DEFAULT_TIMEOUT) if timeout is None else timeout
        self.first_wait = FIRST_WAIT if first_wait is None else first_wait
        self.attempts = attempts
        """How often a request is sent that fails."""
        self._slots = threading.BoundedSemaphore(self.requests)
        self._key = (os.environ.get(KEY_VARIABLE, "") if key is None else key).strip()
        if not (self._key.isascii() and (self._key + "-").isprintable()):
            raise CcrankError(
                f"{KEY_VARIABLE} has characters that no key has: it is sent as a header, in ASCII"
            )
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), _HTTP(), _HTTPS()]
        if address.local:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)
        self._random = random.Random()
        self._found = False
        """Whether the server has answered before."""

    def get(self, path: str) -> Any:
        """The JSON that a GET request is answered with."""
        return self._request(self.address.base + path, None)

    def post(self, path: str, body: Mapping[str, Any], *, outside: bool = False) -> Any:
        """The JSON that a POST request is answered with."""
        return self._request((self.address.root if outside else self.address.base) + path, body)

    def each(
        self, work: Callable[[Argument], Returned], jobs: Sequence[Argument]
    ) -> Iterator[tuple[int, Returned]]:
        """(place, result) of each job as it is done, several at once; after an error, the others are dropped.

        All threads that call this share the number of requests that are under way.
        """
        todo: queue.SimpleQueue[tuple[int, Argument]] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Returned | BaseException]] = queue.SimpleQueue()
        for pair in enumerate(jobs):
            todo.put(pair)
        stopped = threading.Event()

        def stop() -> None:
            if stopped.is_set():
                raise Stopped

        def run() -> None:
            while not stopped.is_set():
                try:
                    index, job = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    with checked_by(stop):
                        done.put((index, work(job)))
                except BaseException as error:
                    # First, since others fail as soon as they are stopped: the error that counts is this one.
                    done.put((index, error))
                    stopped.set()

        # Nobody waits for these threads, so that an interrupted command ends at once, whatever the server does.
        for number in range(min(self.requests, len(jobs))):
            threading.Thread(target=run, name=f"ccrank-request-{number}", daemon=True).start()
        try:
            for _ in jobs:
                index, result = _awaited(done)
                if isinstance(result, BaseException):
                    raise result
                yield index, result
        finally:
            stopped.set()

    def hidden(self, text: str) -> str:
        """The text without the key, in case a server repeats it."""
        secrets = (self._key, self.address.credentials.removeprefix("Basic "), self.address.query)
        for secret in secrets:
            if secret:
                text = text.replace(secret, "***")
        return text

    def _request(self, url: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        most = MAX_ANSWER + MAX_ANSWER_PER_BYTE * len(data or b"")
        sent_to = f"{url}?{self.address.query}" if self.address.query else url
        problem, attempt = "was not asked", 0
        while attempt < self.attempts:
            asked: float | None = None
            while not self._slots.acquire(timeout=POLL):
                check()
            attempt += 1
            try:
                value = json.loads(self._answer(_Request(sent_to, data, self._headers()), most))
                self._found = True
                return value
            except urllib.error.HTTPError as error:
                self._found = True
                problem = f"answered {error.code}{self._reason(error)}"
                if error.code not in AGAIN:
                    kind = RefusedAddressError if error.code in ADDRESS_STATUSES else RefusedError
                    raise kind(
                        f"{url} {problem}{self._remedy(error.code, error.headers)}", error.code, problem
                    ) from None
                asked = _asked_wait(error.headers)
            except (ValueError, RecursionError) as error:
                self._found = True
                deep = isinstance(error, RecursionError)
                problem = f"answered with {'JSON that is nested too deep' if deep else 'something that is not JSON'}"
            except LOST as error:
                cause = error.reason if isinstance(error, urllib.error.URLError) else error
                problem = f"gave no answer ({one_line(self.hidden(str(cause) or type(cause).__name__), 120)})"
                if remedy := self._remedy_of_lasting(cause):
                    raise UnavailableError(f"{url} {problem}; {remedy}") from None
            finally:
                self._slots.release()
            if attempt < self.attempts:
                seconds = self.first_wait * 2 ** (attempt - 1) * self._random.uniform(1.0, 1.25)
                seconds = min(MAX_WAIT, max(seconds, asked or 0.0))
                log.info("%s %s; attempt %d in %.1f s", url, problem, attempt + 1, seconds)
                _pause(seconds)
        raise UnavailableError(
            f"{url} {problem}, after {attempt} attempt{'s' if attempt > 1 else ''}; see whether the server is up and "
            f"has this address, send fewer requests at once ({REQUESTS_VARIABLE}) or wait longer for answers "
            f"({TIMEOUT_VARIABLE}, seconds)"
        )

    def _answer(self, request: _Request, most: int) -> bytes:
        """The body of one answer; an error after the time-out, and at once when the work is no longer wanted.

        An error status is an HTTPError that holds its body.
        """
        done: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()

        def run() -> None:
            try:
                with self._opener.open(request, timeout=self.timeout) as reply:
                    done.put(_whole(reply, most))
            except urllib.error.HTTPError as error:
                with error:
                    try:
                        error.body = _whole(error, most)  # type: ignore[attr-defined]
                    except (CcrankError, ValueError, *LOST):
                        error.body = b""  # type: ignore[attr-defined]
                done.put(error)
            except BaseException as error:
                done.put(error)

        threading.Thread(target=run, name="ccrank-attempt", daemon=True).start()
        try:
            result = _awaited(done, self.timeout)
        finally:
            request.give_up()
        if isinstance(result, BaseException):
            raise result
        return result

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "ccrank"}
        if self.address.credentials:
            headers["Authorization"] = self.address.credentials
        elif self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _reason(self, error: urllib.error.HTTPError) -> str:
        """What the body of an error says, as an addition to its status."""
        try:
            body = json.loads(error.body)  # type: ignore[attr-defined]
            reason = body.get("error", body) if isinstance(body, dict) else body
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
        if isinstance(cause, http.client.InvalidURL):
            return "correct the address"
        # A name server can fail for a moment, and lose the name of a server that has answered.
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN and not self._found:
            return f"see whether the host's name is right: {urlsplit(self.address.base).hostname}"
        return None

    def _remedy(self, status: int, headers: Message) -> str:
        if status in (401, 403):
            return f"; set {KEY_VARIABLE} to a key of this server"
        if 300 <= status < 400:
            target = one_line(self.hidden(str(headers.get("Location", "nowhere"))), 300)
            return f": it points to {target}; give that address"
        if status == 404:
            return "; see whether the address is that of an OpenAI-compatible API, such as …/v1"
        return ""


def _awaited(done: queue.SimpleQueue[Returned], seconds: float = math.inf) -> Returned:
    """The next result, or an error after some seconds; while waiting, look whether the work is still wanted."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            return done.get(timeout=max(0.0, min(POLL, left)))
        except queue.Empty:
            check()
            if left <= 0:
                raise TimeoutError(f"timed out after {seconds:g} s") from None


def _pause(seconds: float) -> None:
    """Wait; meanwhile, look whether the work is still wanted."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(POLL, left))


def _whole(reply: Any, most: int) -> bytes:
    """The body; one that breaks off or is too long raises an error."""
    body: bytes = reply.read(most + 1)
    length = reply.headers.get("Content-Length")
    if len(body) > most:
        raise BadAnswerError(
            f"the server's answer has more than {most:,} bytes; this is not an answer of the API"
        )
    if length is not None and len(body) < int(length):
        raise http.client.IncompleteRead(body, int(length) - len(body))
    return body


def _asked_wait(headers: Message) -> float | None:
    """The seconds of Retry-After; None for a date or nothing."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        number = float(text or default)
    except ValueError:
        number = math.nan
    if not 1 <= number < 1e6:
        raise CcrankError(f"{variable} must be a number from 1 on, not {text!r}")
    return number
