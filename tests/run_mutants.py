"""Puts known faults into a copy of the source, one at a time, and checks that the tests named for each notice it.

    python tests/run_mutants.py [--only TEXT] [--jobs N]

The faults are listed in mutants.toml. A fault that no test notices survives: the program then exits with 1. It exits
with 2 if the list does not fit the tree, or if the tests fail without any fault.
"""

from __future__ import annotations

import argparse
import ast
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_name("mutants.toml")
COPIED = ("src", "tests", "benchmarks", "docs", "pyproject.toml", "README.md")
TIME_LIMIT = 900
"""Seconds for the tests of one mutant, generous: one that hangs counts as noticed."""

KILLED, SURVIVED, BROKEN = "killed", "SURVIVED", "BROKEN"


class StaleMutantError(Exception):
    """A mutant that does not fit the tree."""


@dataclass(frozen=True)
class Mutant:
    """One fault: a text of a file and what it is replaced by."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Test files or node ids of pytest, one of which must fail."""
    why: str
    """What would go wrong unnoticed."""

    def apply(self, root: Path) -> str:
        """The file's text with the fault; refused unless `old` stands in it exactly once and the result is valid."""
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := text.count(self.old)) != 1:
            raise StaleMutantError(
                f"{self.file}: {self.old!r} stands there {count} times, and must stand there once; "
                "update tests/mutants.toml"
            )
        changed = text.replace(self.old, self.new)
        if changed == text:
            raise StaleMutantError(f"{self.file}: {self.old!r} is replaced by itself")
        try:
            if path.suffix == ".py":
                ast.parse(changed)
            elif path.suffix == ".toml":
                tomllib.loads(changed)
        except (SyntaxError, tomllib.TOMLDecodeError) as error:
            raise StaleMutantError(f"{self.file}: with {self.new!r} it cannot be parsed: {error}") from None
        return changed

    def check(self, root: Path) -> None:
        """Refuse a mutant that cannot be applied, or whose tests do not exist."""
        self.apply(root)
        for node in self.tests:
            name, _, function = node.partition("::")
            path = root / name
            if not path.exists():
                raise StaleMutantError(f"{self.file}: there are no tests {name}")
            if function and f"def {function.partition('[')[0]}(" not in path.read_text(encoding="utf-8"):
                raise StaleMutantError(f"{self.file}: {name} has no test {function}")


def load_mutants(path: Path = LIST) -> list[Mutant]:
    """The list of faults."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**table, "tests": tuple(table["tests"])}) for table in tables]


def copy_tree(root: Path, target: Path) -> None:
    """What the tests need of the tree, without compiled files: those might outlive a change of their source."""
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (root / name).exists():
            shutil.copy2(root / name, target / name)


def run_tests(root: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy of the tree, up to the first that fails."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )


def verdict(mutant: Mutant, root: Path) -> tuple[str, str]:
    """Whether the tests notice a mutant, and the line that says which did."""
    path = root / mutant.file
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(root), encoding="utf-8")
    try:
        done = run_tests(root, mutant.tests)
    except subprocess.TimeoutExpired:
        return KILLED, f"no end within {TIME_LIMIT} s"
    finally:
        path.write_text(original, encoding="utf-8")
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode == 0:
        return SURVIVED, "no test failed"
    if done.returncode == 1:
        return KILLED, lines[0] if lines else ""
    # 2 to 5: nothing was collected, or an import failed. That proves nothing about the tests.
    return BROKEN, (lines or done.stdout.splitlines()[-1:] or [done.stderr[-200:]])[0]


def run_all(root: Path, mutants: Sequence[Mutant], jobs: int = 1) -> list[tuple[Mutant, str]]:
    """The verdict on every mutant, each reported as it comes."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        folders: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            folder = Path(scratch, str(number))
            folder.mkdir()
            copy_tree(root, folder)
            folders.put(folder)

        def judge(mutant: Mutant) -> tuple[Mutant, str]:
            folder = folders.get()
            try:
                found, line = verdict(mutant, folder)
            finally:
                folders.put(folder)
            _say(f"{found:8} {mutant.file}: {mutant.why}" + (f"\n         {line}" if line else ""))
            return mutant, found

        _say("the tests without any fault …")
        tests = sorted({node for mutant in mutants for node in mutant.tests})
        done = run_tests(Path(scratch, "0"), tests)
        if done.returncode != 0:
            _say(done.stdout[-2000:])
            raise StaleMutantError("the tests fail without any fault, so they prove nothing about the faults")
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, mutants))


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, path: Path = LIST) -> int:
    """Run the mutants; 0 if all are killed, 1 if any survives, 2 if the list does not fit the tree."""
    parser = argparse.ArgumentParser(description="Check that the tests notice known faults.")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only mutants whose file or reason has TEXT"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants tried at once")
    options = parser.parse_args(arguments)
    mutants = [one for one in load_mutants(path) if options.only in f"{one.file} {one.why}"]
    try:
        for mutant in mutants:
            mutant.check(root)
        found = [verdict for _, verdict in run_all(root, mutants, options.jobs)]
    except StaleMutantError as error:
        _say(f"error: {error}")
        return 2
    killed = found.count(KILLED)
    _say(f"{killed} of {len(found)} mutants killed ({killed / max(1, len(found)):.0%})")
    return 0 if killed == len(found) else 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
