"""How far the order of a stream is from that of a ranking in memory, by the size of the sample that fixes the scale.

    python -m studies.streams.sample_size                   # default model, names of packaged lists

All items are ranked by `auto` in memory. Then samples of several sizes are ranked, and the other items are put on their
scale. Reported: Kendall's τ between both orders over all items, the mean of three samples.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np

from benchmarks.stream_cost import items_of
from ccrank import CcrankWarning, Reader, Task, fit
from ccrank.api import rank_tasks
from ccrank.metrics.order import tau_b
from ccrank.models import ReadingCache

SIZES = (20, 50, 100, 200)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=400)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", CcrankWarning)
    criterion, names = items_of("names")
    generator = np.random.default_rng(0)
    items = [names[place] for place in generator.permutation(len(names))[: chosen.items]]
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader.open("default", cache=ReadingCache(Path(folder)))
        [whole] = rank_tasks([Task(criterion, tuple(items), id="all")], reader)
        print(f"{len(items)} items\n| sample | τ with the ranking in memory |\n|---|---|")
        for size in SIZES:
            found = []
            for _ in range(3):
                places = generator.permutation(len(items))
                scale = fit([items[place] for place in places[:size]], whole.task.criterion, model=reader)
                found.append(tau_b(scale(items), whole.scores))
            print(f"| {size} | {np.mean(found):.3f} |", flush=True)


if __name__ == "__main__":
    main()
