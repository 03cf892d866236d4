"""A content-addressed cache of readings in an SQLite file, which several processes may use at once.

Damaged entries are dropped. A cache that cannot be used is disabled with a warning; results do not depend on it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from ccrank.errors import CcrankError
from ccrank.util.files import cache_folder

log = logging.getLogger(__name__)
Result = TypeVar("Result")

DEFAULT_LIMIT = 4 << 30
_STALE_AFTER = 3600
"""An entry's time of last use is updated at most this often (seconds), so that reading seldom writes."""
_PATIENCE = 60.0  # seconds to wait for other processes that write
ENVIRONMENT_ERROR = re.compile(
    "locked|readonly|unable to open|full|disk i/o|busy|permission|interrupted", re.IGNORECASE
)
"""Errors of permissions, disk space or locks: a new file would not help."""


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """The contents of `ccrank cache info`."""

    path: Path
    entries: int
    bytes: int
    limit: int


class ReadingCache:
    """A persistent mapping from keys (digests) to float32 vectors."""

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        self.path = (folder or cache_folder("readings")) / "readings.sqlite"
        self.limit = _limit_from_environment() if limit is None else limit
        self.added = 0  # entries that this object has stored
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._off = False

    def get(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """The stored, undamaged vectors of `keys`."""
        wanted = list(dict.fromkeys(keys))
        vectors: dict[bytes, np.ndarray] = {}
        damaged: list[tuple[bytes]] = []
        renewed: list[tuple[int, bytes]] = []
        now = int(time.time())

        def read(connection: sqlite3.Connection) -> None:
            for start in range(0, len(wanted), 500):
                part = wanted[start : start + 500]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, value, checksum, used FROM readings WHERE key IN ({marks})"
                for key, value, checksum, used in connection.execute(query, part):
                    # Damage may also have changed a field's type.
                    typed = isinstance(value, bytes) and isinstance(used, int)
                    if not typed or _checksum(key, value) != checksum or len(value) % 4:
                        damaged.append((key,))
                        continue
                    vectors[key] = np.frombuffer(value, dtype=np.float32)
                    if now - used > _STALE_AFTER:
                        renewed.append((now, key))
            if renewed or damaged:
                with connection:
                    connection.executemany("UPDATE readings SET used = ? WHERE key = ?", renewed)
                    connection.executemany("DELETE FROM readings WHERE key = ?", damaged)

        self._with_database(read)
        if damaged:
            log.warning("%d damaged readings in %s will be recomputed", len(damaged), self.path)
        return vectors

    def put(self, entries: Mapping[bytes, np.ndarray]) -> None:
        """Store vectors; an existing entry with the same key is replaced."""
        now = int(time.time())
        rows = []
        for key, vector in entries.items():
            value = np.ascontiguousarray(vector, dtype=np.float32).tobytes()
            rows.append((key, value, _checksum(key, value), now))

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?)", rows)
            self.added += len(rows)
            self._trim(connection)

        if rows:
            self._with_database(write)

    def info(self) -> CacheInfo:
        """The cache's location, size and limit."""

        def count(connection: sqlite3.Connection) -> int:
            return int(connection.execute("SELECT count(*) FROM readings").fetchone()[0])

        entries = self._with_database(count) if self.path.exists() else 0
        return CacheInfo(self.path, entries or 0, self._size(), self.limit)

    def clear(self) -> int:
        """Delete all entries; returns the number of bytes freed."""
        size = self._size()

        def drop(connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute("DELETE FROM readings")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # shrinks the file

        if self.path.exists():
            self._with_database(drop)
        return max(0, size - self._size())

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _size(self) -> int:
        """Bytes on disk, including the write-ahead log."""
        names = (self.path.name, f"{self.path.name}-wal")
        return sum(path.stat().st_size for name in names if (path := self.path.with_name(name)).exists())

    def _trim(self, connection: sqlite3.Connection) -> None:
        page, pages, free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        if pages * page <= self.limit:
            return
        # Free pages that another process keeps open must not count, or ever more entries would be deleted.
        surplus = (pages - free) * page - int(0.8 * self.limit)
        dropped, last = 0, None
        for key, size in connection.execute(
            "SELECT key, length(value) + 120 FROM readings ORDER BY used, rowid"
        ):
            if dropped >= surplus:
                break
            dropped, last = dropped + size, key
        with connection:
            connection.execute(
                "DELETE FROM readings WHERE (used, rowid) <= (SELECT used, rowid FROM readings WHERE key = ?)",
                (last,),
            )
        # `execute` would stop after one step and free a single page; a script runs to completion.
        connection.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")

    def _with_database(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """The result of `work(connection)`, None without a usable cache; an invalid file is replaced, once."""
        with self._lock:
            for attempt in (1, 2):
                if self._off:
                    break
                try:
                    return work(self._open())
                # The error message of a damaged schema may itself fail to decode.
                except (sqlite3.DatabaseError, UnicodeDecodeError, OSError) as error:
                    self._disconnect()
                    cause = error
                usable = not isinstance(cause, OSError) and not ENVIRONMENT_ERROR.search(str(cause))
                if usable and attempt == 1:
                    log.warning("the cache %s is damaged (%s); starting a new one", self.path, cause)
                    for suffix in ("", "-wal", "-shm"):
                        with suppress(OSError):
                            self.path.with_name(self.path.name + suffix).unlink()
                else:
                    log.warning("the cache %s cannot be used (%s); continuing without it", self.path, cause)
                    self._off = True
        return None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_PATIENCE, check_same_thread=False)
            self._connection = connection
            connection.text_factory = bytes  # a damaged text field must not raise a decoding error
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _keep_a_log(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS readings "
                "(key BLOB PRIMARY KEY, value BLOB NOT NULL, checksum BLOB NOT NULL, used INTEGER NOT NULL)"
            )
        return self._connection


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. SQLite does not wait here for another process that is about to do the same."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, key=key[:64], digest_size=8).digest()


def _limit_from_environment() -> int:
    text = os.environ.get("CCRANK_CACHE_LIMIT")
    if not text:
        return DEFAULT_LIMIT
    try:
        limit = int(float(text) * (1 << 30))
    except (ValueError, OverflowError):
        limit = -1
    if limit < 0:
        raise CcrankError(f"CCRANK_CACHE_LIMIT must be a number of GiB, not {text!r}")
    return limit
