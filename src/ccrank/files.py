"""Atomic file writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError

Content = bytes | str | Iterable[str] | Callable[[Path], Any]


def write_atomically(path: str | Path, content: Content, *, sync: bool = False) -> None:
    """Write a file completely or, if anything fails, not at all; an existing file is replaced in one step.

    Parameters
    ----------
    path
        The file to write. A path that exists and is not a regular file, such as /dev/stdout, is written to directly.
    content
        Bytes, text, lines of text, or a function that is called with a path and writes that file.
    sync
        Wait until the data is on the disk, so that it survives a power failure.
    """
    target = Path(path)
    write = content if callable(content) else lambda partial: _write(partial, content)
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            write(target)
            return
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        os.close(handle)
        partial = Path(name)
        try:
            write(partial)
            partial.chmod(0o666 & ~_umask())
            if sync:
                _sync(partial)
            partial.replace(target)
            if sync and os.name == "posix":
                _sync(target.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CcrankError(f"cannot write {target}: {error.strerror or error}") from None


def _write(path: Path, content: bytes | str | Iterable[str]) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8", newline="")
    else:
        with path.open("w", encoding="utf-8", newline="") as stream:
            stream.writelines(content)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    """The process's file mode mask; Python can only read it by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
