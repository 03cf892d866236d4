"""The models that a server has open, each with the scheduler of its forward passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.methods.registry import methods_without_states
from ccrank.models import Reader, ReadingCache
from ccrank.models.load.known_models import StatusCallback, choices_of
from ccrank.models.remote import Address, Client, OpenModel, RemoteReader, is_remote, shown_name
from ccrank.models.remote.address import check_options
from ccrank.models.remote.server import ModelServer, served_model
from ccrank.server.responses import RequestError
from ccrank.server.settings import ServerSettings
from ccrank.server.work.scheduler import Pass, Scheduler, SharedEngine
from ccrank.server.work.worker_pool import Ticket
from ccrank.util.cancellation import held

ATTEMPTS = 3
"""Maximum attempts per request to the model's server: a client of this server waits meanwhile."""
CHECK_SECONDS = 10.0
"""How often the model's server is asked whether it has the same model, while readings are stored."""
READY_TIMEOUT = 2.0
"""Seconds in which a model's server that is ready says which models it has."""
READY_SECONDS = 5.0
"""How long that answer holds."""


@dataclass(frozen=True)
class ServedModel:
    """A model by the name that requests use."""

    name: str
    reader: Reader
    scheduler: Scheduler

    def reader_for(self, ticket: Ticket) -> Reader:
        """A reader for one request, whose passes are shared with other requests."""
        return self.reader.with_engine(SharedEngine(self.scheduler, ticket))

    def ready(self) -> bool:
        """Whether the model can be read now."""
        return self.scheduler.alive

    def about(self) -> dict[str, Any]:
        """What /v1/models says of it."""
        return {
            "id": self.name,
            "object": "model",
            "model": self.reader.name,
            "form": self.reader.form,
            "layers": self.reader.depth,
            "width": self.reader.width,
            "window": self.reader.loaded.window,
            "language_model_head": not self.reader.loaded.missing_head,
            "remote": False,
        }


class UpstreamModel:
    """A model behind another server, by the name that requests use.

    Requests share nothing but the number of requests that are under way there. If that server has another model than
    before, the request that finds out fails, and the next one reads the new model.
    """

    def __init__(self, name: str, reader: RemoteReader) -> None:
        self.name, self.reader = name, reader
        self._lock, self._ready_lock = threading.Lock(), threading.Lock()
        self._ready: tuple[float, bool] | None = None
        self._asking = Client(
            reader.server.client.address, requests=1, timeout=READY_TIMEOUT, attempts=1, first_wait=0.0
        )

    def reader_for(self, ticket: Ticket) -> RemoteReader:
        """The reader of a request; opened again if the server was found to have another model."""
        with held(self._lock):
            if self.reader.changed:
                self.reader = self.reader.reopened()
            return self.reader

    def ready(self) -> bool:
        """Whether the model's server says that it has the model; asked every few seconds at most."""
        with self._ready_lock:  # those that wait take the answer of the one that asks
            known = self._ready
            if known is not None and time.monotonic() - known[0] < READY_SECONDS:
                return known[1]
            try:
                served_model(self._asking)
                has_model = True
            except CcrankError:
                has_model = False
            self._ready = (time.monotonic(), has_model)
            return has_model

    def about(self) -> dict[str, Any]:
        """What /v1/models says of it."""
        return {
            "id": self.name,
            "object": "model",
            "model": self.reader.server.model,
            "form": self.reader.form,
            "layers": None,
            "width": None,
            "window": self.reader.window,
            "language_model_head": True,
            "remote": True,
            "methods": methods_without_states(),
        }


AnyModel = ServedModel | UpstreamModel
"""A model that was loaded here, or one behind another server."""


class ServedModels:
    """All models of a server; the first is the default."""

    def __init__(
        self, readers: Mapping[str, OpenModel], threads: int | None, report: Callable[[str, Pass], None]
    ) -> None:
        self._models: dict[str, AnyModel] = {}
        self._schedulers: list[Scheduler] = []
        for name, reader in readers.items():
            if reader.behind_server:
                self._models[name] = UpstreamModel(name, reader)
                continue

            def tell(done: Pass, name: str = name) -> None:
                report(name, done)

            self._schedulers.append(Scheduler(reader.engine, threads, tell))
            self._models[name] = ServedModel(name, reader, self._schedulers[-1])

    @property
    def alive(self) -> bool:
        """Whether every model that was loaded here can be read; other servers do not make this one unhealthy."""
        return all(scheduler.alive for scheduler in self._schedulers)

    def stalled(self, most: float) -> bool:
        """Whether requests wait for passes of some model and none ends; see `Scheduler.stalled`."""
        return any(scheduler.stalled(most) for scheduler in self._schedulers)

    def ready(self) -> bool:
        """Whether every model can be read now, those behind other servers included, which are asked."""
        return all(model.ready() for model in self._models.values())

    def all(self) -> list[AnyModel]:
        """The models, the default one first."""
        return [*self._models.values()]

    def get(self, name: str | None) -> AnyModel:
        """A model by its name; only those named at start can be reached."""
        if name is None:
            return self.all()[0]
        if name not in self._models:
            raise RequestError(
                404,
                "unknown_model",
                f"unknown model {name[:100]!r}; this server has {', '.join(self._models)}",
            )
        return self._models[name]

    def stop(self) -> None:
        """End the threads of all models."""
        for scheduler in self._schedulers:
            scheduler.stop()


def open_readers(settings: ServerSettings, say: StatusCallback = lambda _: None) -> dict[str, OpenModel]:
    """Open the models of the settings: name → reader. All share one cache of readings."""
    cache = ReadingCache() if settings.cache else None
    readers: dict[str, OpenModel] = {}
    named = [_named(given) for given in settings.models]
    check_options([model for _, model in named], settings.reader)
    for alias, model in named:
        folder = None if is_remote(model) or choices_of(model) else Path(model).expanduser()
        local = folder is not None and folder.exists()
        # Clients need not know where a model lies on this machine.
        name = alias or (folder.resolve().name if folder is not None and local else model)
        reader: OpenModel | None = None
        if is_remote(model):
            say(f"looking at {shown_name(model)}")
            name, reader = open_upstream(model, alias, cache)
        if name in readers:
            raise CcrankError(f"--model {name!r} is given twice; give one of them another name: ALIAS=MODEL")
        if reader is None:
            reader = Reader.open(model, settings.reader, cache=cache, say=say)
            if local:
                reader.loaded = replace(reader.loaded, name=name)
        readers[name] = reader
    if not readers:
        raise CcrankError("no model to serve; give one with --model")
    return readers


def _named(given: str) -> tuple[str | None, str]:
    """Alias and model of ALIAS=MODEL; the address of a server may have a = of its own."""
    alias, equals, model = given.partition("=")
    if not equals or is_remote(given):
        return None, given
    if not alias.strip() or not model.strip():
        raise CcrankError(f"--model {given!r}: give a model, or ALIAS=MODEL")
    return alias.strip(), model.strip()


def open_upstream(address: str, alias: str | None, cache: ReadingCache | None) -> tuple[str, RemoteReader]:
    """The name in requests and the reader of a model behind another server."""
    server = ModelServer.of(Client(Address.parse(address), attempts=ATTEMPTS))
    name = alias or server.model
    # Clients of this server need not know where the other one is.
    return name, RemoteReader(server, cache=cache, check_after=CHECK_SECONDS, shown_as=name)
