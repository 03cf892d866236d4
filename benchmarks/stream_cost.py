"""The cost of ranking 10⁶, 10⁸ and 10¹⁰ items by `auto` in a stream: tokens, operations, hours and bytes.

    python -m benchmarks.stream_cost                   # a table; the model is not run
    python -m benchmarks.stream_cost --check 2000      # tokens and seconds of a real run beside the prediction

Tokens are counted with the default model's tokenizer on names of packaged lists and on headlines ($CCRANK_DATA). Rates
are operations per second that reading attains: those of docs/explanation/reading-models.md unless given.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from benchmarks.job_cost import StreamCost, multiplied_parameters, tokens_per_item
from ccrank import Criterion, Reader, Task, load_dataset
from ccrank.io.taskfiles import read_tasks
from ccrank.jobs import StreamOptions, run_job
from ccrank.methods.labelfree.rankers import SignalScorer
from ccrank.methods.labelfree.signals import Plan
from ccrank.models.capacity import tokens_per_second
from ccrank.request import RankRequest

SEVEN_BILLION = 6_476_000_000
"""Multiplied parameters of a Llama of 7B shape, without its embedding table."""


def items_of(kind: str) -> tuple[Criterion, list[str]]:
    """A criterion and different items of one kind."""
    if kind == "names":
        tasks = [*load_dataset("worldlists"), *load_dataset("everyday")]
        criterion = Criterion("size", poles=("small", "large"))
    else:
        tasks = read_tasks(Path(os.environ["CCRANK_DATA"], "textcriteria", "headline-positive.jsonl"))
        criterion = tasks[0].criterion
    return criterion, sorted({item for task in tasks for item in task.items})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", type=float, default=106e9, help="operations per second of two cores")
    parser.add_argument("--gpu", type=float, default=170e12, help="operations per second of one GPU")
    parser.add_argument("--check", type=int, help="run so many items and compare")
    chosen = parser.parse_args()
    reader = Reader.open("default")
    small = multiplied_parameters(reader.loaded.model)
    print(
        "| items | kind | tokens | 135M: operations | two cores, hours | 7B: operations | GPU-hours | disk, GB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind in ("names", "headlines"):
        criterion, items = items_of(kind)
        task = Task(criterion, tuple(items))
        each = tokens_per_item(task, reader, SignalScorer(Plan.of_auto(task, reader)))
        row = sum(len(item.encode()) for item in items) / len(items) + 8
        for power in (6, 8, 10):
            own = StreamCost(10**power, each, small, row)
            large = StreamCost(10**power, each, SEVEN_BILLION, row)
            print(
                f"| 10^{power} | {kind} | {own.tokens:.1e} | {own.operations:.1e} | {own.hours(chosen.cpu):,.3g} | "
                f"{large.operations:.1e} | {large.hours(chosen.gpu):,.3g} | {own.disk_bytes / 1e9:,.1f} |"
            )
    if chosen.check:
        check(reader, chosen.check)


def check(reader: Reader, count: int) -> None:
    """Rank names in a stream; print tokens and seconds as predicted and as measured."""
    criterion, names = items_of("names")
    items = [f"{name} {number}" for number in range(1 + count // len(names)) for name in names][:count]
    sample = Task(criterion, tuple(items[:: max(1, count // 256)][:256]))
    each = tokens_per_item(sample, reader, SignalScorer(Plan.of_auto(sample, reader)))
    cost = StreamCost(count, each, multiplied_parameters(reader.loaded.model), 30)
    rate = tokens_per_second(reader.loaded.model)

    times: dict[str, float] = {}

    def clock(step: str, done: int, total: int) -> None:
        times.setdefault(step, time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "items.txt").write_text("\n".join(items))
        out = Path(folder, "out.parquet")
        options = StreamOptions(sample=64)
        request = RankRequest(by=criterion)
        run_job(Path(folder, "items.txt"), out, request, reader, options, watch=clock)
    print(
        f"{count} items: predicted {cost.tokens:,.0f} tokens, {cost.tokens / rate:.0f} s; "
        f"took {times['putting rows in order'] - times['scoring']:.0f} s"
    )


if __name__ == "__main__":
    main()
