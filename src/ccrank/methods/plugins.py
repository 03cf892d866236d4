"""Code of users that registers methods and objectives: files, and the entry points of installed packages."""

from __future__ import annotations

import hashlib
import importlib.util
import traceback
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from ccrank.errors import CcrankError
from ccrank.util.files import expanded

GROUP = "ccrank.plugins"
"""The entry point group; each entry is a module that registers something when it is imported."""
_loaded: dict[Path, str] = {}


def load_plugin(path: str | Path) -> str:
    """Run a Python file that calls `register` or `register_objective`, once per process; returns its SHA-256."""
    file = expanded(path).resolve()
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise CcrankError(f"cannot read the plugin {str(path)!r}: {error.strerror or error}") from None
    if _loaded.get(file, digest) != digest:
        raise CcrankError(f"the plugin {str(path)!r} has changed since it was loaded; start again")
    spec = importlib.util.spec_from_file_location(f"ccrank_plugin_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise CcrankError(f"the plugin {str(path)!r} is not a Python file; its name must end in .py")
    if file not in _loaded:
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(file)]
            where = f"line {lines[-1]}: " if lines else ""
            kind = "" if isinstance(error, CcrankError) else f"{type(error).__name__}: "
            raise CcrankError(f"the plugin {str(path)!r} failed: {where}{kind}{error}") from error
        _loaded[file] = digest
    return digest


@cache
def load_installed_plugins() -> None:
    """Import the modules that installed packages name as entry points, once per process."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            package = entry.dist.name if entry.dist else entry.value
            raise CcrankError(
                f"the plugin {entry.name!r} of the package {package} failed: {type(error).__name__}: {error}; repair "
                "or uninstall it"
            ) from error
