"""Baselines: the length of an item, its likelihood under the model, and the scores of a first stage such as BM25."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from ccrank.errors import CcrankError, needs_extra
from ccrank.models.prompter import Prompter
from ccrank.models.reading import share_of
from ccrank.prompts import Piece, Prompt
from ccrank.ranking import Answer
from ccrank.task import Task
from ccrank.util.text import quoted

LEAD = "This is"
"""The neutral prefix of an item whose frequency is estimated."""
SOURCES = ("none", "auto", "given", "bm25")
"""Where first-stage scores come from; auto takes those given, in tasks that have them."""
K1, B = 0.9, 0.4
"""The saturation of term counts and the weight of length, as Anserini has them."""


def item_length(tasks: Sequence[Task], prompter: Prompter) -> list[Answer]:
    """The number of characters: the ranking of a method that uses surface features only."""
    return [Answer(np.array([float(len(item)) for item in task.items])) for task in tasks]


def item_frequency(tasks: Sequence[Task], prompter: Prompter, *, lead: str = LEAD) -> list[Answer]:
    """The item's log-probability under the model after a neutral prefix, without context or criterion. It approximates
    the item's frequency in the training data; a probe that does no better measures frequency."""
    prompts = [Prompt((Piece(f"{lead} "), Piece("", "slot")), task=task.id) for task in tasks]
    items = [[item.strip() for item in task.items] for task in tasks]
    logits, cost = prompter.logits(prompts, items, log_probabilities=True)
    total = sum(map(len, items))
    return [
        Answer(row[: len(task.items)].astype(float), {}, share_of(cost, len(task.items), total))
        for task, row in zip(tasks, logits, strict=True)
    ]


def query_of(task: Task) -> str:
    """The query of a task, without white space around it; raises if the task has no query."""
    if task.query is None:
        raise CcrankError(
            f"task {task.id!r} has no query to rank documents for; give --query TEXT (query=…), or use another "
            f"method for the criterion {quoted(task.criterion.name)}"
        )
    return task.query.strip()


def first_stage(tasks: Sequence[Task], prompter: Prompter, *, source: str = "auto") -> list[Answer]:
    """The order of the first stage: the scores given in the tasks, BM25 over their documents where there are none.

    `source=given` refuses tasks without scores; `source=bm25` computes BM25 for all of them.
    """
    given = first_stage_scores(tasks, source, SOURCES[1:], "source")
    without = [task for task, scores in zip(tasks, given, strict=True) if scores is None]
    computed = iter(bm25_scores(without))
    return [Answer(next(computed) if scores is None else scores) for scores in given]


def first_stage_scores(
    tasks: Sequence[Task], source: str, sources: Sequence[str] = SOURCES, option: str = "first_stage"
) -> list[np.ndarray | None]:
    """Per task (N,) the scores of the first stage; None where there are none."""
    if source not in sources:
        raise CcrankError(f"{option}={source!r}: it is one of {', '.join(sources)}")
    if source == "bm25":
        return [*bm25_scores(tasks)]
    for task in tasks:
        if source == "given" and task.first_stage is None:
            raise CcrankError(
                f"task {task.id!r} has no scores of a first stage; give first_stage, a list with a score for each "
                "item, or take bm25"
            )
    return [
        None if source == "none" or task.first_stage is None else np.array(task.first_stage) for task in tasks
    ]


def bm25_scores(tasks: Sequence[Task], collection: Iterable[str] = ()) -> list[np.ndarray]:
    """Per task (N,) BM25 of its documents for its query, with the document frequencies and the mean length of all tasks
    and of the collection: the few documents that a search returns say little about how rare a word is."""
    with needs_extra("relevance", "BM25"):
        import bm25s
    queries = [query_of(task) for task in tasks]
    documents = [*dict.fromkeys(chain(collection, *(task.items for task in tasks)))]
    words = bm25s.tokenize([*queries, *documents], return_ids=False, show_progress=False)
    asked, held = words[: len(tasks)], words[len(tasks) :]
    if not any(held):
        return [np.zeros(len(task.items)) for task in tasks]
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index(held, show_progress=False)
    number_of = {document: number for number, document in enumerate(documents)}
    by_task = []
    for task, query in zip(tasks, asked, strict=True):
        scores = index.get_scores(query) if query else np.zeros(len(documents))
        by_task.append(np.asarray(scores, dtype=float)[[number_of[item] for item in task.items]])
    return by_task
