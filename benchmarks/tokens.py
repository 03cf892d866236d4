"""What `auto` reads, signal by signal, and what each signal is worth.

    python benchmarks/tokens.py                               tokens for lists of 8, 100 and 1,000 items; runs no model
    CCRANK_DATA=… python benchmarks/tokens.py --quality 8     also τ against gold values, 8 lists of each dataset

Quality is measured on the text criteria that are for choosing, and on the packaged lists of everyday facts; with
`--split report` on those that take no part in any choice, to confirm one that was made. It is measured with all
signals, without each of them, with the first reading alone (poles, axis and exemplars), and with the second reading
left out where poles and axis agree at some τ or more.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.io.taskfiles import read_tasks
from ccrank.methods.estimate import CountingReader
from ccrank.methods.labelfree.combine import Signals
from ccrank.methods.labelfree.signals import Plan, read_raw, read_signals, wordings_of
from ccrank.metrics.order import tau_b
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.study.datasets import load_dataset
from ccrank.task import Criterion, Task

SIZES = (8, 100, 1000)
CRITERIA = {
    "choose": ("convincing", "difficulty", "headline-positive", "politeness"),
    "report": ("formality", "joke-funny", "offensive", "tweet-joy"),
}
FIRST = ("poles", "axis", "exemplars")
AGREEMENTS = (0.3, 0.5, 0.7)
WORDS = (
    "river",
    "stone",
    "music",
    "paper",
    "winter",
    "garden",
    "mother",
    "silver",
    "north",
    "market",
    "glass",
    "red",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quality", type=int, default=0, help="lists of each dataset that are ranked")
    parser.add_argument("--split", choices=tuple(CRITERIA), default="choose")
    arguments = parser.parse_args()
    reader = Reader.open("default")
    print(
        "| items | list of | poles, axis: items | exemplars of the poles | exemplar texts | likelihood, each wording |"
    )
    print("|---|---|---|---|---|---|")
    for name, words in (("names", 2), ("texts", 25)):
        for size in SIZES:
            print(f"| {name} | {size:,} |", " | ".join(tokens_by_signal(reader, made_up(size, words))), "|")
    if arguments.quality:
        print_quality(reader, arguments.quality, arguments.split)


def made_up(size: int, words: int) -> Task:
    """A task of different made-up items of some words each."""
    generator = np.random.default_rng(0)
    items: dict[str, None] = {}
    while len(items) < size:
        items[" ".join(generator.choice(WORDS, words)) + (f" {len(items)}" if words < 3 else ".")] = None
    return Task(
        Criterion("politeness", "more polite") if words > 9 else Criterion("size", "larger"), tuple(items)
    )


def tokens_by_signal(reader: Reader, task: Task) -> list[str]:
    """Distinct tokens that each signal adds to those before it."""

    def tokens(plan: Plan, written: bool = False) -> int:
        counting: Any = CountingReader(reader)
        read_raw([task], [plan], Prompter(counting), fitting=True, written=written)
        return int(counting.cost.distinct_tokens)

    with_states = Plan(poles=True, layers=(1,))
    counts = [tokens(Plan(poles=True)), tokens(with_states), tokens(with_states, written=True)]
    likelihoods = [tokens(Plan(wordings=(wording,))) for wording in wordings_of(task)]
    added = np.diff([0, *counts]).tolist()
    return [*(f"{count:,}" for count in added), ", ".join(f"{count:,}" for count in likelihoods)]


def print_quality(reader: Reader, count: int, split: str) -> None:
    """Mean τ of the orders that some of the signals give, dataset by dataset."""
    folder = Path(os.environ["CCRANK_DATA"]) / "textcriteria"
    datasets = {name: read_tasks(folder / f"{name}.jsonl")[:count] for name in CRITERIA[split]}
    if split == "choose":
        datasets["everyday"] = load_dataset("everyday")[:count]
    found: list[list[float]] = []
    for name, tasks in datasets.items():
        signals = [raw.signals for raw in read_signals(tasks, Prompter(reader))[0]]
        values = [_taus(task, one) for task, one in zip(tasks, signals, strict=True)]
        keys = sorted({key for row in values for key in row})
        means = {key: float(np.mean([row[key] for row in values if key in row])) for key in keys}
        print(
            f"{name} ({len(tasks)} lists): " + ", ".join(f"{key} {mean:+.3f}" for key, mean in means.items()),
            flush=True,
        )
        found.append([means["all"], means["first reading"]])
    print("mean of datasets: all {:+.3f}, first reading {:+.3f}".format(*np.mean(found, axis=0)))


def _taus(task: Task, signals: Signals) -> dict[str, float]:
    """τ of the orders by all signals, by all but each, by the first reading, and by rules that stop after it."""
    gold = np.asarray(task.values, float)
    everything = tau_b(signals.total(), gold)
    first = _only(signals, [name for name in signals.scores if name in FIRST])
    agreed = tau_b(signals.scores["poles"], signals.scores["axis"])
    taus = {"all": everything, "first reading": tau_b(first.total(), gold)}
    for name in signals.scores:
        taus[f"without {name}"] = tau_b(
            _only(signals, [one for one in signals.scores if one != name]).total(), gold
        )
    for least in AGREEMENTS:
        stops = agreed >= least
        taus[f"stop at {least}"] = taus["first reading"] if stops else everything
        taus[f"stopped at {least}"] = float(stops)
    return taus


def _only(signals: Signals, names: Sequence[str]) -> Signals:
    return Signals({name: signals.scores[name] for name in names})


if __name__ == "__main__":
    main()
