"""How long a command takes from start to end, against another version of the package in the same run.

    python benchmarks/startup.py                       this version
    python benchmarks/startup.py --against COMMIT      and a commit, checked out into a temporary folder
    python benchmarks/startup.py --limits              fails if a limit is exceeded: 0.4 s for help, 3 s for a list

The commands run in turns, new and old, so that both see the same machine. The model must be in the cache
(`ccrank models pull default`); readings are not taken from the cache. Wall time is the best of the repeats, which on a
busy machine is still too long; the CPU time beside it depends less on what else runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "ccrank --help": (["--help"], 0.4),
    "ccrank rank --help": (["rank", "--help"], 0.4),
    "ccrank rank, five items": (
        ["rank", "Canada", "Japan", "Chad", "Peru", "Malta", "--by", "area", "--no-cache"],
        3.0,
    ),
}
"""Command → its arguments, and the limit in seconds on an idle machine."""


def run(source: Path, arguments: list[str]) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds and the output of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "ccrank", *arguments],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", help="a commit to compare with")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limits", action="store_true", help="fail if a limit is exceeded")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        versions = {"this version": ROOT / "src"}
        if chosen.against:
            archive = subprocess.run(
                ["git", "archive", chosen.against, "src"], cwd=ROOT, capture_output=True, check=True
            )
            subprocess.run(["tar", "-x", "-C", scratch], input=archive.stdout, check=True)
            versions[chosen.against] = Path(scratch, "src")
        slow = []
        print(f"{'command':26} {'version':16} {'wall s':>7} {'CPU s':>7}")
        for name, (arguments, limit) in COMMANDS.items():
            times: dict[str, list[tuple[float, float]]] = {version: [] for version in versions}
            outputs = {}
            for repeat in range(chosen.repeats + 1):
                for version, source in versions.items():
                    wall, cpu, outputs[version] = run(source, arguments)
                    if repeat:  # the first run fills the caches of the system, and prepares the model
                        times[version].append((wall, cpu))
            if "--help" not in arguments:
                assert len(set(outputs.values())) == 1, outputs  # the same ranking, to the last printed digit
            for version, both in times.items():
                best = [min(column) for column in zip(*both, strict=True)]
                print(f"{name:26} {version:16} {best[0]:7.2f} {best[1]:7.2f}")
                if version == "this version" and best[0] > limit:
                    slow.append(f"{name}: {best[0]:.2f} s, limit {limit} s")
    if chosen.limits and slow:
        sys.exit("; ".join(slow))


if __name__ == "__main__":
    main()
