"""The list of faults that tests must notice: it fits the tree, and its runner tells noticed faults from others."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from run_mutants import ROOT, Mutant, StaleMutantError, load_mutants

SCRIPT = ROOT / "tests" / "run_mutants.py"
MUTANTS = load_mutants()
PACKAGES = ("metrics", "models", "prompts", "methods", "criteria", "io", "study", "cli")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.why)
def test_every_mutant_fits_the_tree(mutant: Mutant) -> None:
    """Its text stands in the file exactly once, the result can be parsed, and its tests exist."""
    mutant.check(ROOT)


def test_the_list_covers_all_packages() -> None:
    """No package is left out, and no fault is listed twice."""
    touched = {Path(one.file).parts[2] for one in MUTANTS}
    assert touched >= set(PACKAGES)
    assert len({(one.file, one.old, one.new) for one in MUTANTS}) == len(MUTANTS) >= 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old": "return 3"}, "stands there 0 times"),
        ({"old": "return"}, "stands there 2 times"),
        ({"new": "return (1"}, "cannot be parsed"),
        ({"new": "return 1"}, "replaced by itself"),
        ({"file": "src/none.py"}, "stands there 0 times"),
        ({"tests": ("tests/none.py",)}, "no tests tests/none.py"),
        ({"tests": ("tests/test_one.py::test_two",)}, "has no test test_two"),
    ],
)
def test_a_mutant_that_does_not_fit_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    """A patch that no longer applies, or names tests that are gone, is an error and never passes silently."""
    _project(tmp_path)
    mutant = replace(
        Mutant("src/one.py", "return 1", "return 2", ("tests/test_one.py::test_one",), ""), **change
    )
    with pytest.raises(StaleMutantError, match=message):
        mutant.check(tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("faults", "code", "score"),
    [
        (["return 1"], 0, "1 of 1 mutants killed (100%)"),
        (["return 1", "return 5"], 1, "1 of 2 mutants killed (50%)"),
    ],
)
def test_the_score_is_what_the_tests_notice(tmp_path: Path, faults: list[str], code: int, score: str) -> None:
    """A fault in tested code is killed, one in untested code survives and fails the run."""
    _project(tmp_path)
    path = tmp_path / "mutants.toml"
    path.write_text(
        "".join(
            f'[[mutant]]\nfile = "src/one.py"\nold = "{old}"\nnew = "return 7"\ntests = ["tests"]\nwhy = "-"\n'
            for old in faults
        )
    )
    command = [sys.executable, str(SCRIPT), "--jobs", "2", "--root", str(tmp_path), "--list", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == code, done.stderr
    assert score in done.stdout
    assert "return 7" not in (tmp_path / "src" / "one.py").read_text()


def _project(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "tests").mkdir()
    (folder / "src" / "one.py").write_text("def one():\n    return 1\n\ndef five():\n    return 5\n")
    (folder / "tests" / "test_one.py").write_text(
        textwrap.dedent("""
        from one import one

        def test_one():
            assert one() == 1
        """)
    )
