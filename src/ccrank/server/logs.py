"""Logs that a client cannot fill."""

from __future__ import annotations

import logging
import time
from collections import Counter

MAX_ALIKE = 20
"""Warnings of one kind that are logged in a window."""
WINDOW_SECONDS = 60.0


class Throttle(logging.Filter):
    """Lets a few warnings and errors of each kind pass, and says how many more there were."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._seen: Counter[tuple[str, object]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; those below warnings always are."""
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        kind = (record.name, record.msg)
        if now - self._began > WINDOW_SECONDS or len(self._seen) > 1000:
            dropped = max(0, self._seen[kind] - MAX_ALIKE)
            self._began, self._seen = now, Counter()
            if dropped:
                record.msg, record.args = f"{record.getMessage()} (and {dropped:,} more like this)", None
        self._seen[kind] += 1
        return self._seen[kind] <= MAX_ALIKE
