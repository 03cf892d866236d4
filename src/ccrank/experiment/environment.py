"""Recording the environment of a study: versions, machine, models."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.experiment.folder import StudyFolder
from ccrank.experiment.servers import LeftOut
from ccrank.remote import OpenModel, RemoteReader
from ccrank.results.load import load_environment
from ccrank.results.schema import ENVIRONMENT
from ccrank.version import __version__

LIBRARIES = ("torch", "transformers", "numpy", "scipy", "tokenizers")


def now() -> str:
    """The current UTC time, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def machine_facts() -> dict[str, Any]:
    """Versions and hardware."""
    facts: dict[str, Any] = {"ccrank": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = None
    return facts | {
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
        "gpu": _gpu_names(),
    }


def record_environment(folder: StudyFolder) -> None:
    """Record the environment of a study; a later run in another one is recorded separately."""
    known, facts = load_environment(folder.path), machine_facts()
    if not known:
        folder.write(ENVIRONMENT, _text({**facts, "date": now(), "models": {}, "later_runs": []}))
        return
    differences = {key: value for key, value in facts.items() if known.get(key) != value}
    if differences:
        known["later_runs"].append({"date": now(), **differences})
        folder.write(ENVIRONMENT, _text(known))


def record_model(folder: StudyFolder, name: str, reader: OpenModel, left_out: Sequence[LeftOut] = ()) -> None:
    """Record the weights behind a model name, and what is left out for it; raise an error if the weights differ from
    those recorded before."""
    known = load_environment(folder.path)
    before = known["models"].get(name)
    if before is not None and (change := _change(before, reader)):
        raise CcrankError(
            f"the model {name} differs from the one in {folder.path}: {change}; give another folder, or --force-new "
            "to start over"
        )
    if before is None:
        known["models"][name] = {**_facts(reader), "left_out": [str(one) for one in left_out]}
        folder.write(ENVIRONMENT, _text(known))


def _facts(reader: OpenModel) -> dict[str, Any]:
    if isinstance(reader, RemoteReader):
        server = reader.server
        return {
            "remote": True,
            "server": server.client.address.base,
            "served_by": server.facts.get("owned_by"),
            "read_as": server.scoring.name,
            "form": reader.form,
            "window": reader.window,
            "weights": server.weights,
            "evidence": [round(float(value), 5) for value in server.evidence],
        }
    loaded = reader.loaded
    return {
        "remote": False,
        "identity": loaded.identity,
        "type": loaded.model.config.model_type,
        "form": loaded.form,
        "layers": reader.depth,
        "width": reader.width,
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "device": str(loaded.model.device),
    }


def _change(before: dict[str, Any], reader: OpenModel) -> str:
    """How a model differs from the one that was recorded, in words; empty if it is the same."""
    if isinstance(reader, RemoteReader):
        return reader.server.change_since(before["weights"], before["evidence"])
    if before["identity"] == reader.loaded.identity:
        return ""
    return f"its weights or precision were {before['identity']}, now {reader.loaded.identity}"


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=True) + "\n").encode()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1)
    except (AttributeError, ValueError, OSError):
        return None


def _gpu_names() -> list[str]:
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
