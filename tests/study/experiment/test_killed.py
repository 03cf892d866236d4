"""A study that is killed again and again ends as one that was left in peace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from tiny import save_model, tiny_model

from ccrank.io.taskfiles import read_tasks, write_tasks
from ccrank.study.results.load import load_results

KILLS = 12
PATIENCE = 3600
"""Seconds: no bound on speed, only an end to a run that hangs."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and timers of CPU time")
def test_killed_at_random_moments(tmp_path: Path, task_files: tuple[str, str]) -> None:
    """Killed at random moments: nothing is lost, nothing is there twice, and every number is the same."""
    for name, seed in (("model-a", 0), ("model-b", 1)):
        loaded = tiny_model("llama", seed, max_position_embeddings=512)
        save_model(loaded, tmp_path / name)
    assert len(read_tasks(task_files[0])) == 5
    write_tasks(read_tasks(task_files[0]), tmp_path / "first.jsonl")
    script = Path(__file__).with_name("killed.py")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CCRANK_CACHE": str(tmp_path / "own"),
    }
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(KILLS), "7"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    died, ended, _ = done.stdout.split()
    assert int(died) >= KILLS
    wanted = load_results(tmp_path / "undisturbed").drop(columns="seconds")
    assert len(wanted) > 300
    for number in range(int(ended)):
        folder = tmp_path / f"disturbed-{number}"
        found = load_results(folder).drop(columns="seconds")
        pd.testing.assert_frame_equal(found, wanted, check_exact=True)
        assert (folder / "failures.jsonl").read_bytes() == b""
        finished = {path.name for path in (folder / "units").glob("[!.]*")}
        assert finished == {path.name for path in (tmp_path / "undisturbed" / "units").iterdir()}
