"""What a single answer of `prompt-pair` follows: the first item, the second item, or the question.

    python -m studies.reproduction.pair_answers [reviews FILE.jsonl ...] [--model default] [--limit 60] [--device auto]
        [--dtype float32] [--json studies/reproduction/data/pair_answers.json]

"Is A more positive than B?" is asked for all ordered pairs of a list. The margin (logit of Yes less that of No) is
regressed on the gold of A and on the gold of B, each in standard deviations of the list's gold, with an intercept per
list. A model that compares has a positive coefficient for A and an equal, negative one for B. A positive coefficient
for B says that Yes follows the second item; an order of the items is reversed if it exceeds that of A. The same pairs
are then asked with the opposite comparative ("more negative", from the criterion's low pole): a model that heeds the
question answers the other way round, one that follows the tone of the texts does not.

Coefficients are means over lists with 95 % bootstrap intervals over lists. No p-values: there is one question, and
intervals answer it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ccrank import CcrankError, CcrankWarning, Reader, ReaderOptions, Task, load_dataset
from ccrank.api import rank_tasks
from ccrank.io.taskfiles import read_tasks
from ccrank.metrics.aggregation import wins_margins
from ccrank.metrics.order import kendall_tau
from ccrank.metrics.tasks import mean_with_interval
from ccrank.models import ReaderLike
from ccrank.study.experiment.units import spread

LIMIT = 60


def coefficients(margins: np.ndarray, gold: Sequence[float]) -> tuple[float, float]:
    """Of the first and of the second item in the least-squares fit of one list's margins, with an intercept.

    Parameters
    ----------
    margins
        (N, N) log-odds as in `ccrank.metrics.aggregation`: row = first item, column = second.
    gold
        (N,) the gold values; used in their standard deviations.
    """
    values = np.asarray(gold, dtype=float)
    values = (values - values.mean()) / values.std()
    first, second = np.nonzero(np.isfinite(margins))
    design = np.column_stack([np.ones(len(first)), values[first], values[second]])
    _, of_first, of_second = np.linalg.lstsq(design, margins[first, second], rcond=None)[0]
    return float(of_first), float(of_second)


def correlation(margins: np.ndarray, others: np.ndarray) -> float:
    """Between the margins of the same pairs of one list under two questions."""
    pairs = np.isfinite(margins)
    return float(np.corrcoef(margins[pairs], others[pairs])[0, 1])


def opposite(task: Task) -> Task:
    """The task with the comparative of its low pole; the gold stays that of the high one."""
    if task.criterion.poles is None:
        raise CcrankError(f"task {task.id!r} has no poles; give them, so that its question has an opposite")
    return replace(task, criterion=replace(task.criterion, comparative=f"more {task.criterion.poles[0]}"))


def margins_of(tasks: Sequence[Task], reader: ReaderLike) -> list[np.ndarray]:
    """Per task the margins of all ordered pairs, not calibrated: a constant per list is in the intercept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CcrankWarning)
        rankings = rank_tasks(tasks, reader, "prompt-pair", options={"calibration": "none", "pairs": "all"})
    return [one.pair_margins for one in rankings if one.pair_margins is not None]


def row_of(tasks: Sequence[Task], margins: Sequence[np.ndarray]) -> dict[str, Any]:
    """The numbers of one dataset and comparative: means over lists; τ is that of `prompt-pair` with its calibration."""
    golds = [task.values or () for task in tasks]
    fits = np.array([coefficients(one, gold) for one, gold in zip(margins, golds, strict=True)])
    wins = [wins_margins(one - np.nanmean(one)) for one in margins]
    taus = [kendall_tau(scores, gold) for scores, gold in zip(wins, golds, strict=True)]
    found: dict[str, Any] = {
        "comparative": tasks[0].criterion.comparative_phrase,
        "lists": len(tasks),
        "answers": int(sum(np.isfinite(one).sum() for one in margins)),
    }
    columns = {"first": fits[:, 0], "second": fits[:, 1], "first_less_second": fits[:, 0] - fits[:, 1]}
    for name, values in columns.items():
        # Each interval has its own generator, so that it does not depend on the others.
        estimate = mean_with_interval(values, np.random.default_rng(0))
        found |= {name: estimate.mean, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    found["tau"] = float(np.mean(taus))
    return {name: round(one, 4) if isinstance(one, float) else one for name, one in found.items()}


def measure(tasks: Sequence[Task], reader: ReaderLike) -> list[dict[str, Any]]:
    """Two rows: the dataset's own comparative, and the opposite one with the correlation between both answers."""
    turned = [opposite(task) for task in tasks]
    own, other = margins_of(tasks, reader), margins_of(turned, reader)
    agreement = np.mean([correlation(one, two) for one, two in zip(own, other, strict=True)])
    return [row_of(tasks, own), {**row_of(turned, other), "correlation": round(float(agreement), 4)}]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument("datasets", nargs="*", default=["reviews"], help="names of datasets and task files")
    parser.add_argument("--data-dir", default=None, help="folder of the datasets' files")
    parser.add_argument("--limit", type=int, default=LIMIT, help="lists of each dataset, evenly spread")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", type=Path, default=None, help="write the numbers to this file")
    asked = parser.parse_args()
    start, rows = time.perf_counter(), []
    reader = Reader.open(asked.model, ReaderOptions(device=asked.device, dtype=asked.dtype, truncate=True))
    for given in asked.datasets:
        tasks = read_tasks(given) if given.endswith(".jsonl") else load_dataset(given, asked.data_dir)
        name = Path(given).stem
        rows += [{"dataset": name, **row} for row in measure(spread(tasks, asked.limit), reader)]
        seconds = round(time.perf_counter() - start, 1)
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        if asked.json is not None:  # after each dataset: a run that is cut short keeps the others
            lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
            about = f' "model": {json.dumps(reader.name)},\n "seconds": {seconds},\n'
            asked.json.write_text(f'{{\n{about} "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
