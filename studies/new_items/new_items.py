"""How good a scale is on items that it was not fitted on: signed τ against ranking them as a list of their own.

    python -m studies.new_items.new_items [--datasets texts,reviews,everyday] [--lists 12] [--sizes 20,50,200]

From each criterion some lists are held out. A scale is fitted, without a label, on 20, 50 and 200 items of the other
lists, and scores the held-out lists; beside it each of these is ranked by itself. Lists of `everyday` have a criterion
each: there the scale is fitted on other names of the same category and, if these are too few, of any. Nothing is chosen
on these numbers. Readings are cached, so that an item is read once.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ccrank import CcrankWarning, Reader, Task, fit, load_dataset, rank_tasks
from ccrank.io.taskfiles import read_tasks
from ccrank.metrics import tau_b
from ccrank.models import ReadingCache

Case = tuple[Sequence[Task], Sequence[str]]
"""Held-out lists of one criterion, and items that they do not have."""


def pooled(tasks: Sequence[Task], count: int, generator: np.random.Generator) -> Case:
    """Some lists of a criterion, and the items of all others."""
    order = generator.permutation(len(tasks))
    held_out = [tasks[place] for place in order[:count]]
    taken = {item for task in held_out for item in task.items}
    others = dict.fromkeys(
        item for place in order[count:] for item in tasks[place].items if item not in taken
    )
    return held_out, [*others]


def cases(name: str, lists: int, generator: np.random.Generator) -> Iterator[Case]:
    """The criteria of a dataset."""
    if name == "texts":
        for path in sorted(Path(os.environ["CCRANK_DATA"], "textcriteria").glob("*.jsonl")):
            yield pooled(read_tasks(path), max(1, lists // 3), generator)
    elif name == "reviews":
        yield pooled([*load_dataset("reviews")], lists, generator)
    else:
        tasks = [*load_dataset("everyday")]
        for place in generator.permutation(len(tasks))[:lists]:
            own = tasks[place]
            others = [task for task in tasks if task is not own]
            same = [task for task in others if task.criterion.category == own.criterion.category]
            rest = [others[index] for index in generator.permutation(len(others))]
            names = dict.fromkeys(item for task in (*same, *rest) for item in task.items)
            yield [own], [item for item in names if item not in own.items]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", default="texts,reviews,everyday")
    parser.add_argument("--lists", type=int, default=12)
    parser.add_argument("--sizes", default="20,50,200")
    parser.add_argument("--model", default="default")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", CcrankWarning)
    reader = Reader.open(chosen.model, cache=ReadingCache())
    sizes = [int(size) for size in chosen.sizes.split(",")]
    print(f"| dataset | lists | a list of their own | {' | '.join(f'on {size} others' for size in sizes)} |")
    print(f"|---|---|---|{'---|' * len(sizes)}")
    for name in chosen.datasets.split(","):
        generator = np.random.default_rng(0)
        found: list[list[float]] = []
        for held_out, others in cases(name, chosen.lists, generator):
            scales = [fit(others[:size], held_out[0].criterion, model=reader) for size in sizes]
            for task in held_out:
                gold = np.asarray(task.values)
                [own] = rank_tasks([task], reader)
                found.append([tau_b(own.scores, gold), *(tau_b(scale(task.items), gold) for scale in scales)])
        table = np.array(found)
        error = table.std(axis=0, ddof=1) / np.sqrt(len(table)) if len(table) > 1 else table[0]
        cells = [f"{mean:+.3f} ± {one:.3f}" for mean, one in zip(table.mean(axis=0), error, strict=True)]
        print(f"| {name} | {len(table)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
