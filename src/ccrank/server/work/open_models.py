"""The models that a server has open, each with the scheduler of its forward passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.models import Reader, ReadingCache
from ccrank.models.load.known_models import StatusCallback, choices_of
from ccrank.models.remote import OpenModel, is_remote, shown_name
from ccrank.models.remote.address import check_options
from ccrank.server.responses import RequestError
from ccrank.server.settings import ServerSettings
from ccrank.server.work.request_cancellation import Ticket
from ccrank.server.work.scheduler import Pass, Scheduler, SharedEngine
from ccrank.server.work.upstream import UpstreamModel, open_upstream


@dataclass(frozen=True)
class ServedModel:
    """A model by the name that requests use."""

    name: str
    reader: Reader
    scheduler: Scheduler

    def reader_for(self, ticket: Ticket) -> Reader:
        """A reader for one request, whose passes are shared with other requests."""
        return self.reader.with_engine(SharedEngine(self.scheduler, ticket))

    @property
    def alive(self) -> bool:
        """Whether the model can be read."""
        return self.scheduler.alive

    def stalled(self, most: float) -> bool:
        """Whether requests wait for passes and none ends; see `Scheduler.stalled`."""
        return self.scheduler.stalled(most)

    def ready(self) -> bool:
        """Whether the model can be read now."""
        return self.alive

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

    def stop(self) -> None:
        """End its thread."""
        self.scheduler.stop()


AnyModel = ServedModel | UpstreamModel
"""A model that was loaded here, or one behind another server."""


class ServedModels:
    """All models of a server; the first is the default.

    Parameters
    ----------
    readers
        Name → an open model.
    threads
        Torch's threads in a pass.
    report
        Called after each pass with the model's name.
    """

    def __init__(
        self, readers: Mapping[str, OpenModel], threads: int | None, report: Callable[[str, Pass], None]
    ) -> None:
        self._models: dict[str, AnyModel] = {}
        for name, reader in readers.items():
            if reader.behind_server:
                self._models[name] = UpstreamModel(name, reader)
                continue

            def tell(done: Pass, name: str = name) -> None:
                report(name, done)

            self._models[name] = ServedModel(name, reader, Scheduler(reader.engine, threads, tell))

    @property
    def names(self) -> list[str]:
        """The names that requests may use."""
        return [*self._models]

    @property
    def alive(self) -> bool:
        """Whether every model can be read."""
        return all(model.alive for model in self._models.values())

    def stalled(self, most: float) -> bool:
        """Whether requests wait for passes of some model and none ends."""
        return any(isinstance(model, ServedModel) and model.stalled(most) for model in self._models.values())

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
                404, "unknown_model", f"unknown model {name[:100]!r}; this server has {', '.join(self.names)}"
            )
        return self._models[name]

    def stop(self) -> None:
        """End the threads of all models."""
        for model in self._models.values():
            model.stop()


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
