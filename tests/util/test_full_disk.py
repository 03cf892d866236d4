"""A full disk: a cache is switched off and changes no result; results that cannot be written are named."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny import pair_prompts, tiny_model

from ccrank.errors import CcrankError
from ccrank.models import Reader, ReadingCache
from ccrank.task import Criterion, Task
from ccrank.util.files import write_atomically

TASK = Task(Criterion("size"), tuple(f"thing {one}" for one in range(8)))


@pytest.mark.parametrize("pages", [2, 8])
def test_a_full_disk_costs_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pages: int
):
    """When the cache cannot grow, at once or after some entries, readings are as without one, and a warning says
    that it is off. SQLite gives the error of a full disk at the page limit of a file."""
    opened = ReadingCache._open

    def on_a_small_disk(self: ReadingCache) -> sqlite3.Connection:
        connection = opened(self)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(ReadingCache, "_open", on_a_small_disk)
    prompts = pair_prompts(TASK)
    plain = Reader(tiny_model("llama")).read(prompts, ["Yes", "No"], layers="all")
    reader = Reader(tiny_model("llama"), cache=ReadingCache(tmp_path))
    with caplog.at_level(logging.WARNING):
        for count in (3, len(prompts), len(prompts)):
            found = reader.read(prompts[:count], ["Yes", "No"], layers="all")
            assert np.allclose(found.logits, plain.logits[:count], atol=1e-5)
            assert np.allclose(found.states, plain.states[:count], atol=1e-5)
    assert "disk is full" in caplog.text
    assert "continuing without it" in caplog.text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named():
    """Output that does not fit on the disk is a CcrankError that names the file and the cause."""
    with pytest.raises(CcrankError, match=r"/dev/full: No space left"):
        write_atomically("/dev/full", b"x" * 100_000)


LIMITED = """
import resource, signal, sys
from ccrank.errors import CcrankError
from ccrank.util.files import write_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing beyond the limit then fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_atomically(sys.argv[1], b"new" * 10_000)
except CcrankError as error:
    sys.exit(f"refused: {error}")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_results_that_do_not_fit_leave_the_old_ones(tmp_path: Path):
    """A file that cannot be written whole is not replaced, and nothing half written is left beside it."""
    path = tmp_path / "results.csv"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    assert "refused: cannot write" in done.stderr
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]
