"""Whichever file operation of a write fails, or is the last of a process: the file is the old one or the new one."""

from __future__ import annotations

import stat
from itertools import count
from pathlib import Path

import pytest
from faults import MODES, KilledError, faults

from ccrank.errors import CcrankError
from ccrank.util.files import Content, write_atomically

CONTENTS: dict[str, Content] = {
    "bytes": b"new" * 50_000,
    "text": "new" * 50_000,
    "pieces": ["new"] * 50_000,
    "a function": lambda partial: partial.write_text("new" * 50_000),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CONTENTS)
def test_every_operation_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
) -> None:
    """Without an error it is the new one, with its permissions kept. What is left beside it is a hidden part, and only
    where the process ended or could not delete it; the next write gives the new file."""
    for at in count(1):
        folder = tmp_path / str(at)
        folder.mkdir()
        path = folder / "out.csv"
        path.write_text("old")
        path.chmod(0o600)
        error: BaseException | None = None
        with faults(monkeypatch, folder, at, mode) as shim:
            try:
                write_atomically(path, CONTENTS[kind], sync=True)
            except (CcrankError, KilledError) as raised:
                error = raised
        assert path.read_text() in ("new" * 50_000, *(["old"] if error else []))
        assert (error is None) == (not shim.reached)
        assert isinstance(error, (CcrankError, type(None))) == (mode != "killed" or not shim.reached)
        left = [one for one in folder.iterdir() if one != path]
        assert not left or (shim.reached and all(one.name.startswith(".out.csv.") for one in left))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        write_atomically(path, CONTENTS[kind])
        assert path.read_text() == "new" * 50_000
        if not shim.reached:
            break
    assert at > 5
