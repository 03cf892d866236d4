"""What every test gets: no network, no cache but its own, and the real default model for those that are marked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ccrank.models import Reader

# Read by huggingface_hub when it is first imported, so it has to stand here and not in a fixture.
os.environ["HF_HUB_OFFLINE"] = "1"

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # a GPU machine may run the tests marked `gpu` without it
    pass
else:
    # A busy machine is no counterexample.
    settings.register_profile("ccrank", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("ccrank")


def pytest_configure(config: pytest.Config) -> None:
    """Tiny models deserve no confidence, so their warnings say nothing.

    In pyproject.toml this filter would import the package before coverage is measured.
    """
    config.addinivalue_line("filterwarnings", "ignore::ccrank.CcrankWarning")


@pytest.fixture(autouse=True)
def no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models with random weights would fail the check of their first load; the tests of that check turn it on."""
    monkeypatch.setenv("CCRANK_CHECK", "no")


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A separate cache folder for every test, so that none uses the user's; `real` tests use the user's."""
    if request.node.get_closest_marker("real") is None:
        base = tmp_path_factory.getbasetemp()
        monkeypatch.setenv("CCRANK_CACHE", str(Path(base, "caches", f"{abs(hash(request.node.nodeid)):x}")))


@pytest.fixture(scope="session")
def default_reader() -> Reader:
    """The default model from the disk, without a cache of readings; fetched beforehand, never by a test."""
    from ccrank.errors import CcrankError
    from ccrank.models import Reader

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        try:
            reader = Reader.open("default")
        except CcrankError as error:
            pytest.skip(f"the default model is not on this machine: {error}")
    return reader
