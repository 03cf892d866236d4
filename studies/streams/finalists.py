"""How the best items of a long list are best compared with each other: `ccrank rank --input --top`.

    python -m studies.streams.finalists                     # lists of names, packaged
    python -m studies.streams.finalists --kind texts        # short texts by criteria of $CCRANK_DATA

Lists with gold are ranked by `auto`; the best 16 are finalists and are ranked again by several rules. Reported over
lists: the mean percentile in gold of the third of the finalists that comes first (0.5 by chance over the whole list),
and τ with gold among the finalists. Lists have 10 to 80 items; of fewer than 32 the better half are finalists.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ccrank import CcrankWarning, Criterion, Reader, Task, load_dataset
from ccrank.api import rank_tasks
from ccrank.io.taskfiles import read_tasks
from ccrank.metrics.order import tau_b
from ccrank.task import normal_form
from ccrank.util.zscores import z_scores

MOST_ITEMS, FINALISTS = 80, 16


def lists(kind: str) -> Iterator[tuple[str, Criterion, dict[str, float]]]:
    """(name, criterion, item → value): the tasks of each criterion pooled where their values are on one scale."""
    generator = np.random.default_rng(0)
    if kind == "names":
        packaged = ("worldlists", "everyday")
        groups = [(f"{name}: {task.id}", [task]) for name in packaged for task in load_dataset(name)]
    else:
        folder = Path(os.environ["CCRANK_DATA"], "textcriteria")
        groups = [(path.stem, read_tasks(path)) for path in sorted(folder.glob("*.jsonl"))]
    for name, tasks in groups:
        values: dict[str, tuple[str, float]] = {}
        for task in tasks:
            for item, value in zip(task.items, task.values or (), strict=True):
                values.setdefault(normal_form(item), (item, float(value)))
        rows = sorted(values.values())
        long = np.mean([len(item) for item, _ in rows]) > 110
        if len(rows) < 10 or long:
            continue
        kept = sorted(generator.permutation(len(rows))[:MOST_ITEMS])
        yield name, tasks[0].criterion, dict(rows[place] for place in kept)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument("--kind", choices=["names", "texts"], default="names")
    parser.add_argument("--limit", type=int, help="only so many lists")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", CcrankWarning)
    reader = Reader.open(chosen.model)
    found: dict[str, list[tuple[float, float]]] = {}
    for name, criterion, gold in [*lists(chosen.kind)][: chosen.limit]:
        order = sorted(gold, key=lambda item: gold[item])
        percentile = dict(zip(order, np.linspace(0, 1, len(order)), strict=True))
        [whole] = rank_tasks([Task(criterion, tuple(gold), id=name)], reader)
        streamed = dict(zip(whole.task.items, whole.scores, strict=True))
        best = sorted(gold, key=lambda item: -streamed[item])[: min(FINALISTS, len(gold) // 2)]
        task = Task(criterion, tuple(best), id=name)
        again = {method: rank_tasks([task], reader, method)[0].scores for method in ("auto", "prompt-pair")}
        rows = {"stream": z_scores(np.array([streamed[item] for item in best]))}
        rows |= {method: z_scores(scores) for method, scores in again.items()}
        rows |= {f"stream + {method}": rows["stream"] + rows[method] for method in again}
        values = np.array([gold[item] for item in best])
        for rule, scores in rows.items():
            count = -(-len(best) // 3)
            first = [best[place] for place in np.argsort(-scores, kind="stable")[:count]]
            found.setdefault(rule, []).append(
                (float(np.mean([percentile[item] for item in first])), float(tau_b(scores, values)))
            )
        line = ", ".join(f"{rule} {pairs[-1][0]:.2f} {pairs[-1][1]:+.2f}" for rule, pairs in found.items())
        print(f"{name} ({len(gold)} items): {line}", flush=True)
    print(f"\n{'rule':22} {'percentile of the first':>30} {'τ of the finalists':>20}")
    for rule, pairs in found.items():
        table = np.array(pairs)
        error = table.std(axis=0) / np.sqrt(len(table))
        mean = table.mean(axis=0)
        print(f"{rule:22} {mean[0]:>23.3f} ± {error[0]:.3f} {mean[1]:>+12.3f} ± {error[1]:.3f}")
    print(f"{len(next(iter(found.values())))} lists")


if __name__ == "__main__":
    main()
