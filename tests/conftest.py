"""What every test gets: no network, no cache but its own, and the real default model for those that are marked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Read by huggingface_hub when it is first imported, so it has to stand here and not in a fixture.
os.environ["HF_HUB_OFFLINE"] = "1"

from ccrank.errors import CcrankError
from ccrank.lm import Reader


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A cache folder of its own for every test, so that none sees or soils the user's; `real` tests keep the real one."""
    if request.node.get_closest_marker("real") is None:
        base = tmp_path_factory.getbasetemp()
        monkeypatch.setenv("CCRANK_CACHE", str(Path(base, "caches", f"{abs(hash(request.node.nodeid)):x}")))


@pytest.fixture(scope="session")
def default_reader() -> Iterator[Reader]:
    """The default model from the disk, without a cache of readings; fetched beforehand, never by a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        try:
            reader = Reader.open("default")
        except CcrankError as error:
            pytest.skip(f"the default model is not on this machine: {error}")
    yield reader
