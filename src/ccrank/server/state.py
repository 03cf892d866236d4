"""What all routes of an application share."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from ccrank.server.metrics import Metrics
from ccrank.server.models import ServedModels
from ccrank.server.settings import ServerSettings
from ccrank.server.teaching import ReadLists
from ccrank.server.work import Workers


@dataclass
class ServerState:
    """The settings, the open models and the threads of a server."""

    settings: ServerSettings
    models: ServedModels
    workers: Workers
    metrics: Metrics
    lists: ReadLists = field(default_factory=ReadLists)
    """What was read of the lists that questions are asked about."""
    draining: bool = False
    """Whether the server is about to stop, so that no new work should come."""


def state_of(request: HTTPConnection) -> ServerState:
    """The state of the application that serves a request.

    Parameters
    ----------
    request
        Any request.
    """
    found = request.app.state.server
    assert isinstance(found, ServerState)
    return found
