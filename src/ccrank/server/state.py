"""What all routes of an application share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from ccrank.server.metrics import Metrics
from ccrank.server.settings import ServerSettings
from ccrank.server.work.active_labels import ReadLists
from ccrank.server.work.open_models import ServedModels
from ccrank.server.work.worker_pool import Workers

if TYPE_CHECKING:
    from ccrank.server.routes.score import ServedScale


@dataclass
class ServerState:
    """The settings, the open models and the threads of a server."""

    settings: ServerSettings
    models: ServedModels
    workers: Workers
    metrics: Metrics
    scales: Mapping[str, ServedScale] = field(default_factory=dict)
    """By the names that requests use, the default one first."""
    lists: ReadLists = field(default_factory=ReadLists)
    """What was read of the lists that questions are asked about."""
    _draining: bool = False

    @property
    def draining(self) -> bool:
        """Whether the server is about to stop, so that no new work should come."""
        return self._draining

    @draining.setter
    def draining(self, value: bool) -> None:
        if value and not self._draining:
            # A little earlier than connections are closed, so that every client, and every stream, is told why.
            self.workers.drain(max(1.0, self.settings.drain) - min(2.0, max(1.0, self.settings.drain) / 2))
        self._draining = value


def state_of(request: HTTPConnection) -> ServerState:
    """The state of the application that serves a request."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state
