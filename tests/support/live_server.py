"""A server on a real port, in a thread of this process, and an engine that tests can hold."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tiny import tiny_reader

from ccrank.models import Reader
from ccrank.models.engine.engine import EngineLike
from ccrank.models.engine.read_targets import EngineOutput, Inputs, Points
from ccrank.server.app import Server, configured, create_app
from ccrank.server.settings import ServerSettings
from ccrank.server.state import ServerState

PATIENCE = 180.0
"""Seconds that a condition may take on a busy machine."""


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.002)


class HeldEngine:
    """An engine whose passes wait until they are let through, and that can fail."""

    def __init__(self, engine: EngineLike) -> None:
        self.engine = engine
        self.open = threading.Event()
        self.open.set()
        self.begun = 0
        self.error: BaseException | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: Any = None
    ) -> EngineOutput:
        """A pass of the engine."""
        self.begun += 1
        assert self.open.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.engine.run(inputs, points, layers, progress)


def held_reader() -> tuple[Reader, HeldEngine]:
    """A reader of a tiny model, and its engine."""
    reader = tiny_reader()
    engine = HeldEngine(reader.engine)
    return reader.with_engine(engine), engine


@contextmanager
def running(settings: ServerSettings, reader: Reader) -> Iterator[tuple[str, ServerState]]:
    """A server on a free port of this machine: (its address, its state)."""
    settings = replace(settings, drain=min(settings.drain, 5))
    app = create_app(settings, {"tiny": reader})
    bound = socket.create_server(("127.0.0.1", 0))
    server = Server(configured(app, settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}", app.state.server
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
