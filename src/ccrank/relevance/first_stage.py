"""Scores of a first stage: those that a search engine gave, or BM25 over the documents of a task."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm import ReaderLike
from ccrank.lm.reader import Progress
from ccrank.prompts import Templates
from ccrank.ranking import Answer
from ccrank.relevance.task_query import query_of
from ccrank.task import Task

SOURCES = ("none", "auto", "given", "bm25")
"""Where first-stage scores come from; auto takes those given, in tasks that have them."""
K1, B = 0.9, 0.4
"""The saturation of term counts and the weight of length, as Anserini has them."""


def first_stage(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    source: str = "auto",
    progress: Progress | None = None,
) -> list[Answer]:
    """The order of the first stage: the scores given in the tasks, BM25 over their documents where there are none.

    `source=given` refuses tasks without scores; `source=bm25` computes BM25 for all of them.
    """
    if source not in SOURCES[1:]:
        raise CcrankError(f"source={source!r}: it is one of {', '.join(SOURCES[1:])}")
    answers = []
    for task in tasks:
        scores = first_stage_scores(task, source)
        answers.append(Answer(bm25_scores(query_of(task), task.items) if scores is None else scores))
    return answers


def first_stage_scores(task: Task, source: str) -> np.ndarray | None:
    """(N,) the scores of the first stage; None where there are none.

    Parameters
    ----------
    task
        A task with a query.
    source
        One of `SOURCES`.
    """
    if source not in SOURCES:
        raise CcrankError(f"first_stage={source!r}: it is one of {', '.join(SOURCES)}")
    if source == "bm25":
        return bm25_scores(query_of(task), task.items)
    if source == "given" and task.first_stage is None:
        raise CcrankError(
            f"task {task.id!r} has no scores of a first stage; give first_stage, a list with a score for each item, "
            "or take bm25"
        )
    return None if source == "none" or task.first_stage is None else np.array(task.first_stage)


def bm25_scores(query: str, documents: Sequence[str]) -> np.ndarray:
    """(N,) BM25 of documents, which are the whole collection: document frequencies are counted in them.

    Parameters
    ----------
    query
        A question or keywords.
    documents
        The documents.
    """
    bm25s = _bm25s()
    own, *words = bm25s.tokenize([query, *documents], return_ids=False, show_progress=False)
    if not own or not any(words):
        return np.zeros(len(documents))
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index(words, show_progress=False)
    return np.asarray(index.get_scores(own), dtype=float)


def _bm25s() -> Any:
    try:
        return import_module("bm25s")
    except ImportError:
        raise CcrankError(
            "BM25 needs the package bm25s; install it with pip install 'ccrank[relevance]'"
        ) from None
