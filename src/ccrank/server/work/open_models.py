"""The models that a server has open, each with the scheduler of its forward passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm import Reader, ReadingCache
from ccrank.lm.hub import Say
from ccrank.lm.listed import ListedEngine
from ccrank.remote import OpenModel, RemoteReader, is_remote, shown_name
from ccrank.remote.options import check_options
from ccrank.server.replies import RequestError
from ccrank.server.scheduler import Pass, Scheduler, SharedEngine
from ccrank.server.settings import ServerSettings
from ccrank.server.stopping import Ticket
from ccrank.server.upstream import UpstreamModel, open_upstream


@dataclass(frozen=True)
class ServedModel:
    """A model by the name that requests use."""

    name: str
    reader: Reader
    scheduler: Scheduler

    def reader_for(self, ticket: Ticket) -> Reader:
        """A reader for one request, whose passes are shared with other requests.

        Parameters
        ----------
        ticket
            The request.
        """
        return self.reader.with_engine(SharedEngine(self.scheduler, ticket))

    @property
    def alive(self) -> bool:
        """Whether the model can be read."""
        return self.scheduler.alive

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
            if isinstance(reader, RemoteReader):
                self._models[name] = UpstreamModel(name, reader)
                continue

            def tell(done: Pass, name: str = name) -> None:
                report(name, done)

            self._models[name] = ServedModel(
                name, reader, Scheduler(ListedEngine(reader.engine), threads, tell)
            )

    @property
    def names(self) -> list[str]:
        """The names that requests may use."""
        return [*self._models]

    @property
    def alive(self) -> bool:
        """Whether every model can be read."""
        return all(model.alive for model in self._models.values())

    def ready(self) -> bool:
        """Whether every model can be read now, those behind other servers included, which are asked."""
        return all(model.ready() for model in self._models.values())

    def all(self) -> list[AnyModel]:
        """The models, the default one first."""
        return [*self._models.values()]

    def get(self, name: str | None) -> AnyModel:
        """A model by its name; only those named at start can be reached.

        Parameters
        ----------
        name
            The name; None is the default model.
        """
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


def open_readers(settings: ServerSettings, say: Say = lambda _: None) -> dict[str, OpenModel]:
    """Open the models of the settings: name → reader. All share one cache of readings.

    Parameters
    ----------
    settings
        Names the models and how to load them.
    say
        Called with a short status message before anything slow.
    """
    cache = ReadingCache() if settings.cache else None
    readers: dict[str, OpenModel] = {}
    named = [_named(given) for given in settings.models]
    check_options([model for _, model in named], settings.reader)
    for alias, model in named:
        name, reader = alias or model, None
        if is_remote(model):
            say(f"looking at {shown_name(model)}")
            name, reader = open_upstream(model, alias, cache)
        if name in readers:
            raise CcrankError(f"--model {name!r} is given twice; give one of them another name: ALIAS=MODEL")
        readers[name] = reader or Reader.open(model, settings.reader, cache=cache, say=say)
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
