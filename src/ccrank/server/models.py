"""The models that a server has open, each with the scheduler of its forward passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ccrank.errors import CcrankError
from ccrank.lm import Reader, ReadingCache
from ccrank.lm.hub import Say
from ccrank.lm.listed import ListedEngine
from ccrank.server.replies import RequestError
from ccrank.server.scheduler import Pass, Scheduler, SharedEngine
from ccrank.server.settings import ServerSettings
from ccrank.server.stopping import Ticket


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
        self, readers: Mapping[str, Reader], threads: int | None, report: Callable[[str, Pass], None]
    ) -> None:
        self._models: dict[str, ServedModel] = {}
        for name, reader in readers.items():

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
        return all(model.scheduler.alive for model in self._models.values())

    def all(self) -> list[ServedModel]:
        """The models, the default one first."""
        return [*self._models.values()]

    def get(self, name: str | None) -> ServedModel:
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
            model.scheduler.stop()


def open_readers(settings: ServerSettings, say: Say = lambda _: None) -> dict[str, Reader]:
    """Open the models of the settings: name → reader. All share one cache of readings.

    Parameters
    ----------
    settings
        Names the models and how to load them.
    say
        Called with a short status message before anything slow.
    """
    cache = ReadingCache() if settings.cache else None
    readers: dict[str, Reader] = {}
    for given in settings.models:
        alias, equals, model = given.partition("=")
        name, model = (alias.strip(), model.strip()) if equals else (given, given)
        if not name or not model:
            raise CcrankError(f"--model {given!r}: give a model, or ALIAS=MODEL")
        if name in readers:
            raise CcrankError(f"--model {name!r} is given twice; give one of them another name: ALIAS=MODEL")
        readers[name] = Reader.open(model, settings.reader, cache=cache, say=say)
    if not readers:
        raise CcrankError("no model to serve; give one with --model")
    return readers
