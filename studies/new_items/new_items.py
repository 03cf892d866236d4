"""How good a scale is on items that it was not fitted on: signed τ against ranking them as a list of their own.

    python -m studies.new_items.new_items read lists.csv [--sources everyday ...] [--texts FOLDER]
    python -m studies.new_items.new_items tables lists.csv

`read` holds lists out, fits scales on 20, 50 and 200 items of the other lists without a label, and ranks each held-out
list by itself and on each scale. Lists of `everyday` have a criterion each: there the scale is fitted on names of other
lists, those of the same category first. Nothing is chosen on these numbers.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ccrank import CcrankWarning, Ranking, Reader, Task, fit, load_dataset, rank_tasks
from ccrank.io.taskfiles import read_tasks
from ccrank.metrics.order import tau_b
from ccrank.metrics.tasks import macro_mean_with_interval
from studies.confidence.lists import TEXTS
from studies.intervals.intervals import Both

SIZES = (20, 50, 200)
OWN = "own"
KINDS = (OWN, *map(str, SIZES))
SPLITS, HELD_OUT = 5, 3
"""How often lists of a criterion of texts are held out, and how many at a time."""
REVIEWS, NAMES = 6, 16
"""Lists of reviews that are held out at a time, and lists of `everyday`."""
ROWS = {
    "everyday": ("everyday",),
    "reviews": ("reviews",),
    "texts, `choose`": TEXTS["choose"],
    "texts, `report`": TEXTS["report"],
}
"""The rows of the tables, and the sources of each."""
Row = dict[str, str]
Case = tuple[Sequence[Task], Sequence[str]]
"""Held-out lists of one criterion, and items that they do not have."""


def splits(tasks: Sequence[Task], held_out: int, count: int) -> Iterator[Case]:
    """Different lists of a criterion in turn, and a random order of the items of all others."""
    generator = np.random.default_rng(0)
    order = generator.permutation(len(tasks))
    for number in range(count):
        chosen = order[number * held_out : (number + 1) * held_out]
        taken = {item for place in chosen for item in tasks[place].items}
        items = {item for task in tasks for item in task.items} - taken
        yield [tasks[place] for place in chosen], [*generator.permutation(sorted(items))]


def names() -> Iterator[Case]:
    """Lists of `everyday`, and names of its other lists."""
    generator = np.random.default_rng(0)
    tasks = [*load_dataset("everyday")]
    for place in generator.permutation(len(tasks))[:NAMES]:
        task = tasks[place]
        others = [tasks[index] for index in generator.permutation(len(tasks)) if index != place]
        others.sort(key=lambda other: other.criterion.category != task.criterion.category)
        items = dict.fromkeys(item for other in others for item in other.items)
        yield [task], [item for item in items if item not in task.items]


def cases(source: str, texts: Path) -> Iterator[Case]:
    """What is held out of a source, and what the scales are fitted on."""
    if source == "everyday":
        return names()
    if source == "reviews":
        generator = np.random.default_rng(0)
        tasks = [*load_dataset("reviews")]
        return splits([tasks[place] for place in generator.permutation(len(tasks))[:60]], REVIEWS, SPLITS)
    return splits(read_tasks(texts / f"{source}.jsonl"), HELD_OUT, SPLITS)


def row_of(source: str, task: Task, rankings: Mapping[str, Ranking]) -> Row:
    """What is stored of a held-out list: τ, how many of the gold ranks the intervals hold, and their mean width."""
    gold = np.asarray(task.values)
    rank = np.argsort(np.argsort(-gold)) + 1
    row = {"source": source, "list": task.id, "items": str(len(gold))}
    for kind, ranking in rankings.items():
        known = ranking.uncertainty
        assert known is not None
        inside = (known.rank_low <= rank) & (rank <= known.rank_high)
        width = (known.rank_high - known.rank_low + 1).mean() / len(gold)
        values = {"tau": tau_b(ranking.scores, gold), "held": inside.mean(), "width": width}
        row |= {f"{name} {kind}": f"{value:.4f}" for name, value in values.items()}
    return row


def read(out: Path, sources: Sequence[str], texts: Path, model: str) -> None:
    """Rank every held-out list by itself and on each scale; one line a list."""
    warnings.simplefilter("ignore", CcrankWarning)
    memory = Both()
    reader = Reader.open(model, cache=memory)  # type: ignore[arg-type]
    rows: list[Row] = []
    for source in sources:
        memory.clear()
        for held_out, others in cases(source, texts):
            scales = {str(size): fit(others[:size], held_out[0].criterion, model=reader) for size in SIZES}
            for task in held_out:
                [own] = rank_tasks([task], reader)
                on_scales = {kind: scale.rank(task.items) for kind, scale in scales.items()}
                rows.append(row_of(source, task, {OWN: own, **on_scales}))
        print(source, len(rows), flush=True)
        with out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def tables(path: Path) -> None:
    """Print the tables of the page."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    print(table_of(rows, "tau"), table_of(rows, "held"), sep="\n\n")


def table_of(rows: Sequence[Row], measure: str) -> str:
    """Means over lists with 95 % intervals; a mean over several criteria is that of the criteria's means."""
    titles = ["a list of their own", *(f"on {size} others" for size in SIZES)]
    if measure == "tau":
        titles.append(f"{SIZES[-1]} others less own")
    lines = [f"| held-out lists | lists | {' | '.join(titles)} |", f"|---|---|{'---|' * len(titles)}"]
    for name, sources in ROWS.items():
        groups = [[row for row in rows if row["source"] == source] for source in sources]
        values = [
            np.array([[float(row[f"{measure} {kind}"]) for kind in KINDS] for row in group])
            for group in groups
        ]
        if measure == "tau":
            values = [np.column_stack([table, table[:, -1] - table[:, 0]]) for table in values]
        cells = []
        for column in range(len(titles)):
            found = macro_mean_with_interval([table[:, column] for table in values], np.random.default_rng(0))
            form = "{:+.2f} ({:+.2f} to {:+.2f})" if measure == "tau" else "{:.0%} ({:.0%} to {:.0%})"
            cells.append(form.format(found.mean, found.low, found.high).replace("-", "−"))
        lines.append(f"| {name} | {sum(map(len, groups))} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    reading = commands.add_parser("read")
    reading.add_argument("out", type=Path)
    sources = [source for row in ROWS.values() for source in row]
    reading.add_argument("--sources", nargs="*", default=sources, choices=sources)
    reading.add_argument(
        "--texts", type=Path, default=Path(os.environ.get("CCRANK_DATA", "."), "textcriteria")
    )
    reading.add_argument("--model", default="default")
    reading.set_defaults(run=read)
    printing = commands.add_parser("tables")
    printing.add_argument("path", type=Path)
    printing.set_defaults(run=tables)
    options = vars(parser.parse_args())
    options.pop("run")(**options)


if __name__ == "__main__":
    main()
