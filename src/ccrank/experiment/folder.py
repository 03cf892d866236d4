"""A study's folder: what is done lies there whole, and what is not does not lie there at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ccrank.errors import CcrankError
from ccrank.experiment.execute import Outcome
from ccrank.experiment.results import FAILURES, RESULTS, SCHEMA, TASKS, UNITS, table_of
from ccrank.experiment.study import Study
from ccrank.experiment.units import TaskSet, Unit

FINGERPRINT, CONFIG, ENVIRONMENT = "fingerprint.json", "config.toml", "environment.json"
OWN = (RESULTS, UNITS, FAILURES, ENVIRONMENT, TASKS, CONFIG, FINGERPRINT)
_NOTE = b"ccrank.failures"


class StudyFolder:
    """Units, results and records of one study."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process out, until this one leaves or dies."""
        try:
            (self.path / UNITS).mkdir(parents=True, exist_ok=True)
            handle = (self.path / "lock").open("a+")
        except OSError as error:
            raise CcrankError(f"cannot write into {self.path}: {error.strerror or error}") from None
        with handle:
            _lock(handle, self.path)
            yield

    def begin(self, study: Study, sets: Mapping[str, TaskSet], force_new: bool) -> None:
        """Record a new study, or make sure that the one in the folder is this one."""
        wanted = study.fingerprint() | {f"tasks of {name}": one.digest for name, one in sets.items()}
        wanted = json.loads(json.dumps(wanted))
        known = self._known()
        if known is not None and (changes := _changes(known, wanted)):
            if not force_new:
                raise CcrankError(
                    f"{self.path} holds a study of another configuration: {'; '.join(changes)}. Give another folder, "
                    "or --force-new to set the old results aside and begin anew"
                )
            self._set_aside()
            known = None
        if known is None:
            self.write(TASKS, _task_lines(sets))
            self.write(CONFIG, study.to_toml().encode())
            # Last, for it says that the others are there.
            self.write(FINGERPRINT, json.dumps(wanted, indent=1).encode())

    def _known(self) -> dict[str, Any] | None:
        path = self.path / FINGERPRINT
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def _set_aside(self) -> None:
        number = 1
        while (aside := self.path / f"before-{number}").exists():
            number += 1
        aside.mkdir()
        for (
            name
        ) in OWN:  # the fingerprint last: as long as it is there, what remains is known to be the old study's
            if (self.path / name).exists():
                (self.path / name).rename(aside / name)
        (self.path / UNITS).mkdir(exist_ok=True)

    def unit_path(self, unit: Unit) -> Path:
        """Where a unit's rows lie once it is done."""
        return self.path / UNITS / f"{unit.digest}.parquet"

    def is_done(self, unit: Unit) -> bool:
        """Whether a unit's file is there and whole."""
        return self._note(unit) is not None

    def failures_of(self, unit: Unit) -> dict[str, str]:
        """The tasks that a unit could not do, with reasons."""
        return self._note(unit) or {}

    def _note(self, unit: Unit) -> dict[str, str] | None:
        try:
            metadata = pq.read_schema(self.unit_path(unit)).metadata or {}
        except (FileNotFoundError, pa.ArrowException, OSError):
            return None
        note: dict[str, str] | None = json.loads(metadata[_NOTE]) if _NOTE in metadata else None
        return note

    def put(self, unit: Unit, outcome: Outcome) -> None:
        """Keep what a unit gave, with its failures in the same file."""
        table = table_of(outcome.rows).replace_schema_metadata({_NOTE: json.dumps(outcome.failures)})
        self._atomically(self.unit_path(unit), lambda path: pq.write_table(table, path, compression="zstd"))

    def forget(self, units: Iterable[Unit]) -> None:
        """Drop units, so that they are done again."""
        for unit in units:
            self.unit_path(unit).unlink(missing_ok=True)
        self.forget_results()

    def forget_results(self) -> None:
        """Drop the joint table, which is there only when it is complete."""
        (self.path / RESULTS).unlink(missing_ok=True)

    def join(self, units: Sequence[Unit]) -> int:
        """Make one table of all units, in their order; returns its rows."""
        tables = [pq.read_table(self.unit_path(unit), schema=SCHEMA) for unit in units]
        table = pa.concat_tables(tables) if tables else table_of([])
        table = table.replace_schema_metadata(None).combine_chunks()
        self._atomically(self.path / RESULTS, lambda path: pq.write_table(table, path, compression="zstd"))
        return int(table.num_rows)

    def write(self, name: str, content: bytes) -> None:
        """A file of the folder, whole or not at all."""
        self._atomically(self.path / name, lambda path: path.write_bytes(content))

    def _atomically(self, target: Path, write: Callable[[Path], Any]) -> None:
        partial = target.with_name(f".{target.name}.part")  # one writer at a time: the folder is locked
        try:
            write(partial)
            with partial.open("rb") as handle:
                os.fsync(handle.fileno())
            os.replace(partial, target)  # noqa: PTH105 - the atomic step, by its usual name
            _sync_folder(target.parent)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise CcrankError(f"cannot write {target}: {error.strerror or error}") from None


def _sync_folder(path: Path) -> None:
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lock(handle: IO[str], path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such lock on Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise CcrankError(
            f"another process is running a study in {path}; wait for it, or give another folder with --out"
        ) from None


def _task_lines(sets: Mapping[str, TaskSet]) -> bytes:
    """Task files' lines, each with its dataset in `about`; ASCII, so that any text has a form."""
    lines = []
    for name, one in sets.items():
        for task in one.tasks:
            line = task.to_json()
            line["about"] = {**line.get("about", {}), "dataset": name, "kind": one.kind}
            lines.append(json.dumps(line, ensure_ascii=True, default=str) + "\n")
    return "".join(lines).encode()


def _changes(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, in words."""
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
            # Datasets that came or went are named already; a template that came with a new version changes nothing.
            if before is not None and now is not None:
                changes.append(f"{key} changed")
        else:
            changes.append(f"{key} was {before!r}, is {now!r}")
    return changes
