"""A study's folder: units, results and records, among them versions, machine and models; all writes are atomic."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.jury import parameters_of
from ccrank.models.remote import OpenModel
from ccrank.study.experiment.execute import Outcome
from ccrank.study.experiment.study import Study
from ccrank.study.experiment.units import TaskSet, Unit
from ccrank.study.results import load as files
from ccrank.study.results.schema import join_units, save_unit, unit_failures
from ccrank.util.files import expanded, folder_errors, locked_folder, write_atomically
from ccrank.version import __version__

LIBRARIES = ("torch", "transformers", "numpy", "scipy", "tokenizers")


class StudyFolder:
    """Units, results and records of one study."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        """Whether a study was begun here."""
        return (self.path / files.FINGERPRINT).exists()

    def locked(self) -> AbstractContextManager[None]:
        """Hold an exclusive lock on the folder; it is released when the process ends."""
        return locked_folder(
            self.path,
            files.UNITS,
            f"another process is running a study in {self.path}; wait for it, or give another folder with --out",
        )

    def begin(self, study: Study, sets: Mapping[str, TaskSet], force_new: bool) -> None:
        """Record a new study, or verify that the folder contains the same one."""
        wanted = study.fingerprint() | {f"tasks of {name}": tasks.digest for name, tasks in sets.items()}
        wanted = json.loads(json.dumps(wanted))
        with folder_errors(self.path):
            known = self._known()
        if known is not None and (changes := _changes(known, wanted)):
            if not force_new:
                kind = f"study with another configuration: {'; '.join(changes)}" if known else "damaged study"
                raise CcrankError(
                    f"{self.path} contains a {kind}. Use another folder, or --force-new to move the old results "
                    "aside and start over"
                )
            with folder_errors(self.path):
                self._move_aside()
            known = None
        if known is None:
            self.write(files.TASKS, _task_lines(sets))
            self.write(files.CONFIG, study.to_toml().encode())
            for path in study.plugins:
                self.write(f"plugin-{Path(path).name}", expanded(path).read_bytes())
            # Last, since it marks the other files as complete.
            self.write(files.FINGERPRINT, json.dumps(wanted, indent=1).encode())

    def _known(self) -> dict[str, Any] | None:
        if not self.exists():
            return None
        try:
            known = json.loads((self.path / files.FINGERPRINT).read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return {}  # a damaged fingerprint matches no study
        return known if isinstance(known, dict) else {}

    def _move_aside(self) -> None:
        aside = next(path for number in count(1) if not (path := self.path / f"before-{number}").exists())
        aside.mkdir()
        for name in files.STUDY_FILES:
            if (self.path / name).exists():
                (self.path / name).rename(aside / name)
        (self.path / files.UNITS).mkdir(exist_ok=True)

    def unit_path(self, unit: Unit) -> Path:
        """The file of a unit's rows."""
        return self.path / files.UNITS / f"{unit.digest}.parquet"

    def _directions_path(self, unit: Unit) -> Path:
        return self.path / files.DIRECTIONS / f"{unit.digest}.safetensors"

    def is_done(self, unit: Unit, save_probes: bool = False) -> bool:
        """Whether a unit's file exists and is readable, with the directions of its probes if they are to be stored."""
        done = unit_failures(self.unit_path(unit)) is not None
        stored = save_probes and unit.choice.states and unit.choice.split != "leave-one-out"
        return done and (not stored or self._directions_path(unit).exists())

    def failures_of(self, unit: Unit) -> dict[str, str]:
        """The tasks that failed in a unit, with reasons."""
        return unit_failures(self.unit_path(unit)) or {}

    def put(self, unit: Unit, outcome: Outcome, save_probes: bool = False) -> None:
        """Store a unit's rows and failures in one file, and before it the directions of its probes in another."""
        if save_probes and outcome.directions is not None:
            with folder_errors(self.path):
                (self.path / files.DIRECTIONS).mkdir(exist_ok=True)
            outcome.directions.save(self._directions_path(unit))
        save_unit(self.unit_path(unit), outcome.rows, outcome.failures)

    def forget(self, units: Iterable[Unit] = ()) -> None:
        """Delete units, so that they are run again, and the joint table, which exists only when the study is
        complete."""
        with folder_errors(self.path):
            for unit in units:
                self.unit_path(unit).unlink(missing_ok=True)
            (self.path / files.RESULTS).unlink(missing_ok=True)

    def join(self, units: Sequence[Unit]) -> int:
        """Write one table of all units, in their order; returns its number of rows."""
        with folder_errors(self.path):
            return join_units([self.unit_path(unit) for unit in units], self.path / files.RESULTS)

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder; all writes are atomic."""
        write_atomically(self.path / name, content, sync=True)

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the folder."""
        self.write(name, (json.dumps(value, indent=2) + "\n").encode())


def _task_lines(sets: Mapping[str, TaskSet]) -> bytes:
    """The tasks as JSON lines, each with its dataset in `about`; ASCII, so that any text can be encoded."""
    lines = []
    for name, task_set in sets.items():
        for task in task_set.tasks:
            line = task.to_json()
            line["about"] = {**line.get("about", {}), "dataset": name, "kind": task_set.kind}
            lines.append(json.dumps(line, default=str) + "\n")
    return "".join(lines).encode()


def _changes(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The differences between two fingerprints, as phrases."""
    changes = []
    for key in dict.fromkeys((*known, *wanted)):
        before, now = known.get(key), wanted.get(key)
        if before == now:
            continue
        if isinstance(before, list) and isinstance(now, list):
            parts = [f"without {name}" for name in before if name not in now]
            parts += [f"with {name}" for name in now if name not in before]
            changes.append(f"{key} {', '.join(parts) or 'in another order'}")
        elif key.startswith(("tasks of ", "template ")):
            # Added and removed datasets are listed already; a template added by a new version changes nothing.
            if before is not None and now is not None:
                changes.append(f"{key} changed")
        else:
            changes.append(f"{key} was {before!r}, is {now!r}")
    return changes


def record_environment(folder: StudyFolder) -> None:
    """Record the environment of a study; a later run in another one is recorded separately."""
    known, facts = files.load_environment(folder.path), _machine_facts()
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    if not known:
        folder.write_json(files.ENVIRONMENT, {**facts, "date": date, "models": {}, "later_runs": []})
    elif differences := {key: value for key, value in facts.items() if known.get(key) != value}:
        known["later_runs"].append({"date": date, **differences})
        folder.write_json(files.ENVIRONMENT, known)


def record_model(folder: StudyFolder, name: str, reader: OpenModel, left_out: Sequence[str] = ()) -> None:
    """Record the weights behind a model name, and what is left out for it; raise an error if the weights differ from
    those recorded before."""
    known = files.load_environment(folder.path)
    before = known["models"].get(name)
    if before is None:
        known["models"][name] = {**_model_facts(reader), "left_out": [*left_out]}
        folder.write_json(files.ENVIRONMENT, known)
    elif change := _change(before, reader):
        raise CcrankError(
            f"the model {name} differs from the one in {folder.path}: {change}; give another folder, or --force-new "
            "to start over"
        )


def _model_facts(reader: OpenModel) -> dict[str, Any]:
    if reader.behind_server:
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
        "weights": dict(loaded.weights),
        "type": loaded.model.config.model_type,
        "form": loaded.form,
        "layers": reader.depth,
        "width": reader.width,
        "parameters": parameters_of(reader),
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "device": str(loaded.model.device),
    }


def _change(before: dict[str, Any], reader: OpenModel) -> str:
    """How a model differs from the one that was recorded, in words; empty if it is the same."""
    if reader.behind_server:
        return reader.server.change_since(before["weights"], before["evidence"])
    if before["identity"] == reader.loaded.identity:
        return ""
    return f"its weights or precision were {before['identity']}, now {reader.loaded.identity}"


def _machine_facts() -> dict[str, Any]:
    """Versions and hardware."""
    import torch

    cpu, memory = None, None
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        cpu = next(
            (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")),
            None,
        )
    with suppress(AttributeError, ValueError, OSError):
        memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1)
    return {
        "ccrank": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "system": platform.platform(),
        "cpu": cpu or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "gpu": [torch.cuda.get_device_name(index) for index in range(gpus)],
    }
