"""Puts known faults into a copy of the source, one at a time, and checks that the tests named for each notice it.

    python tests/run_mutants.py [--only TEXT] [--jobs N]

The faults are listed in mutants.toml. A fault that no test notices survives: the program then exits with 1. It exits
with 2 if the list does not fit the tree, or if the tests fail without any fault. It needs `fork` (not Windows).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_name("mutants.toml")
COPIED = ("src", "tests", "benchmarks", "studies", "docs", "conftest.py", "pyproject.toml", "README.md")
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
    """What the tests need of the tree, without compiled files."""
    target.mkdir()
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (root / name).exists():
            shutil.copy2(root / name, target / name)


def start_tests(root: Path, tests: Iterable[str], log: Path) -> int:
    """Run tests of a copy of the tree in a fork, up to the first that fails; returns its process id.

    A fork has the libraries loaded already, which is most of the time that a small test takes; nothing of the project
    itself is loaded before.
    """
    if pid := os.fork():
        return pid
    signal.alarm(TIME_LIMIT)
    with log.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    os.chdir(root)
    sys.path[:1] = [str(root / "src")]  # in place of this script's folder
    sys.dont_write_bytecode = True  # compiled files might outlive a change of their source
    os.environ["PYTHONPATH"] = str(root / "src")
    code = 3
    try:
        import pytest

        code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=line", *tests]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def verdict(status: int, log: Path) -> tuple[str, str]:
    """What the end of a run of tests says, and the line that says which test failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or ["no output"]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-1:]
    if os.WIFSIGNALED(status):
        return (
            KILLED,
            f"ended by signal {os.WTERMSIG(status)}, which after {TIME_LIMIT} s is {signal.SIGALRM}",
        )
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return SURVIVED, "no test failed"
    # 2 to 5: nothing was collected, or an import failed. That proves nothing about the tests.
    return KILLED if code == 1 else BROKEN, failed[0]


def run_all(root: Path, mutants: Sequence[Mutant], jobs: int = 1) -> list[str]:
    """The verdict on every mutant, each reported as it comes."""
    found = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        free = [Path(scratch, str(number)) for number in range(jobs)]
        for folder in free:
            copy_tree(root, folder)
        _say("the tests without any fault …")
        log = Path(scratch, "log")
        start_tests(free[0], sorted({node for mutant in mutants for node in mutant.tests}), log)
        if os.wait()[1] != 0:
            _say(log.read_text(encoding="utf-8")[-2000:])
            raise StaleMutantError("the tests fail without any fault, so they prove nothing about the faults")
        waiting, running = list(mutants), {}
        while waiting or running:
            while waiting and free:
                mutant, folder = waiting.pop(0), free.pop()
                (folder / mutant.file).write_text(mutant.apply(root), encoding="utf-8")
                running[start_tests(folder, mutant.tests, folder / "log")] = mutant, folder
            pid, status = os.wait()
            mutant, folder = running.pop(pid)
            shutil.copy2(root / mutant.file, folder / mutant.file)
            free.append(folder)
            judged, line = verdict(status, folder / "log")
            _say(f"{judged:8} {mutant.file}: {mutant.why}\n         {line}")
            found.append(judged)
    return found


def preload(path: Path = LIST) -> None:
    """Import the libraries that the list names, once for all forks."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    for name in tomllib.loads(path.read_text(encoding="utf-8")).get("preload", ()):
        importlib.import_module(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants; 0 if all are killed, 1 if any survives, 2 if the list does not fit the tree."""
    parser = argparse.ArgumentParser(description="Check that the tests notice known faults.")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only mutants whose file or reason has TEXT"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants tried at once")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to copy")
    parser.add_argument("--list", type=Path, default=LIST, help="the list of mutants")
    options = parser.parse_args(arguments)
    mutants = [one for one in load_mutants(options.list) if options.only in f"{one.file} {one.why}"]
    try:
        for mutant in mutants:
            mutant.check(options.root)
        preload(options.list)
        found = run_all(options.root, mutants, options.jobs)
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
