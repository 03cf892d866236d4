"""The folder beside the output where a job keeps what is finished, so that it resumes after a kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.files import locked_folder, read_text, write_atomically

JOB = "job.json"
SCAN = "scan.json"
SAMPLE = "sample.json"
SCALE = "scale.safetensors"
PROBE = "probe.safetensors"
PARTS = "parts"


class JobFolder:
    """Finished parts of one job; every file is written whole or not at all.

    Parameters
    ----------
    out
        The output file; the folder's name is that of the file with `.job` added.
    """

    def __init__(self, out: Path) -> None:
        self.path = out.with_name(f"{out.name}.job")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold an exclusive lock on the folder; it is released when the process ends. If the work inside fails before
        anything slow is stored, a folder that was made for it is removed."""
        taken = f"another process writes into {self.path}; wait for it, or give another --out"
        existed, held = self.path.exists(), False
        try:
            with locked_folder(self.path, PARTS, taken):
                held = True
                yield
        except BaseException:
            if held and not existed and not (self.path / SAMPLE).exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def begin(self, job: Mapping[str, Any]) -> bool:
        """Record a new job, or verify that the folder has the same one; returns whether it resumes.

        Parameters
        ----------
        job
            Everything that the scores depend on.
        """
        wanted = json.loads(json.dumps(job))
        if (known := self.read_json(JOB)) is not None:
            changed = [name for name in {**known, **wanted} if known.get(name) != wanted.get(name)]
            if changed and (self.path / SAMPLE).exists():
                raise CcrankError(
                    f"{self.path} has an unfinished job that differs in {', '.join(sorted(changed))}; repeat the "
                    "command that began it, or delete the folder to start over"
                )
            if not changed:
                return True
            (self.path / SCAN).unlink(missing_ok=True)  # nothing slow was done yet
        self.write(JOB, json.dumps(wanted, indent=1))
        return False

    def write(self, name: str, text: str) -> None:
        """Write a text file.

        Parameters
        ----------
        name
            Its name.
        text
            Its content.
        """
        write_atomically(self.path / name, text, sync=True)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file; None if there is no such file.

        Parameters
        ----------
        name
            Its name.
        """
        path = self.path / name
        if not path.exists():
            return None
        try:
            found = json.loads(read_text(path))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CcrankError(f"{path} is damaged; delete the folder {self.path} to start over")
        return found

    def part(self, block: int) -> Path:
        """The file of a finished block.

        Parameters
        ----------
        block
            Its number.
        """
        return self.path / PARTS / f"{block:08d}.parquet"

    def finished(self) -> set[int]:
        """The numbers of the finished blocks."""
        return {int(path.stem) for path in (self.path / PARTS).glob("*.parquet")}

    def put(self, block: int, table: Any) -> None:
        """Store a finished block.

        Parameters
        ----------
        block
            Its number.
        table
            Its rows, with their scores.
        """
        from pyarrow import parquet

        write_atomically(self.part(block), lambda partial: parquet.write_table(table, partial), sync=True)

    def part_scores(self, block: int, column: str) -> np.ndarray:
        """The scores of a finished block; NaN for rows without an item.

        Parameters
        ----------
        block
            Its number.
        column
            The name of the column.
        """
        from pyarrow import parquet

        [values] = parquet.read_table(self.part(block), columns=[column]).columns
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=float)

    def delete(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path)
