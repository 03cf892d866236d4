"""What scoring one new item on a fitted scale takes after loading: tokens, CPU time and wall time.

python benchmarks/score_one.py [--threads 2]      # default model, a name; nothing is cached
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch

from ccrank import CcrankWarning, Reader, fit

ITEMS = (
    "Russia",
    "Canada",
    "China",
    "Brazil",
    "Australia",
    "India",
    "Chad",
    "Peru",
    "Japan",
    "Cuba",
    "Monaco",
)
NEW = ("Spain", "Kenya", "Iceland", "Vietnam", "Bolivia", "Norway", "Ghana", "Oman")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    warnings.simplefilter("ignore", CcrankWarning)
    reader = Reader.open("default")
    print("| method | prompts | distinct tokens | CPU, ms | wall, ms |\n|---|---|---|---|---|")
    for method in ("auto", "likelihood", "poles", "axis"):
        scale = fit(ITEMS, "size", category="country", model=reader, method=method)
        scale.score(["Mali"])
        cpu, wall = time.process_time(), time.perf_counter()
        costs = [scale.score([item]).cost for item in NEW]
        cpu, wall = (
            1000 * (now - start) / len(NEW)
            for now, start in ((time.process_time(), cpu), (time.perf_counter(), wall))
        )
        tokens = sum(cost.distinct_tokens for cost in costs) / len(NEW)
        print(f"| {method} | {costs[0].prompts} | {tokens:.0f} | {cpu:.0f} | {wall:.0f} |", flush=True)


if __name__ == "__main__":
    main()
