"""Where ccrank keeps what it makes: models, data, readings."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """`$CCRANK_CACHE`, else the user's cache folder, with `parts` below it. Not created here."""
    chosen = os.environ.get("CCRANK_CACHE")
    if chosen:
        return Path(chosen).expanduser().joinpath(*parts)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "ccrank", *parts)
