"""Programs of benchmarks/ as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_benchmark(name: str) -> ModuleType:
    """benchmarks/NAME.py, imported."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # where a program finds its neighbours
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where a dataclass looks for the types that it names
    spec.loader.exec_module(module)
    return module
