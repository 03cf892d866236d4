"""How `auto` ranks the lists of `everyday` as less and less of their criteria is told.

python benchmarks/told.py [--limit N]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from ccrank import Criterion, Reader, load_dataset, rank_tasks
from ccrank.metrics import kendall_tau

FIELDS = {"c": "comparative", "p": "poles", "k": "category"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, default=None, help="lists to rank; all 124 without it")
    tasks = load_dataset("everyday")[: parser.parse_args().limit]
    reader = Reader.open("default", dtype="float32")
    halves = np.array([task.about["half"] for task in tasks])
    print("mean signed τ, chance 0")
    for told in ("cpk", "pk", "ck", "k", "c", ""):
        known = [FIELDS[letter] for letter in told]
        plain = [
            replace(
                task,
                criterion=Criterion(
                    task.criterion.name, **{name: getattr(task.criterion, name) for name in known}
                ),
            )
            for task in tasks
        ]
        rankings = rank_tasks(plain, reader, "auto")
        taus = np.array(
            [kendall_tau(one.scores, task.values) for one, task in zip(rankings, tasks, strict=True)]
        )
        means = "  ".join(f"{half} {taus[halves == half].mean():+.3f}" for half in ("choose", "report"))
        print(f"name, {', '.join(known) or 'nothing else':<32} {means}  upside down {np.mean(taus < 0):.0%}")


if __name__ == "__main__":
    main()
