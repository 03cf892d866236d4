"""How far rankings with a model behind a server agree with those of the same model loaded here, method by method.

    CCRANK_DATA=… python -m studies.remote.remote openai:http://127.0.0.1:8080/v1 [--local default] [--tasks 6]

For each method and dataset, over lists taken evenly from the dataset: Pearson's correlation between the scores of both,
Kendall's τ between their orders, and the signed τ of both against gold, whose chance level is 0; for queries nDCG@10,
whose chance level is that of random orders. Means over lists. Then how far single log-probabilities differ: those of
all words of both poles, in the prompts of `poles`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence

import numpy as np
from scipy.stats import kendalltau

from ccrank.api import rank_tasks
from ccrank.criteria.lexicon import poles_of
from ccrank.metrics.retrieval import chance_relevance, evaluate_relevance, mean_relevance
from ccrank.models.prompter import Prompter
from ccrank.models.remote import OpenModel, open_model
from ccrank.ranking import Ranking
from ccrank.study.datasets import load_dataset
from ccrank.task import Task

DATASETS = ("scalaradj", "everyday", "reviews")
METHODS = ("poles", "likelihood", "prompt-pair", "prompt-point", "prompt-list")
OPTIONS = {"prompt-point": {"score": "expected"}}
"""The paper's tie-break of ratings takes logits, which servers do not give."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("server", help="openai:URL#NAME")
    parser.add_argument("--local", default="default", help="the same model, loaded here")
    parser.add_argument("--tasks", type=int, default=6, help="lists of each dataset")
    parser.add_argument("--queries", type=int, default=0, help="queries of CISI")
    parser.add_argument("--documents", type=int, default=8, help="documents of each query")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--datasets", default=",".join(DATASETS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    both = open_model(arguments.server), open_model(arguments.local)
    print(f"{both[0].name}: {both[0].server.scoring.name}")  # type: ignore[union-attr]
    print(
        "| method | dataset | lists | correlation of scores | τ between orders | τ to gold, server | τ to gold, here |"
    )
    print("|---|---|---|---|---|---|---|")
    tasks = {name: evenly(load_dataset(name), arguments.tasks) for name in arguments.datasets.split(",")}
    for method in filter(None, arguments.methods.split(",")):
        for name, own in tasks.items():
            start = time.perf_counter()
            rankings = [rank_tasks(own, one, method, options=OPTIONS.get(method)) for one in both]
            golds = [np.nanmean([tau(one.scores, one.task.values) for one in found]) for found in rankings]
            print(
                f"| `{method}` | {name} | {len(own)} | {agreement(*rankings)} | {golds[0]:+.2f} | {golds[1]:+.2f} |",
                f" <!-- {time.perf_counter() - start:.0f} s -->",
                flush=True,
            )
    if arguments.queries:
        compare_queries(both, arguments.queries, arguments.documents)
    prompts, words = [], []
    for task in (task for own in tasks.values() for task in own):
        poles = poles_of(task.criterion)
        prompts += Prompter(both[0]).singles(task, "poles")
        words += [[*poles.low, *poles.high]] * len(task.items)
    tables = [one.read(prompts, words, log_probabilities=True).logits for one in both]
    assert tables[0] is not None
    assert tables[1] is not None
    apart = np.abs(tables[0] - tables[1])[np.isfinite(tables[0])]
    print(
        f"\n{len(apart):,} log-probabilities differ by {np.median(apart):.3f} (median), "
        f"{np.quantile(apart, 0.95):.3f} (95 %), {apart.max():.3f} (most)"
    )


def compare_queries(both: Sequence[OpenModel], queries: int, documents: int) -> None:
    """Query likelihood of CISI's documents, the relevant ones first among those that are kept."""
    tasks = []
    for task in evenly(load_dataset("cisi"), queries):
        kept = sorted(range(len(task.items)), key=lambda index: -(task.values or ())[index])
        chosen = [*kept[: documents // 2], *kept[len(kept) - documents + documents // 2 :]]
        items, values = (tuple(own[index] for index in chosen) for own in (task.items, task.values or ()))
        tasks.append(Task.of_query(task.query or "", items, values=values, id=task.id))
    rankings = [rank_tasks(tasks, one, "query-likelihood") for one in both]
    gains = [
        mean_relevance([evaluate_relevance(one.scores, one.task.values or ()) for one in found]).ndcg
        for found in rankings
    ]
    chance = mean_relevance([chance_relevance(task.values or ()) for task in tasks]).ndcg
    print(
        f"| `query-likelihood` | cisi, nDCG@10 (chance {chance:.2f}) | {len(tasks)} | {agreement(*rankings)} "
        f"| {gains[0]:.2f} | {gains[1]:.2f} |",
        flush=True,
    )


def evenly(tasks: Sequence[Task], count: int) -> list[Task]:
    return list(tasks[:: max(1, len(tasks) // count)][:count])


def agreement(first: Sequence[Ranking], second: Sequence[Ranking]) -> str:
    """Mean correlation of scores and mean τ between orders; lists with equal scores have neither."""
    pairs = [(one.scores, other.scores) for one, other in zip(first, second, strict=True)]
    correlation = np.nanmean([np.corrcoef(*pair)[0, 1] for pair in pairs])
    return f"{correlation:.3f} | {np.nanmean([tau(*pair) for pair in pairs]):.3f}"


def tau(scores: Sequence[float] | np.ndarray, others: Sequence[float] | np.ndarray | None) -> float:
    return float(kendalltau(scores, others).statistic)


if __name__ == "__main__":
    main()
