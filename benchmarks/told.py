"""How `auto` ranks the lists of `everyday` as less and less of their criteria is told, and what its doubt is worth.

python benchmarks/told.py [--limit N] [--device DEVICE]
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
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    tasks = load_dataset("everyday")[: options.limit]
    reader = Reader.open(options.model, dtype="float32", device=options.device)
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
        warned = np.array(["warning" in one.details for one in rankings])
        agreement = np.array([one.consistency["signals_agree"] for one in rankings])
        spread = "  ".join(
            f"upper {1 - share:.0%} {taus[agreement >= np.quantile(agreement, share)].mean():+.3f}"
            for share in (0.25, 0.5, 0.75)
        )
        print(
            f"    warned on {warned.sum()}: {mean(taus[warned])}, elsewhere {mean(taus[~warned])}; "
            f"agreement and τ correlate {np.corrcoef(agreement, taus)[0, 1]:.2f}; by agreement {spread}"
        )


def mean(taus: np.ndarray) -> str:
    return f"{taus.mean():+.3f}" if len(taus) else "none"


if __name__ == "__main__":
    main()
