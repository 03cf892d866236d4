"""An application on a tiny model, and a client of it in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the server needs the extra `server`")

from fastapi.testclient import TestClient
from tiny import tiny_reader

from ccrank.server.app import create_app
from ccrank.server.settings import ServerSettings


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client of a server with one tiny model, named "tiny"."""
    with TestClient(create_app(ServerSettings(), {"tiny": tiny_reader()}), "http://localhost") as client:
        yield client
