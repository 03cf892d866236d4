"""Metrics of retrieval: nDCG@k, reciprocal rank, average precision and recall@k, with their chance levels.

The metrics are computed by `ir-measures` (trec_eval), an optional package. Scores and grades are (N,); grades are at
least 0, and 0 is not relevant. Documents with equal scores are taken in the given order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ccrank.errors import CcrankError, needs_extra

CUT = 10
"""Documents that nDCG and recall look at."""


class RetrievalMetrics(NamedTuple):
    """Metrics of one query's ranking; all are NaN for a query without a relevant document."""

    ndcg: float
    """nDCG@k: discounted gains of the first k, as a share of the best order's."""
    mrr: float
    """1 / rank of the first relevant document."""
    map: float
    """Average precision: the mean precision at the ranks of the relevant documents."""
    recall: float
    """Recall@k: the share of the relevant documents among the first k."""


NAMES = RetrievalMetrics._fields
NO_METRICS = RetrievalMetrics(math.nan, math.nan, math.nan, math.nan)


def evaluate_relevance(scores: ArrayLike, grades: ArrayLike, k: int = CUT) -> RetrievalMetrics:
    """Metrics of the ranking of one query's documents.

    >>> found = evaluate_relevance([3.0, 2.0, 1.0], [0, 1, 0])
    >>> found.mrr, found.map, found.recall, round(found.ndcg, 4)
    (0.5, 0.5, 1.0, 0.6309)
    """
    gold = _checked(grades, k)
    values = np.asarray(scores, dtype=float)
    if values.shape != gold.shape or not np.isfinite(values).all():
        raise CcrankError(f"{gold.size} grades need as many finite scores, got shape {values.shape}")
    if not gold.any():
        return NO_METRICS
    with needs_extra("relevance", "a metric of retrieval"):
        import ir_measures as measures
    order = np.argsort(-values, kind="stable")
    # The position in the order is the score, so that ties are broken here and not by the names of documents.
    run = {"q": {str(index): float(len(gold) - position) for position, index in enumerate(order)}}
    judged = {"q": {str(index): int(grade) for index, grade in enumerate(gold)}}
    wanted = [measures.nDCG @ k, measures.RR, measures.AP, measures.R @ k]
    measured = measures.calc_aggregate(wanted, judged, run)
    return RetrievalMetrics(*(float(measured[measure]) for measure in wanted))


def chance_relevance(grades: ArrayLike, k: int = CUT) -> RetrievalMetrics:
    """The expected metrics of a uniformly random order of the documents.

    With R relevant ones among N: E[recall@k] = min(k, N) / N, E[AP] = 1/N Σ_r (1 + (r−1)(R−1)/(N−1)) / r, the first
    relevant one is at rank r with probability C(N−r, R−1) / C(N, R), and every rank has the mean gain.

    >>> chance = chance_relevance([1, 0])
    >>> chance.mrr, chance.map, round(chance.ndcg, 4)
    (0.75, 0.75, 0.8155)
    """
    gold = _checked(grades, k)
    count, relevant = len(gold), int((gold > 0).sum())
    if not relevant:
        return NO_METRICS
    ranks = np.arange(1, count + 1)
    discounts = 1 / np.log2(ranks[:k] + 1)
    best = float((np.sort(gold)[::-1][:k] * discounts).sum())
    first = [math.comb(count - rank, relevant - 1) / math.comb(count, relevant) for rank in ranks.tolist()]
    precision = (1 + (ranks - 1) * (relevant - 1) / max(1, count - 1)) / ranks
    return RetrievalMetrics(
        ndcg=float(gold.mean() * discounts.sum() / best),
        mrr=float((np.array(first) / ranks).sum()),
        map=float(precision.mean()),
        recall=min(k, count) / count,
    )


def mean_relevance(queries: Sequence[RetrievalMetrics]) -> RetrievalMetrics:
    """The means over queries that have a relevant document."""
    known = [query for query in queries if not math.isnan(query.ndcg)]
    return RetrievalMetrics(*np.mean(known, axis=0).tolist()) if known else NO_METRICS


def _checked(grades: ArrayLike, k: int) -> np.ndarray:
    gold = np.asarray(grades, dtype=float)
    if gold.ndim != 1 or not len(gold) or (gold < 0).any() or (gold != np.floor(gold)).any():
        raise CcrankError(f"grades of relevance are whole numbers, at least 0, got {grades!r:.80}")
    if k < 1:
        raise CcrankError(f"the cut k must be at least 1, got {k}")
    return gold


def have_measures() -> bool:
    """Whether `ir-measures` is installed."""
    return find_spec("ir_measures") is not None
