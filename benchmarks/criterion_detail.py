"""How well `auto` ranks the lists of `everyday` by how much of the criterion is given, and what its warning is worth.

python benchmarks/criterion_detail.py [--limit N] [--device DEVICE]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from ccrank import Criterion, Reader, ReaderOptions, load_dataset, rank_tasks
from ccrank.metrics import kendall_tau

GIVEN = (
    ("comparative", "poles", "category"),
    ("poles", "category"),
    ("comparative", "category"),
    ("category",),
    ("comparative",),
    (),
)
"""The fields of the criterion that are given besides its name."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, default=None, help="lists to rank; all 124 without it")
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    tasks = load_dataset("everyday")[: options.limit]
    reader = Reader.open(options.model, ReaderOptions(dtype="float32", device=options.device))
    halves = np.array([task.about["half"] for task in tasks])
    print("mean signed τ, chance 0")
    for fields in GIVEN:
        reduced = [
            replace(
                task,
                criterion=Criterion(
                    task.criterion.name, **{name: getattr(task.criterion, name) for name in fields}
                ),
            )
            for task in tasks
        ]
        rankings = rank_tasks(reduced, reader, "auto")
        taus = np.array(
            [kendall_tau(one.scores, task.values) for one, task in zip(rankings, tasks, strict=True)]
        )
        means = "  ".join(f"{half} {taus[halves == half].mean():+.3f}" for half in ("choose", "report"))
        print(f"name, {', '.join(fields) or 'nothing else':<32} {means}  reversed {np.mean(taus < 0):.0%}")
        warned = np.array([bool(one.warnings) for one in rankings])
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
