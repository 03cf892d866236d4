"""The locations of stored models, data and readings."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """`$CCRANK_CACHE`, else the user's cache folder on this system, joined with `parts`. The folder is not created."""
    chosen = os.environ.get("CCRANK_CACHE")
    if chosen:
        return Path(chosen).expanduser().joinpath(*parts)
    # Imported here: a machine without it can still set $CCRANK_CACHE.
    from platformdirs import user_cache_path

    return user_cache_path("ccrank", appauthor=False).joinpath(*parts)
