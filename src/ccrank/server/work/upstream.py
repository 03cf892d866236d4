"""A model behind another server, in front of which this one ranks."""

from __future__ import annotations

import threading
import time
from typing import Any

from ccrank.errors import CcrankError
from ccrank.models import ReadingCache
from ccrank.models.remote import Address, Client, RemoteReader
from ccrank.models.remote.client import POLL
from ccrank.models.remote.remote_reader import METHODS
from ccrank.models.remote.server import ModelServer, served_model
from ccrank.server.work.request_cancellation import Ticket

ATTEMPTS = 3
"""A request to the model's server is sent up to so many times: a client of this server waits meanwhile."""
CHECK_SECONDS = 10.0
"""How often the model's server is asked whether it has the same model, while readings are stored."""
READY_TIMEOUT = 2.0
"""Seconds in which a model's server that is ready says which models it has."""
READY_SECONDS = 5.0
"""How long that answer holds."""


class UpstreamModel:
    """A model behind another server, by the name that requests use.

    Requests share nothing but the number of requests that are under way there. If that server has another model than
    before, the request that finds out fails, and the next one reads the new model.

    Parameters
    ----------
    name
        The name in requests.
    reader
        The model.
    """

    def __init__(self, name: str, reader: RemoteReader) -> None:
        self.name = name
        self._reader = reader
        self._lock, self._ready_lock = threading.Lock(), threading.Lock()
        self._ready: tuple[float, bool] | None = None
        self._asking = Client(
            reader.server.client.address, requests=1, timeout=READY_TIMEOUT, attempts=1, first_wait=0.0
        )

    @property
    def reader(self) -> RemoteReader:
        """The model as it was opened last."""
        return self._reader

    @property
    def alive(self) -> bool:
        """Always: whether the model's server works is no concern of this process's health."""
        return True

    def reader_for(self, ticket: Ticket) -> RemoteReader:
        """The reader of a request."""
        while not self._lock.acquire(timeout=POLL):
            ticket.check()
        try:
            if self._reader.changed:
                self._reader = self._reader.reopened()
            return self._reader
        finally:
            self._lock.release()

    def ready(self) -> bool:
        """Whether the model's server says that it has the model; asked every few seconds at most."""
        with self._ready_lock:  # those that wait take the answer of the one that asks
            known = self._ready
            if known is not None and time.monotonic() - known[0] < READY_SECONDS:
                return known[1]
            try:
                served_model(self._asking)
                found = True
            except CcrankError:
                found = False
            self._ready = (time.monotonic(), found)
            return found

    def about(self) -> dict[str, Any]:
        """What /v1/models says of it."""
        return {
            "id": self.name,
            "object": "model",
            "model": self._reader.server.model,
            "form": self._reader.form,
            "layers": None,
            "width": None,
            "window": self._reader.window,
            "language_model_head": True,
            "remote": True,
            "methods": [*METHODS],
        }

    def stop(self) -> None:
        """Nothing to do: requests in threads of their own end with the process."""


def open_upstream(address: str, alias: str | None, cache: ReadingCache | None) -> tuple[str, RemoteReader]:
    """The name in requests and the reader of a model behind another server."""
    server = ModelServer.of(Client(Address.parse(address), attempts=ATTEMPTS))
    name = alias or server.model
    # Clients of this server need not know where the other one is.
    return name, RemoteReader(server, cache=cache, check_after=CHECK_SECONDS, shown_as=name)
