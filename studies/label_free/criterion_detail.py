"""How well `auto` ranks the lists of `everyday` by how much of the criterion is given, and what the p-value of its
signals' agreement is worth.

    python -m studies.label_free.criterion_detail [--limit N] [--device DEVICE]

Without exemplars, as in the study of studies/label_free/details.md.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

from ccrank import CcrankWarning, Criterion, Reader, ReaderOptions, load_dataset, rank_tasks
from ccrank.metrics.order import kendall_tau

GIVEN = (
    ("comparative", "poles", "category"),
    ("poles", "category"),
    ("comparative", "category"),
    ("category",),
    ("comparative",),
    (),
)
"""The fields of the criterion that are given besides its name."""
UNSURE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, default=None, help="lists to rank; all 124 without it")
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    warnings.simplefilter("ignore", CcrankWarning)
    tasks = load_dataset("everyday")[: options.limit]
    reader = Reader.open(options.model, ReaderOptions(dtype="float32", device=options.device))
    halves = np.array([task.about["half"] for task in tasks])
    print("mean signed τ, chance 0", flush=True)
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
        rankings = rank_tasks(reduced, reader, "auto", options={"exemplars": False})
        taus = np.array(
            [kendall_tau(one.scores, task.values) for one, task in zip(rankings, tasks, strict=True)]
        )
        means = "  ".join(f"{half} {taus[halves == half].mean():+.3f}" for half in ("choose", "report"))
        print(f"name, {', '.join(fields) or 'nothing else':<32} {means}  reversed {np.mean(taus < 0):.0%}")
        unsure = np.array([one.consistency["signals_p_value"] > UNSURE for one in rankings])
        agreement = np.array([one.consistency["signals_agree"] for one in rankings])
        spread = "  ".join(
            f"upper {1 - share:.0%} {taus[agreement >= np.quantile(agreement, share)].mean():+.3f}"
            for share in (0.25, 0.5, 0.75)
        )
        print(
            f"    p > {UNSURE} on {unsure.sum()}: {mean(taus[unsure])}, elsewhere {mean(taus[~unsure])}; "
            f"agreement and τ correlate {np.corrcoef(agreement, taus)[0, 1]:.2f}; by agreement {spread}",
            flush=True,
        )


def mean(taus: np.ndarray) -> str:
    return f"{taus.mean():+.3f}" if len(taus) else "none"


if __name__ == "__main__":
    main()
