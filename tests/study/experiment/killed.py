"""Runs a study in children that die at random moments; a program of its own, so that the deaths are real.

    python killed.py FOLDER KILLS SEED

Everything is imported once; each child is a fork of this process, which has computed nothing yet. A moment is an amount
of CPU time, drawn as a share of what an undisturbed run takes: on a slow or busy machine a child comes as far before
its death as on a fast one, only later. Prints how many children died at work, and how many folders were brought to
their end in spite of that.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

# What loading a tiny model would import, so that the children need not, each again.
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.llama.modeling_llama  # noqa: F401
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401

from ccrank.study.experiment.runner import run_study
from ccrank.study.experiment.study import Study

METHODS = (
    *("prompt-pair", "prompt-point", "prompt-list", "triplet", "ordreg", "triplet:across-tasks"),
    *("sup-ccs:leave-one-out", "ccs-pair", "random", "pca", "pca@embeddings", "frequency"),
)
OPTIONS = {name: {"epochs": 15} for name in ("triplet", "ordreg", "ccs-pair", "sup-ccs")}
ABANDONED = 1800
"""Seconds after which a child ends by itself: should this process die, its child must not stay."""


def run(folder: Path, out: Path, lifetime: float | None = None) -> tuple[bool, float]:
    """Run the study in a fork that dies after `lifetime` seconds of CPU time; whether it died, and what it used.

    The timer's signal is not handled, so the kernel ends the process at once, wherever it is, as SIGKILL does.
    """
    if (pid := os.fork()) == 0:
        signal.alarm(ABANDONED)
        if lifetime is not None:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, lifetime)
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
    _, status, usage = os.wait4(pid, 0)
    died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
    if status and not died:
        sys.exit(f"the study ended with {status}")
    return died, usage.ru_utime + usage.ru_stime


def main() -> None:
    folder, kills, generator = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    _, whole = run(folder, folder / "undisturbed")
    died = ended = 0
    while died < kills or not ended:
        while run(folder, folder / f"disturbed-{ended}", whole * generator.uniform(0.01, 0.5))[0]:
            died += 1
        ended += 1
    sys.stdout.write(f"{died} {ended} {whole:.1f}\n")


if __name__ == "__main__":
    main()
