"""Reading text and TOML with a clear error for every failure, atomic file writes, and the cache folder."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ccrank.errors import CcrankError, needs_extra
from ccrank.util.text import shortened

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_KEY_PARTS = 1000
"""Dots of a TOML key: the parser's time and memory grow with their square, to 10 GB for a key of 100 kB."""
_CELL_LIMIT = threading.RLock()
_MAX_CELL = 2**31 - 1  # the largest number that every platform takes

Content = bytes | str | Iterable[str] | Callable[[Path], Any]


def expanded(path: str | Path) -> Path:
    """A path with ~ as the home folder; ~USER of an unknown user stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises a RuntimeError there


@contextmanager
def open_bytes(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading; every way in which opening or reading can fail is a CcrankError."""
    try:
        with Path(path).open("rb") as stream:
            yield stream
    except FileNotFoundError:
        raise CcrankError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise CcrankError(f"{path} is a folder; give a file") from None
    except OSError as error:
        raise CcrankError(f"cannot read {path}: {error.strerror or error}") from None


def read_bytes(path: str | Path) -> bytes:
    """The content of a file; see `open_bytes`."""
    with open_bytes(path) as stream:
        return stream.read()


def read_text(path: str | Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 with a byte order mark, without the mark."""
    content = read_bytes(path)
    try:
        return content.decode(encoding_of(content))
    except UnicodeDecodeError:
        raise not_utf8(io.BytesIO(content), str(path)) from None


def encoding_of(content: bytes) -> str:
    """UTF-16 after its byte order mark, as in Excel's "Unicode text"; else UTF-8."""
    return "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def not_utf8(stream: IO[bytes], where: str) -> CcrankError:
    """The error of a file that is not UTF-8, which names the first offending byte and the remedy."""
    problem, guess, offset = "", "cp1252", 0
    for number, line in enumerate(stream, start=1):
        if number == 1 and encoding_of(line) == "utf-16":
            guess = "utf-16"
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            problem = f": byte 0x{byte:02x} at offset {offset + error.start}, in line {number}"
            break
        offset += len(line)
    return CcrankError(
        f"{where} is not UTF-8 text{problem}; convert it, for example with `iconv -f {guess} -t utf-8`"
    )


def arrow(purpose: str = "a Parquet file") -> Any:
    """The module pyarrow, which is optional."""
    with needs_extra("files", purpose):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def parse_toml(source: Path | Traversable) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        text = source.read_text(encoding="utf-8")
        if any(part.count(".") > MAX_KEY_PARTS for part in re.split("[=\n]", text)):
            raise CcrankError(
                f"{source} is not valid TOML: a key, or a line, has more than {MAX_KEY_PARTS:,} dots"
            )
        return tomllib.loads(text)
    except OSError as error:
        raise CcrankError(f"cannot read {source}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CcrankError(f"{source} is not valid TOML: {error}") from None


def json_lines(
    text: str | Iterable[str], where: str, parse_float: Callable[[str], Any] | None = None
) -> Iterator[tuple[int, str, Any]]:
    """(line number, the line, its value) of each line of JSON that is not blank."""
    lines = io.StringIO(text, newline=None) if isinstance(text, str) else text
    for number, line in enumerate(lines, start=1):
        if not (written := line.strip()):
            continue
        try:
            yield number, written, json.loads(written, parse_float=parse_float)
        except (ValueError, RecursionError) as error:
            raise CcrankError(f"{where}, line {number}: not JSON ({error}): {shortened(written)}") from None


def csv_rows(lines: Iterable[str], separator: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row of a CSV or TSV; a blank line has no cells."""
    rows = csv.reader(lines, delimiter=separator, strict=True)
    first = 1
    while True:
        try:
            cells = _next_row(rows)
        except csv.Error as error:
            # A quote that is not closed fails at the end of the file; the mistake is where its row begins.
            raise CcrankError(
                f"{where}, line {first}: not a well-formed table ({error}); a cell with quotes is written with each of "
                "them doubled, and in quotes itself"
            ) from None
        if cells is None:
            return
        yield first, cells
        first = rows.line_num + 1


def _next_row(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row, with cells of any length; None after the last one.

    The limit is global to the process. It is set for each row, so that files that are read alternately or in several
    threads do not restore it for each other.
    """
    with _CELL_LIMIT:
        limit = csv.field_size_limit(_MAX_CELL)
        try:
            return next(rows, None)
        finally:
            csv.field_size_limit(limit)


def write_atomically(path: str | Path, content: Content, *, sync: bool = False) -> None:
    """Write a file completely or, if anything fails, not at all; an existing file is replaced in one step, and its
    permissions are kept.
    """
    target = Path(path)
    write = content if callable(content) else lambda partial: _write(partial, content)
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            write(target)
            return
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        partial = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
        partial.touch(0o666 if mode is None else 0o600, exist_ok=False)
        try:
            write(partial.absolute())  # pyarrow takes a relative name with a colon for a URL
            if mode is not None:
                partial.chmod(mode)
            if sync:
                sync_to_disk(partial)
            partial.replace(target)
            if sync:
                sync_to_disk(target.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CcrankError(f"cannot write {target}: {error.strerror or error}") from None


def remember(note: Path, text: str) -> None:
    """Write a note into the cache folder; a cache that cannot be written costs time, not correctness."""
    with suppress(OSError, CcrankError):
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(note, text)


def _write(path: Path, content: bytes | str | Iterable[str]) -> None:
    pieces = [content] if isinstance(content, (bytes, str)) else content
    with path.open("wb") as stream:
        stream.writelines(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name != "posix" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def folder_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of operations on a folder's files into a CcrankError."""
    try:
        yield
    except OSError as error:
        raise CcrankError(f"cannot read or write in {folder}: {error.strerror or error}") from None


@contextmanager
def locked_folder(folder: Path, inner: str, taken: str) -> Iterator[None]:
    """Make a folder and hold an exclusive lock on it; the lock is released when the process ends."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / "lock", timeout=0)
    try:
        (folder / inner).mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise CcrankError(taken) from None
    except OSError as error:
        raise CcrankError(f"cannot write into {folder}: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()


def cache_folder(*parts: str) -> Path:
    """`$CCRANK_CACHE`, else the user's cache folder on this system, joined with `parts`. The folder is not created."""
    chosen = os.environ.get("CCRANK_CACHE")
    if chosen:
        return expanded(chosen).joinpath(*parts)
    # Imported here: a machine without it can still set $CCRANK_CACHE.
    from platformdirs import user_cache_path

    return user_cache_path("ccrank", appauthor=False).joinpath(*parts)
