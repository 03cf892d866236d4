"""JSON over HTTP with retries; no answer and no error message ever contains a key."""

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
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import Message
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ccrank.errors import CcrankError, UnavailableError
from ccrank.remote.address import Address
from ccrank.text import one_line

log = logging.getLogger(__name__)

KEY_VARIABLE = "OPENAI_API_KEY"
REQUESTS_VARIABLE, DEFAULT_REQUESTS = "CCRANK_REQUESTS", 8
"""How many requests are under way at once."""
TIMEOUT_VARIABLE, DEFAULT_TIMEOUT = "CCRANK_TIMEOUT", 120
"""Seconds without an answer after which a request is sent again."""
ATTEMPTS = 6
FIRST_WAIT = 0.5
"""Seconds before the second attempt; each further wait is twice as long, and up to a quarter longer at random."""
LONGEST_WAIT = 60.0
POLL = 0.1
"""Seconds between looks at whether the work was stopped."""
LONGEST_ANSWER = 1 << 28
"""Bytes. More is no answer to a question of ours."""
AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses that may change by themselves."""
ADDRESS_STATUSES = (401, 403, 404)
"""Statuses that concern the key, the URL or the model's name."""
LOST = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)

Job = TypeVar("Job")
Result = TypeVar("Result")


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


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could send the key to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Client:
    """Sends requests to one server.

    Parameters
    ----------
    address
        The server.
    key
        The API key; None takes that of the environment.
    requests
        How many requests may be under way at once; None takes the environment's number.
    timeout
        Seconds to wait for an answer; None takes the environment's number.
    first_wait
        Seconds before the second attempt; None takes the usual ones.
    attempts
        How often a request is sent that fails.
    """

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
        self._slots = threading.BoundedSemaphore(self.requests)
        self._key = (os.environ.get(KEY_VARIABLE, "") if key is None else key).strip()
        self._thread = threading.local()
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if address.local:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)
        self._random = random.Random()
        self._found = False
        """Whether the server has answered before."""

    def get(self, path: str) -> Any:
        """The JSON that a GET request is answered with.

        Parameters
        ----------
        path
            Below the API's URL, such as "/models".
        """
        return self._request(self.address.base + path, None)

    def post(self, path: str, body: Mapping[str, Any], *, outside: bool = False) -> Any:
        """The JSON that a POST request is answered with.

        Parameters
        ----------
        path
            Below the API's URL, such as "/completions".
        body
            What is sent, as JSON.
        outside
            The path is below the server's own URL instead.
        """
        return self._request((self.address.root if outside else self.address.base) + path, body)

    def each(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """(place, result) of each job as it is done, several at once; after an error, the others are dropped.

        All threads that call this share the number of requests that are under way.

        Parameters
        ----------
        work
            What to do, in a thread.
        jobs
            What to do it with.
        """
        todo: queue.SimpleQueue[tuple[int, Job]] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Result | BaseException]] = queue.SimpleQueue()
        for pair in enumerate(jobs):
            todo.put(pair)
        stopped = threading.Event()

        def run() -> None:
            self._thread.stopped = stopped
            while not stopped.is_set():
                try:
                    place, job = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    done.put((place, work(job)))
                except BaseException as error:
                    # First, since others fail as soon as they are stopped: the error that counts is this one.
                    done.put((place, error))
                    stopped.set()

        # Nobody waits for these threads, so that an interrupted command ends at once, whatever the server does.
        for number in range(min(self.requests, len(jobs))):
            threading.Thread(target=run, name=f"ccrank-request-{number}", daemon=True).start()
        try:
            for _ in jobs:
                place, result = _awaited(done)
                if isinstance(result, BaseException):
                    raise result
                yield place, result
        finally:
            stopped.set()

    def hidden(self, text: str) -> str:
        """The text without the key, in case a server repeats it.

        Parameters
        ----------
        text
            Any text.
        """
        secrets = (self._key, self.address.credentials.removeprefix("Basic "), self.address.query)
        for secret in secrets:
            if secret:
                text = text.replace(secret, "***")
        return text

    def _request(self, url: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{url}?{self.address.query}" if self.address.query else url, data, self._headers()
        )
        stopped: threading.Event = getattr(self._thread, "stopped", None) or threading.Event()
        problem, attempt = "was not asked", 0
        while attempt < self.attempts:
            asked: float | None = None
            while not self._slots.acquire(timeout=POLL):
                if stopped.is_set():
                    raise UnavailableError(f"{url} {problem}: the work was stopped")
            attempt += 1
            try:
                with self._opener.open(request, timeout=self.timeout) as reply:
                    self._found = True
                    return json.loads(_whole(reply))
            except urllib.error.HTTPError as error:
                self._found = True
                problem = f"answered {error.code}{self._reason(error)}"
                if error.code not in AGAIN:
                    kind = RefusedAddressError if error.code in ADDRESS_STATUSES else RefusedError
                    raise kind(
                        f"{url} {problem}{self._remedy(error.code, error.headers)}", error.code, problem
                    ) from None
                asked = _asked_wait(error.headers)
            except ValueError:
                problem = "answered with something that is no JSON"
            except LOST as error:
                cause = error.reason if isinstance(error, urllib.error.URLError) else error
                problem = f"gave no answer ({self.hidden(one_line(str(cause) or type(cause).__name__, 120))})"
                if remedy := self._remedy_of_lasting(cause):
                    raise UnavailableError(f"{url} {problem}; {remedy}") from None
            finally:
                self._slots.release()
            if attempt < self.attempts:
                seconds = self.first_wait * 2 ** (attempt - 1) * self._random.uniform(1.0, 1.25)
                seconds = min(LONGEST_WAIT, max(seconds, asked or 0.0))
                log.info("%s %s; attempt %d in %.1f s", url, problem, attempt + 1, seconds)
                if stopped.wait(seconds):
                    break
        raise UnavailableError(
            f"{url} {problem}, after {attempt} attempt{'s' if attempt > 1 else ''}; see whether the server is up and "
            f"has this address, send fewer requests at once ({REQUESTS_VARIABLE}) or wait longer for answers "
            f"({TIMEOUT_VARIABLE}, seconds)"
        )

    def _headers(self) -> dict[str, str]:
        found = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "ccrank"}
        if self.address.credentials:
            found["Authorization"] = self.address.credentials
        elif self._key:
            found["Authorization"] = f"Bearer {self._key}"
        return found

    def _reason(self, error: urllib.error.HTTPError) -> str:
        """What the body of an error says, as an addition to its status."""
        try:
            body = json.loads(_whole(error))
        except (ValueError, *LOST):
            return ""
        found = body.get("error", body) if isinstance(body, dict) else body
        if isinstance(found, dict):
            found = found.get("message") or found.get("detail") or found
        return f": {self.hidden(one_line(str(found), 300))}"

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
            return f": it points to {self.hidden(str(headers.get('Location', 'nowhere')))}; give that address"
        if status == 404:
            return "; see whether the address is that of an OpenAI-compatible API, such as …/v1"
        return ""


def _awaited(done: queue.SimpleQueue[Result]) -> Result:
    """The next result. Python raises an exception that another thread asked for only where this one is awake."""
    while True:
        try:
            return done.get(timeout=POLL)
        except queue.Empty:
            continue


def _whole(reply: Any) -> bytes:
    """The body; one that breaks off raises an error."""
    body: bytes = reply.read(LONGEST_ANSWER + 1)
    length = reply.headers.get("Content-Length")
    if len(body) > LONGEST_ANSWER:
        raise CcrankError(
            f"the server's answer has more than {LONGEST_ANSWER:,} bytes; it is no answer to ccrank"
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
