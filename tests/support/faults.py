"""File operations that fail or kill at the n-th call, as SQLite tests itself."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

MODES = ("fails once", "fails from then on", "killed")
EVENTS = frozenset(
    (
        "open",
        *(f"os.{name}" for name in ["rename", "remove", "mkdir", "rmdir", "chmod", "listdir", "scandir"]),
    )
)
"""What Python audits; fsync and the files that Arrow opens itself are counted by wrappers."""
IN_ARROW = (
    (parquet, "write_table"),
    (parquet, "read_table"),
    (parquet, "ParquetFile"),
    (parquet, "ParquetWriter"),
)
IN_ARROW += ((parquet, "read_schema"), (pyarrow.ipc, "new_stream"), (pyarrow, "OSFile"))  # type: ignore[assignment]


class KilledError(BaseException):
    """The end of a process: nothing catches it, and no file operation that comes after it has an effect."""


class Faults:
    """Counts the operations on files in a folder; one of them goes wrong."""

    def __init__(self, folder: Path, at: int, mode: str) -> None:
        self.folder, self.at, self.mode = str(folder), at, mode
        self.count = 0

    @property
    def reached(self) -> bool:
        """Whether there were so many operations."""
        return self.count >= self.at

    def operation(self, *paths: object) -> None:
        """Count an operation, if it is on a file in the folder, or let it go wrong."""
        if not any(
            isinstance(path, (str, os.PathLike)) and str(path).startswith(self.folder) for path in paths
        ):
            return
        self.count += 1
        if self.count < self.at or (self.count > self.at and self.mode == "fails once"):
            return
        if self.mode == "killed":
            raise KilledError
        raise OSError(errno.EIO, "Input/output error", str(paths[0]))


_active: list[Faults] = []
_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _active and event in EVENTS:
        _active[-1].operation(*arguments)


@contextmanager
def faults(monkeypatch: pytest.MonkeyPatch, folder: Path, at: int, mode: str) -> Iterator[Faults]:
    """The `at`-th operation on a file in the folder goes wrong."""
    if not _hooked:  # a hook stays for as long as the process lives
        sys.addaudithook(_hook)
        _hooked.append(True)
    found = Faults(folder, at, mode)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            found.operation(*arguments)
            return call(*arguments, **options)

        return wrapper

    with monkeypatch.context() as patch:
        for module, name in IN_ARROW:
            patch.setattr(module, name, counted(getattr(module, name)))
        patch.setattr(os, "fsync", lambda handle: found.operation(found.folder))
        _active.append(found)
        try:
            yield found
        finally:
            _active.remove(found)
