"""Runs a study in children that are killed at random moments; a program of its own, so that the kills are real.

    python killed.py FOLDER KILLS SEED

Everything is imported once; each child is a fork of this process, which has computed nothing yet. Prints how many kills
hit a child at work, and how many folders were brought to their end in spite of them.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

# What loading a tiny model would import, so that the children need not, each again.
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.llama.modeling_llama  # noqa: F401
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401

from ccrank.experiment.runner import run_study
from ccrank.experiment.study import Study

METHODS = (
    *("prompt-pair", "prompt-point", "prompt-list", "triplet", "ordreg", "triplet:across-tasks"),
    *("sup-ccs:leave-one-out", "ccs-pair", "random", "pca", "pca@embeddings", "frequency"),
)
OPTIONS = {name: {"epochs": 15} for name in ("triplet", "ordreg", "ccs-pair", "sup-ccs")}


def child(folder: Path, out: Path) -> int:
    """A fork that runs the study and leaves without a word."""
    if (pid := os.fork()) == 0:
        signal.alarm(60)  # should this process die, its child must not stay
        try:
            study = Study(
                models=(str(folder / "model-a"), str(folder / "model-b")),
                datasets=(str(folder / "first.jsonl"), str(folder / "second.jsonl")),
                methods=METHODS,
                seeds=2,
                layers="1,3",
                options=OPTIONS,
                reader={"batch_tokens": 512},
            )
            report = run_study(study, out)
            os._exit(3 if report.failures else 0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    return pid


def run_until_killed(folder: Path, out: Path, delay: float) -> bool:
    """Start the study and kill it after `delay` seconds; whether it was still at work by then."""
    pid = child(folder, out)
    deadline = time.monotonic() + delay
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            if status:
                sys.exit(f"the study ended with {status}")
            return False
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def main() -> None:
    folder, kills, generator = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    start = time.monotonic()
    assert not run_until_killed(folder, folder / "undisturbed", 300)
    whole = time.monotonic() - start
    hits = ends = 0
    while hits < kills or not ends:
        while run_until_killed(folder, folder / f"disturbed-{ends}", generator.uniform(0.02, 0.5 * whole)):
            hits += 1
        ends += 1
    sys.stdout.write(f"{hits} {ends} {whole:.1f}\n")


if __name__ == "__main__":
    main()
