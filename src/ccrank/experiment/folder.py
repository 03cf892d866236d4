"""A study's folder: units, results and records; all writes are atomic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.experiment.execute import Outcome
from ccrank.experiment.study import Study
from ccrank.experiment.units import TaskSet, Unit
from ccrank.files import locked_folder, write_atomically
from ccrank.results.save import join_units, save_unit, unit_failures
from ccrank.results.schema import CONFIG, ENVIRONMENT, FAILURES, FINGERPRINT, RESULTS, TASKS, UNITS

OWN = (RESULTS, UNITS, FAILURES, ENVIRONMENT, TASKS, CONFIG, FINGERPRINT)
"""Files moved aside when a new study starts; the fingerprint is last, because it marks the rest as the old study's."""


class StudyFolder:
    """Units, results and records of one study."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def locked(self) -> AbstractContextManager[None]:
        """Hold an exclusive lock on the folder; it is released when the process ends."""
        return locked_folder(
            self.path,
            UNITS,
            f"another process is running a study in {self.path}; wait for it, or give another folder with --out",
        )

    def begin(self, study: Study, sets: Mapping[str, TaskSet], force_new: bool) -> None:
        """Record a new study, or verify that the folder contains the same one."""
        wanted = study.fingerprint() | {f"tasks of {name}": one.digest for name, one in sets.items()}
        wanted = json.loads(json.dumps(wanted))
        known = self._known()
        if known is not None and (changes := _changes(known, wanted)):
            if not force_new:
                found = (
                    f"a study with another configuration: {'; '.join(changes)}"
                    if known
                    else "a damaged study"
                )
                raise CcrankError(
                    f"{self.path} contains {found}. Use another folder, or --force-new to move the old results aside "
                    "and start over"
                )
            self._move_aside()
            known = None
        if known is None:
            self.write(TASKS, _task_lines(sets))
            self.write(CONFIG, study.to_toml().encode())
            # Last, since it marks the other files as complete.
            self.write(FINGERPRINT, json.dumps(wanted, indent=1).encode())

    def _known(self) -> dict[str, Any] | None:
        path = self.path / FINGERPRINT
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}  # a damaged one is that of no study

    def _move_aside(self) -> None:
        number = 1
        while (aside := self.path / f"before-{number}").exists():
            number += 1
        aside.mkdir()
        for name in OWN:
            if (self.path / name).exists():
                (self.path / name).rename(aside / name)
        (self.path / UNITS).mkdir(exist_ok=True)

    def unit_path(self, unit: Unit) -> Path:
        """The file of a unit's rows."""
        return self.path / UNITS / f"{unit.digest}.parquet"

    def is_done(self, unit: Unit) -> bool:
        """Whether a unit's file exists and is readable."""
        return unit_failures(self.unit_path(unit)) is not None

    def failures_of(self, unit: Unit) -> dict[str, str]:
        """The tasks that failed in a unit, with reasons."""
        return unit_failures(self.unit_path(unit)) or {}

    def put(self, unit: Unit, outcome: Outcome) -> None:
        """Store a unit's rows and failures in one file."""
        save_unit(self.unit_path(unit), outcome.rows, outcome.failures)

    def forget(self, units: Iterable[Unit]) -> None:
        """Delete units, so that they are run again."""
        for unit in units:
            self.unit_path(unit).unlink(missing_ok=True)
        self.forget_results()

    def forget_results(self) -> None:
        """Delete the joint table, which exists only when the study is complete."""
        (self.path / RESULTS).unlink(missing_ok=True)

    def join(self, units: Sequence[Unit]) -> int:
        """Write one table of all units, in their order; returns its number of rows."""
        return join_units([self.unit_path(unit) for unit in units], self.path / RESULTS)

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder; all writes are atomic."""
        write_atomically(self.path / name, content, sync=True)


def _task_lines(sets: Mapping[str, TaskSet]) -> bytes:
    """The tasks as JSON lines, each with its dataset in `about`; ASCII, so that any text can be encoded."""
    lines = []
    for name, one in sets.items():
        for task in one.tasks:
            line = task.to_json()
            line["about"] = {**line.get("about", {}), "dataset": name, "kind": one.kind}
            lines.append(json.dumps(line, ensure_ascii=True, default=str) + "\n")
    return "".join(lines).encode()


def _changes(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The differences between two fingerprints, as phrases."""
    changes = []
    for key in dict.fromkeys((*known, *wanted)):
        before, now = known.get(key), wanted.get(key)
        if before == now:
            continue
        if isinstance(before, list) and isinstance(now, list):
            parts = [f"without {one}" for one in before if one not in now]
            parts += [f"with {one}" for one in now if one not in before]
            changes.append(f"{key} {', '.join(parts) or 'in another order'}")
        elif key.startswith(("tasks of ", "template ")):
            # Added and removed datasets are listed already; a template added by a new version changes nothing.
            if before is not None and now is not None:
                changes.append(f"{key} changed")
        else:
            changes.append(f"{key} was {before!r}, is {now!r}")
    return changes
