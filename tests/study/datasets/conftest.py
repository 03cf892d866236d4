"""Where the tests of the datasets find the public data files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of data files: CCRANK_DATA, or `shared/data` next to the repository."""
    named = os.environ.get("CCRANK_DATA")
    folder = Path(named) if named else Path(__file__).parents[4] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(
            f"no data files: {folder} is not a folder; set CCRANK_DATA to one (see docs/reference/file-formats.md)"
        )
    return folder
