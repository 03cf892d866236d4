"""From labels and label-free scores of lists to scores with uncertainty: one list, or several of one criterion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ccrank.labelled.checks import LeftOut, leave_out, reversed_pairs
from ccrank.labelled.fit import Fitted, fit, rank_intervals
from ccrank.labelled.kernel import Kernel, States
from ccrank.labelled.observations import Observations, join, observe
from ccrank.labelled.settings import grid
from ccrank.labels import Labels
from ccrank.standardise import z_scores
from ccrank.task import normal_form
from ccrank.text import one_line

PROBABILITY = 0.8
"""What an interval of ranks should hold."""


@dataclass(frozen=True)
class LabelledScores:
    """One list's part of a fit."""

    scores: np.ndarray
    """(N,) posterior means, in units of the deviation of all items."""
    deviation: np.ndarray
    """(N,)"""
    rank_low: np.ndarray
    """(N,) the best rank of the interval."""
    rank_high: np.ndarray
    """(N,) the worst one."""
    details: Mapping[str, Any]


@dataclass(frozen=True)
class LabelledLists:
    """The fit of several lists together."""

    fitted: Fitted
    kernel: Kernel
    lists: list[LabelledScores]


def observations_of(labels: Labels, items: Sequence[str], number: int = 0) -> Observations:
    """Labels as observations of a list's items, in an order that does not depend on that of the labels.

    Parameters
    ----------
    labels
        What is known.
    items
        The items of the list; those that are named must be among them.
    number
        The number of the list.
    """
    labels.check(items)
    place = {normal_form(item): index for index, item in enumerate(items)}
    return observe(
        sorted((place[item], value) for item, value in labels.values),
        sorted((place[high], place[low]) for high, low in labels.pairs),
        sorted({place[item] for item in labels.best}),
        sorted({place[item] for item in labels.worst}),
        len(items),
        number,
    )


def score_lists(
    priors: Sequence[np.ndarray],
    states: Sequence[States],
    items: Sequence[Sequence[str]],
    labels: Sequence[Labels],
    written: bool = False,
) -> LabelledLists:
    """Scores of all items of some lists of one criterion, by labels on one or more of them.

    Parameters
    ----------
    priors
        (N,) a list: the label-free scores.
    states
        (N, L, d) a list, at the slot and at the item.
    items
        The items' texts, a list.
    labels
        What is known of each list; empty labels where nothing is.
    written
        Whether exemplars of the criterion are part of the label-free scores.
    """
    starts = [0, *accumulate(map(len, items))]
    seen = join([observations_of(own, texts) for own, texts in zip(labels, items, strict=True)], starts[:-1])
    prior = np.concatenate([z_scores(np.asarray(own, float)) for own in priors])
    kernel = Kernel(states)
    fitted = fit(prior, kernel, seen, grid(written))
    draws = fitted.draws(np.random.default_rng(0))
    left_out = leave_out(fitted)
    texts = [text for own in items for text in own]
    found = []
    for number, (start, stop) in enumerate(pairwise(starts)):
        low, high = rank_intervals(draws[start:stop], PROBABILITY)
        found.append(
            LabelledScores(
                fitted.mean[start:stop],
                fitted.deviation[start:stop],
                low,
                high,
                _details(fitted, left_out, texts, labels, number, start, stop),
            )
        )
    return LabelledLists(fitted, kernel, found)


def _details(
    fitted: Fitted,
    left_out: LeftOut,
    texts: Sequence[str],
    labels: Sequence[Labels],
    number: int,
    start: int,
    stop: int,
) -> dict[str, Any]:
    """As JSON shows it. Labels that disagree are those of this list."""
    seen = fitted.observations
    place = {normal_form(item): index for index, item in enumerate(texts[start:stop])}
    raw = [value for _, value in sorted((place[item], value) for item, value in labels[number].values)]
    rows = np.flatnonzero(seen.lists == number)

    def words(row: int) -> str:
        first, second = int(seen.first[row]), int(seen.second[row])
        if seen.is_value[row]:
            return f"{texts[first]}: {raw[row - rows[0]]:g}"
        if first >= 0 and second >= 0:
            return f"{texts[first]} > {texts[second]}"
        return f"best: {texts[first]}" if first >= 0 else f"worst: {texts[second]}"

    own = set(rows.tolist())
    return {
        "labels": sum(map(len, labels)),
        "labelled": len(seen.items),
        "label_free_weight": round(fitted.prior_weight, 4),
        "states_share": round(fitted.kernel_share, 4),
        "left_out_tau": round(left_out.tau, 4) if np.isfinite(left_out.tau) else None,
        "label_free_tau": round(left_out.prior_tau, 4) if np.isfinite(left_out.prior_tau) else None,
        "disagree": [
            {"label": words(row), "probability": round(float(left_out.probability[row]), 4)}
            for row in map(int, left_out.surprising)
            if row in own
        ],
        "reversed": [words(row) for row in map(int, reversed_pairs(fitted)) if row in own],
    }


def label_warnings(details: Mapping[str, Any]) -> tuple[str, ...]:
    """What is to be said about single labels: those that disagree with the rest, and pairs that came out reversed.

    Parameters
    ----------
    details
        The `details` of a list with labels.
    """
    disagreeing = [
        f"label disagrees with the rest (probability {one['probability']:.3f}), check it: {one_line(one['label'])}"
        for one in details["disagree"]
    ]
    return (
        *disagreeing,
        *(f"label is reversed in this order: {one_line(one)}" for one in details["reversed"]),
    )
