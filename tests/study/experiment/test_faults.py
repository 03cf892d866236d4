"""Every file operation of a study and of the cache fails once and is the last one of a process once."""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from faults import MODES, KilledError, faults
from tiny import tiny_model

from ccrank.errors import CcrankError
from ccrank.io.taskfiles import write_tasks
from ccrank.models import Reader, ReadingCache
from ccrank.models.cache import store as caching
from ccrank.study.experiment import runner, study_folder
from ccrank.study.experiment.runner import run_study
from ccrank.study.experiment.study import Study
from ccrank.study.results.load import load_results
from study.experiment.conftest import small_tasks


def study_of(tasks: Path, method: str) -> Study:
    return Study(("llama",), (str(tasks),), (method,), seeds=1)


@functools.cache
def opened(name: str) -> Reader:
    return Reader(tiny_model(name))


def run(study: Study, out: Path, cache: ReadingCache, **options: bool) -> pd.DataFrame:
    """The table of a study of one unit that reads nothing."""
    run_study(study, out, open_reader=opened, cache=cache, **options)
    return load_results(out).drop(columns="seconds")


@pytest.mark.parametrize(("mode", "force_new"), zip(MODES, (True, False, True), strict=True))
def test_every_operation_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, force_new: bool
) -> None:
    """A failure is a CcrankError or has no effect; the same command then ends with the right table. With --force-new
    the folder has another study, whose table is either whole or moved aside."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(study_folder, "_machine_facts", dict)
    monkeypatch.setattr(runner, "_free_memory", lambda: None)
    monkeypatch.setattr(runner, "tokens_per_second", lambda model: 1.0)
    tasks = tmp_path / "tasks.jsonl"
    write_tasks(small_tasks(2), tasks)
    cache = ReadingCache(tmp_path / "cache")
    study, old = study_of(tasks, "length"), study_of(tasks, "frequency")
    wanted = run(study, tmp_path / "wanted", cache)
    run(old, tmp_path / "old", cache)
    for at in count(1):
        out = tmp_path / f"study {at}"
        if force_new:
            shutil.copytree(tmp_path / "old", out)
        with faults(monkeypatch, out, at, mode) as shim:
            try:
                run_study(
                    study,
                    out,
                    open_reader=opened,
                    cache=cache,
                    force_new=force_new,
                )
            except CcrankError:
                assert mode != "killed"
            except KilledError:
                assert mode == "killed"
        try:
            found = run(study, out, cache)
        except CcrankError:
            assert force_new
            found = run(study, out, cache, force_new=True)
        pd.testing.assert_frame_equal(found, wanted, check_exact=True)
        if not shim.reached:
            break
    assert at > 20


def test_every_statement_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever statement fails or is the last of a process: what is read is what was written, or is missing."""
    entries = {bytes([number]) * 8: np.full(3, number, np.float32) for number in range(3)}
    state = {"at": 0, "count": 0, "mode": ""}

    class Connection(sqlite3.Connection):
        def _step(self) -> None:
            state["count"] += 1
            if state["count"] == state["at"] or (state["count"] > state["at"] and state["mode"] != MODES[0]):
                if state["mode"] == "killed":
                    raise KilledError
                raise sqlite3.OperationalError("disk I/O error")

        def execute(self, *arguments):
            self._step()
            return super().execute(*arguments)

        def executemany(self, *arguments):
            self._step()
            return super().executemany(*arguments)

        def commit(self) -> None:
            self._step()
            super().commit()

        def executescript(self, *arguments):
            self._step()
            return super().executescript(*arguments)

    connect = sqlite3.connect
    for mode in MODES:
        for at in count(1):
            folder = tmp_path / f"{mode} {at}"
            state.update(at=at, count=0, mode=mode)
            cache = ReadingCache(folder, limit=1 << 12)
            with monkeypatch.context() as patch:
                patch.setattr(
                    caching.sqlite3, "connect", lambda *a, **o: connect(*a, **o, factory=Connection)
                )
                try:
                    for key, value in entries.items():
                        cache.put({key: value})
                        for found_key, found in cache.get(entries).items():
                            assert (found == entries[found_key]).all()
                    cache.clear()
                except KilledError:
                    assert mode == "killed"
            if cache._connection is not None:
                sqlite3.Connection.close(cache._connection)  # as the end of a process does
            again = ReadingCache(folder)
            for key, found in again.get(entries).items():
                assert (found == entries[key]).all()
            again.put(entries)
            assert again.get(entries).keys() == entries.keys()
            again.close()
            if state["count"] < at:
                break
        assert at > 12


@pytest.mark.parametrize("mode", MODES)
def test_every_file_operation_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A damaged file is replaced by a new one; whatever fails at that, readings are right or missing."""
    key, value = b"k" * 8, np.ones(3, np.float32)
    for at in count(1):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "readings.sqlite").write_bytes(b"no database " * 500)
        with faults(monkeypatch, folder, at, mode) as shim:
            cache = ReadingCache(folder)
            try:
                cache.put({key: value})
                found = cache.get([key])
                assert not found or (found[key] == value).all()
                cache.info()
            except KilledError:
                assert mode == "killed"
        cache.close()
        again = ReadingCache(folder)
        again.put({key: value})
        assert (again.get([key])[key] == value).all()
        again.close()
        if not shim.reached:
            break
    assert at > 2
