"""Relevance to a query: nDCG@10 and other metrics of query likelihood, of BM25 and of both together.

python -m studies.relevance.relevance [--half report] [--file candidates.jsonl] [--choices] [--model NAME]

Needs the extra `relevance`. What was chosen (wordings, weights of tokens, the sum with BM25) was chosen on
`--half choose` with `--choices`; `--half report` was not looked at. `--file` takes tasks with a query, values and
scores of a first stage (first_stage or bm25). Readings are cached, so that a second run reads nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from ccrank import Reader, ReaderOptions, Task, load_dataset
from ccrank.api import rank_tasks
from ccrank.io.taskfiles import read_tasks
from ccrank.methods.baselines import bm25_scores
from ccrank.methods.query_likelihood import WORDINGS
from ccrank.metrics.retrieval import (
    RetrievalMetrics,
    chance_relevance,
    evaluate_relevance,
    mean_relevance,
)
from ccrank.metrics.tasks import mean_with_interval, paired_test
from ccrank.models import Cost, ReadingCache
from ccrank.util.zscores import z_scores

Scores = Sequence[np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", default="report", choices=["report", "choose", "all"])
    parser.add_argument("--file", help="another collection, as a task file")
    parser.add_argument("--choices", action="store_true", help="the alternatives that were tried")
    parser.add_argument("--model", default="default")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    tasks = read_tasks(options.file) if options.file else load_dataset("cisi", half=options.half)
    reader = Reader.open(options.model, ReaderOptions(dtype=options.dtype), cache=ReadingCache())
    if options.choices:
        print_choices(tasks, reader)
    else:
        print_table(tasks, reader)


def print_table(tasks: Sequence[Task], reader: Reader) -> None:
    """The methods as `ccrank bench` runs them, with intervals over queries and differences from BM25."""
    first = [np.array(task.first_stage) for task in tasks]
    likely = rank_tasks(tasks, reader, "query-likelihood")
    rows: dict[str, Scores] = {
        "BM25, as given": first,
        "BM25 over the documents alone": [bm25_scores([task])[0] for task in tasks],
        "BM25 over the documents of all queries": ranked(tasks, reader, "first-stage", source="bm25"),
        "query likelihood": [one.scores for one in likely],
        "query likelihood + BM25, as given": ranked(tasks, reader, "auto"),
        "query likelihood + BM25 over the documents alone": [
            ranked([task], reader, "auto", first_stage="bm25")[0] for task in tasks
        ],
        "query likelihood + BM25 over the documents of all queries": ranked(
            tasks, reader, "auto", first_stage="bm25"
        ),
    }
    print("| | nDCG@10 | 95 % | less BM25's | 95 % | MRR | MAP | recall@10 |")
    print("|---|---|---|---|---|---|---|---|")
    chance = mean_relevance([chance_relevance(task.values) for task in tasks])
    print(
        f"| a random order | {chance.ndcg:.3f} | | | | {chance.mrr:.3f} | {chance.map:.3f} | {chance.recall:.3f} |"
    )
    base = [one.ndcg for one in metrics(tasks, first)]
    for name, scores in rows.items():
        found = metrics(tasks, scores)
        own = mean_with_interval([one.ndcg for one in found], np.random.default_rng(0))
        test = paired_test([one.ndcg for one in found], base, np.random.default_rng(0)).difference
        less = "" if scores is first else f"{test.mean:+.3f}"
        between = "" if scores is first else f"[{test.low:+.3f}, {test.high:+.3f}]"
        mean = mean_relevance(found)
        print(
            f"| {name} | {own.mean:.3f} | [{own.low:.3f}, {own.high:.3f}] | {less} | {between} | "
            f"{mean.mrr:.3f} | {mean.map:.3f} | {mean.recall:.3f} |"
        )
    cost = sum((one.cost for one in likely), Cost())
    print(
        f"\n{len(tasks)} queries; query likelihood reads {cost.distinct_tokens / len(tasks):,.0f} tokens for each "
        f"({cost.prompt_tokens / len(tasks):,.0f} one by one)"
    )


def print_choices(tasks: Sequence[Task], reader: Reader) -> None:
    """Wordings alone and together, tokens weighted or not, and BM25 added with several weights."""
    first = [np.array(task.first_stage) for task in tasks]
    weights = (0.0, 0.5, 1.0, 1.5)
    print(f"| wordings | tokens | {' | '.join(f'{weight:g} × BM25' for weight in weights)} |")
    print("|---" * (len(weights) + 2) + "|")
    # All wordings first: single ones are then in the cache, and no document is read twice.
    for names in (WORDINGS, *((name,) for name in WORDINGS)):
        for weighted in (False, True):
            scores = ranked(tasks, reader, "query-likelihood", wordings=",".join(names), weighted=weighted)
            cells = []
            for weight in weights:
                both = [
                    z_scores(own) + weight * z_scores(other) for own, other in zip(scores, first, strict=True)
                ]
                mean = mean_relevance(metrics(tasks, both))
                cells.append(f"{mean.ndcg:.3f}, MAP {mean.map:.3f}")
            how = "√(−log p)" if weighted else "equal"
            print(f"| {', '.join(names)} | {how} | {' | '.join(cells)} |", flush=True)


def ranked(tasks: Sequence[Task], reader: Reader, method: str, **options: object) -> Scores:
    """The scores of a method."""
    return [one.scores for one in rank_tasks(tasks, reader, method, options=options)]


def metrics(tasks: Sequence[Task], scores: Scores) -> list[RetrievalMetrics]:
    """The metrics of each query."""
    return [evaluate_relevance(own, task.values) for task, own in zip(tasks, scores, strict=True)]


if __name__ == "__main__":
    main()
