"""What a label-free ranking says beside its order: signals, agreement, confidence."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, nan
from typing import Any

import numpy as np

from ccrank.confidence import Features, confidence_of
from ccrank.labelfree.combine import Signals
from ccrank.labelfree.signals import are_texts
from ccrank.lexicon import poles_of
from ccrank.lm import Cost
from ccrank.ranking import Answer
from ccrank.relevance.query_likelihood import describe_relevance
from ccrank.task import Task


def answer_of(task: Task, signals: Signals, scores: np.ndarray, cost: Cost, probe: object = None) -> Answer:
    """Scores with the signals that they were made of and the confidence in them."""
    words = poles_of(task.criterion)
    details = {
        "poles": [words.low[0], words.high[0]],
        "signals": {
            name: {item: round(float(one), 4) for item, one in zip(task.items, row, strict=True)}
            for name, row in signals.scores.items()
        },
    }
    features = features_of(task, signals)
    return Answer(
        scores,
        {"signals_agree": features.agreement, "signals_p_value": features.p_value},
        cost,
        details,
        probe,
        confidence=confidence_of(features),
    )


def features_of(task: Task, signals: Signals) -> Features:
    """What is known of a ranking without gold, for its confidence.

    Parameters
    ----------
    task
        The list that was ranked.
    signals
        Its signals.
    """
    agreement, p_value = signals.agreement()
    understood = task.criterion.understood
    return Features(
        n_items=len(task.items),
        agreement=agreement,
        p_value=p_value,
        kind="context" if task.context else "text" if are_texts(task.items) else "name",
        poles=poles_of(task.criterion).source if understood is None else understood.source,
        category=task.criterion.category is not None,
    )


def describe_signals(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """The poles, how far the signals agree and what labels changed, as phrases."""
    phrases = []
    if isfinite(agree := consistency.get("signals_agree", nan)):
        low, high = details["poles"]
        phrases += [f"from {low} to {high}", f"the signals agree (mean τ = {agree:.2f}; 0 by chance)"]
    phrases += describe_relevance(consistency, details)
    if "labels" in details:
        labels = details["labels"]
        phrases.append(f"{labels['labels']} labels on {labels['labelled']} items")
        if labels["left_out_tau"] is not None:
            phrases.append(
                f"left out, labels are predicted at τ = {labels['left_out_tau']:+.2f} "
                f"({labels['label_free_tau']:+.2f} without labels)"
            )
    return phrases
