"""The folder beside the output where a job keeps what is finished, so that it resumes after a kill.

`job.json` marks the folder of a job; without it, nothing in a folder counts. A finished job renames it before anything
is deleted, so that the next job continues an interrupted deletion. Only files that a job writes are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.util.files import arrow, folder_errors, locked_folder, read_text, sync_to_disk, write_atomically

JOB = "job.json"
FINISHED = "finished.json"
"""What `job.json` is called once the output is written."""
SCAN = "scan.json"
SCALE = "scale.safetensors"
PARTS = "parts"
SORT = "sort"
LOCK = "lock"
_WRITTEN = re.compile(
    "|".join(map(re.escape, (JOB, FINISHED, SCAN, SCALE, LOCK)))
    + rf"|{PARTS}/\d{{8,}}\.parquet|{SORT}/(?:scores|bucket-\d+)"
)
_PARTIAL = re.compile(r"\.(.+)\.\w+\.part")
"""A file that `write_atomically` did not finish."""


class JobFolder:
    """Finished parts of one job; every file is written whole or not at all."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.path = out.with_name(f"{out.name}.job")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold an exclusive lock on the folder; it is released when the process ends. If the work inside fails before
        anything slow is stored, a folder that was made for it is removed."""
        taken = f"another process writes into {self.path}; wait for it, or give another --out"
        existed = self.path.exists()
        self._check_own()
        with locked_folder(self.path, PARTS, taken):
            try:
                yield
            except BaseException:
                if not existed and not (self.path / SCALE).exists():
                    with suppress(OSError):
                        self._clear(everything=True)
                raise

    def _check_own(self) -> None:
        """Raise an error if the folder has files that no job wrote, and no job."""
        if (self.path / JOB).exists() or (self.path / FINISHED).exists():
            return
        with folder_errors(self.path):
            files = [path for path in self._files() if path.name != LOCK or path.stat().st_size]
        if others := [path for path in files if not _PARTIAL.fullmatch(path.name)]:
            raise CcrankError(
                f"{self.path} is not the folder of a job: it has {others[0].name} and no {JOB}; move it away, or "
                "give another --out"
            )

    def _files(self) -> Iterator[Path]:
        """The files and folders in the folder, and in the folders that a job makes."""
        for folder in (self.path, self.path / PARTS, self.path / SORT):
            if folder.is_dir():
                yield from (path for path in folder.iterdir() if path.name not in (PARTS, SORT))

    def _clear(self, everything: bool = False) -> None:
        """Delete what jobs write, the finished job's mark last; with `everything` the lock and empty folders too."""
        last = (self.path / JOB, self.path / FINISHED, self.path / LOCK)
        for path in self._files():
            name = path.relative_to(self.path).as_posix()
            if partial := _PARTIAL.fullmatch(path.name):
                name = name.removesuffix(path.name) + partial[1]
            if path not in last and _WRITTEN.fullmatch(name):
                path.unlink()
        for path in last if everything else last[:2]:
            path.unlink(missing_ok=True)
        if everything:
            for path in self.out.parent.iterdir():  # outputs that a killed process did not finish
                if (partial := _PARTIAL.fullmatch(path.name)) and partial[1] == self.out.name:
                    path.unlink()
            for folder in (self.path / PARTS, self.path / SORT, self.path):
                with suppress(OSError):  # it has other files, is a link or was not made
                    folder.rmdir()

    def begin(self, job: Mapping[str, Any]) -> None:
        """Record a new job, or verify that the folder has the same one."""
        wanted = json.loads(json.dumps(job))
        known = None if (self.path / FINISHED).exists() else self.read_json(JOB)
        if known is not None:
            if "ccrank" not in known:
                raise CcrankError(
                    f"{self.path / JOB} is not of a job; move {self.path} away, or give another --out"
                )
            changed = [name for name in {**known, **wanted} if known.get(name) != wanted.get(name)]
            if not changed:
                return
            if (self.path / SCALE).exists():
                raise CcrankError(
                    f"{self.path} has an unfinished job that differs in {', '.join(sorted(changed))}; repeat the "
                    "command that began it, or delete the folder to start over"
                )
        with folder_errors(self.path):
            self._clear()  # nothing slow was done yet
        self.write(JOB, json.dumps(wanted, indent=1))

    def write(self, name: str, text: str) -> None:
        """Write a text file."""
        write_atomically(self.path / name, text, sync=True)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file; None if there is no such file."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            content = json.loads(read_text(path))
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise CcrankError(f"{path} is damaged; delete the folder {self.path} to start over")
        return content

    def part(self, block: int) -> Path:
        """The file of a finished block."""
        return self.path / PARTS / f"{block:08d}.parquet"

    def finished(self) -> set[int]:
        """The numbers of the finished blocks."""
        with folder_errors(self.path):
            names = [f"{PARTS}/{path.name}" for path in (self.path / PARTS).iterdir()]
        return {int(Path(name).stem) for name in names if _WRITTEN.fullmatch(name)}

    def put(self, block: int, table: Any) -> None:
        """Store a finished block."""
        write = arrow().parquet.write_table
        write_atomically(self.part(block), lambda partial: write(table, partial), sync=True)

    def part_table(self, block: int, columns: Sequence[str] | None = None) -> Any:
        """The rows of a finished block, with their scores."""
        pyarrow = arrow()
        try:
            return pyarrow.parquet.read_table(self.part(block).absolute(), columns=columns)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise CcrankError(
                f"{self.part(block)} is damaged: {error}; delete it and repeat the command"
            ) from None

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for temporary files; they are deleted with the job's."""
        folder = self.path / SORT
        with folder_errors(self.path):
            folder.mkdir(exist_ok=True)
            yield folder

    def delete(self) -> None:
        """Remove what the job wrote, and the folder if it has nothing else; the output is written."""
        try:
            (self.path / JOB).replace(self.path / FINISHED)
            sync_to_disk(self.path)
            self._clear(everything=True)
        except OSError as error:
            raise CcrankError(
                f"the output is written, but {self.path} cannot be deleted: {error.strerror or error}"
            ) from None
