"""The models and scales that a server has open, by the names that requests use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ccrank.errors import CcrankError
from ccrank.jury import SEPARATOR
from ccrank.methods.registry import methods_without_states
from ccrank.models import Reader, ReadingCache
from ccrank.models.load.catalog import StatusCallback, choices_of
from ccrank.models.remote import Address, Client, OpenModel, RemoteReader, is_remote, shown_name
from ccrank.models.remote.address import check_options
from ccrank.models.remote.server import ModelServer, served_model
from ccrank.scale import Scale
from ccrank.scale.stored import identity_of
from ccrank.server.settings import ServerSettings
from ccrank.server.work.scheduler import Scheduler, SharedEngine
from ccrank.server.work.worker_pool import Ticket
from ccrank.util.cancellation import held
from ccrank.util.files import expanded

ATTEMPTS = 3
"""Maximum attempts per request to the model's server, while a client of this server waits."""
CHECK_SECONDS = 10.0
"""How often the model's server is asked whether it has the same model, while readings are stored."""
READY_TIMEOUT = 2.0
"""Timeout of that question, in seconds."""
READY_SECONDS = 5.0
"""Seconds for which its answer is reused."""


class ServedModel:
    """A model by the name that requests use: loaded here, with the scheduler of its passes, or behind another server.

    Requests share the bound on concurrent requests to another server, and no passes. If that server has another model
    than before, the request that finds out fails, and the next one reads the new model.
    """

    def __init__(
        self,
        name: str,
        reader: OpenModel,
        threads: int | None,
        report: Callable[[str, int, int, float], None],
    ) -> None:
        self.name, self.reader = name, reader
        self.scheduler = (
            None if reader.behind_server else Scheduler(reader.engine, threads, partial(report, name))
        )
        self._lock, self._ready_lock = threading.Lock(), threading.Lock()
        self._ready: tuple[float, bool] | None = None

    def reader_for(self, ticket: Ticket) -> OpenModel:
        """A reader for one request; one behind a server is opened again if it was found to have another model."""
        if not self.reader.behind_server:
            assert self.scheduler is not None
            return self.reader.with_engine(SharedEngine(self.scheduler, ticket))
        with held(self._lock):
            if self.reader.changed:
                self.reader = self.reader.reopened()
            return self.reader

    @property
    def alive(self) -> bool:
        """Whether the model can be read, if it was loaded here: other servers do not make this one unhealthy."""
        return self.scheduler is None or self.scheduler.alive

    def stalled(self, most: float) -> bool:
        """Whether one of its passes does not end; see `Scheduler.stalled`."""
        return self.scheduler is not None and self.scheduler.stalled(most)

    def ready(self) -> bool:
        """Whether the model can be read now; its server is asked, every few seconds at most."""
        if not self.reader.behind_server:
            return self.alive
        with self._ready_lock:  # threads that wait here share one answer
            if self._ready is None or time.monotonic() - self._ready[0] >= READY_SECONDS:
                address = self.reader.server.client.address
                try:
                    served_model(
                        Client(address, requests=1, timeout=READY_TIMEOUT, attempts=1, first_wait=0.0)
                    )
                    has_model = True
                except CcrankError:
                    has_model = False
                self._ready = (time.monotonic(), has_model)
            return self._ready[1]

    def about(self) -> dict[str, Any]:
        """Its entry in /v1/models."""
        reader = self.reader
        common = {"id": self.name, "object": "model", "form": reader.form, "remote": reader.behind_server}
        if reader.behind_server:
            size = {"layers": None, "width": None, "window": reader.window, "language_model_head": True}
            return {**common, **size, "model": reader.server.model, "methods": methods_without_states()}
        return {
            **common,
            "model": reader.name,
            "layers": reader.depth,
            "width": reader.width,
            "window": reader.loaded.window,
            "language_model_head": not reader.loaded.missing_head,
        }


def open_readers(settings: ServerSettings, say: StatusCallback = lambda _: None) -> dict[str, OpenModel]:
    """Open the models of the settings: name → reader. All share one cache of readings."""
    cache = ReadingCache() if settings.cache else None
    readers: dict[str, OpenModel] = {}
    named = [_named(given) for given in settings.models]
    check_options([model for _, model in named], settings.reader)
    for alias, model in named:
        if is_remote(model):
            say(f"looking at {shown_name(model)}")
            server = ModelServer.of(Client(Address.parse(model), attempts=ATTEMPTS))
            name = alias or server.model
        else:
            # Clients do not get the path of a model.
            folder = None if choices_of(model) else expanded(model)
            local = folder is not None and folder.exists()
            name = alias or (folder.resolve().name if folder is not None and local else model)
        if name in readers:
            raise CcrankError(f"--model {name!r} is given twice; give one of them another name: ALIAS=MODEL")
        if is_remote(model):
            # Nor the address of the other server.
            readers[name] = RemoteReader(server, cache=cache, check_after=CHECK_SECONDS, shown_as=name)
            continue
        reader = readers[name] = Reader.open(model, settings.reader, cache=cache, say=say)
        if local:
            reader.loaded = replace(reader.loaded, name=name)
    if not readers:
        raise CcrankError("no model to serve; give one with --model")
    return readers


def _named(given: str) -> tuple[str | None, str]:
    """Alias and model of ALIAS=MODEL; the address of a server may contain =."""
    alias, equals, model = given.partition("=")
    if not equals or is_remote(given):
        return None, given
    if not alias.strip() or not model.strip():
        raise CcrankError(f"--model {given!r}: give a model, or ALIAS=MODEL")
    return alias.strip(), model.strip()


@dataclass(frozen=True)
class ServedScale:
    """A scale by the name that requests use."""

    name: str
    scale: Scale
    models: tuple[str, ...]
    """The served names of its models."""

    @property
    def model(self) -> str:
        """Their names, joined."""
        return SEPARATOR.join(self.models)

    def about(self) -> dict[str, Any]:
        """Its entry in /v1/scales."""
        notes = self.scale.notes
        return {
            "id": self.name,
            "object": "scale",
            "criterion": notes.criterion.to_json(),
            "method": notes.method,
            "model": self.model,
            "items": len(self.scale),
            "directed": notes.directed,
            "deviations": self.scale.gives_deviations,
            "warnings": list(notes.warnings),
        }


def open_scales(settings: ServerSettings, readers: Mapping[str, OpenModel]) -> dict[str, ServedScale]:
    """The scales of the settings, NAME=FILE each, with the served models that they were fitted on."""
    scales: dict[str, ServedScale] = {}
    for given in settings.scales:
        name, _, file = (part.strip() for part in given.partition("="))
        if not name or not file:
            raise CcrankError(f"--scale {given!r}: give NAME=FILE, such as polite=politeness.scale")
        scale = Scale.load(expanded(file))
        identities = [member.notes.identity for member in scale.members or (scale,)]
        named = {identity_of(reader): model for model, reader in reversed([*readers.items()])}
        if any(identity not in named for identity in identities):
            raise CcrankError(
                f"--scale {given}: it was fitted on the model {scale.notes.model}, and this server has "
                f"{', '.join(readers)}; serve it with --model"
            )
        models = tuple(named[identity] for identity in identities)
        scale.with_reader(*(readers[model] for model in models))  # checks them
        if name in scales:
            raise CcrankError(f"--scale {name} is given twice; give one of them another name")
        scales[name] = ServedScale(name, scale, models)
    return scales
