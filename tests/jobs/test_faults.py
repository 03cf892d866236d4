"""Every file operation of a job fails once, and is the last one of a process once; the next job is right."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from fake import number_of
from faults import MODES, KilledError, faults
from pyarrow import parquet
from tiny import tiny_reader

from ccrank.errors import CcrankError
from ccrank.jobs import StreamOptions, run_job
from ccrank.models import Reader
from ccrank.ranking import ItemScores
from ccrank.request import RankRequest
from ccrank.task import Criterion

SIZE, WARMTH = Criterion("size", poles=("small", "large")), Criterion("warmth", poles=("cold", "warm"))
ITEMS = ("red fox", "old dog", "new bridge", "tall tower", "blue glass")
JOBS = {
    "a sample of everything": {"sample": 20},
    "a smaller sample": {"sample": 3},
    "the best": {"sample": 3, "top": 2},
}


def made_up(scale, reader, blocks):
    """An engine that needs no model."""
    for place, items in blocks:
        yield place, ItemScores(np.array([number_of(item) % 97.0 for item in items]))


def rank(folder: Path, criterion: Criterion = SIZE, **options: int) -> Path:
    """Rank the items of the folder's file."""
    out = folder / "out.parquet"
    run_job(
        folder / "items.txt", out, RankRequest(by=criterion, method="poles"), tiny_reader("llama"), engine=made_up,
        stream=StreamOptions(block_rows=3, **options),
    )  # fmt: skip
    return folder


def output(folder: Path) -> pyarrow.Table:
    """The rows of the output."""
    return parquet.read_table(folder / "out.parquet")


def items_in(folder: Path) -> Path:
    """A new folder with a file of items."""
    folder.mkdir()
    (folder / "items.txt").write_text("\n".join(ITEMS))
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Readings are kept, and nothing waits for a disk."""
    known: dict[str, object] = {}
    read = Reader.read
    monkeypatch.setattr(
        Reader, "read", lambda self, prompts, *rest, **more: known.setdefault(
            repr((prompts, rest)), None) or known.__setitem__(repr((prompts, rest)), read(self, prompts, *rest, **more))
        or known[repr((prompts, rest))]
    )  # fmt: skip
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.parametrize(
    ("job", "mode"),
    [(job, mode) for job in JOBS for mode in MODES if mode != MODES[1] or job == "a smaller sample"],
)
def test_every_operation_of_a_job(tmp_path, monkeypatch, job, mode):
    """A failure is a CcrankError or has no effect. Whatever a failure or a kill leaves, the same command then gives the
    right rows and leaves nothing behind; another command does, or says that there is an unfinished job."""
    wanted = {
        criterion: output(rank(items_in(tmp_path / criterion.name), criterion, **JOBS[job]))
        for criterion in (SIZE, WARMTH)
    }
    for at in count(1):
        following = WARMTH if mode == "killed" and at % 3 else SIZE
        folder, done = items_in(tmp_path / str(at)), True
        with faults(monkeypatch, folder, at, mode) as shim:
            try:
                rank(folder, **JOBS[job])
            except CcrankError:
                assert mode != "killed"
                done = False
            except KilledError:
                assert mode == "killed"
                done = False
        if done:
            assert output(folder).equals(wanted[SIZE])
        try:
            assert output(rank(folder, following, **JOBS[job])).equals(wanted[following])
        except CcrankError:  # there is an unfinished job
            assert following is WARMTH
        else:
            assert {path.name for path in folder.iterdir()} == {"items.txt", "out.parquet"}
        if not shim.reached:
            break
    assert at > 50
