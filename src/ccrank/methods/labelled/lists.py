"""From labels and label-free scores of lists to scores with uncertainty: one list, or several of one criterion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, combinations, islice
from typing import Any

import numpy as np
from scipy.special import ndtr

from ccrank.criteria.exemplars import WRITTEN
from ccrank.errors import CcrankError
from ccrank.labels import ONE_VALUE, Labels
from ccrank.methods.labelled.fit import Fitted, fit
from ccrank.methods.labelled.observations import Observations, observations_of
from ccrank.methods.labelled.prior import Kernel, States, grid
from ccrank.methods.labelled.saved_model import LabelModel
from ccrank.methods.labelled.settled import settle
from ccrank.ranking import Answer, MakeScorer, finite
from ccrank.task import Task, by_criterion
from ccrank.util.cancellation import check
from ccrank.util.text import one_line
from ccrank.util.zscores import z_scores

MAX_PAIRS = 100_000
"""Of one annotator's grades; an agreement needs no more."""
MAX_VALUE_PAIRS = 20_000
"""Of more pairs of values an even sample says how well labels are predicted by each other."""
SURPRISING = 0.02
"""A label disagrees with the others if its probability, given all of them, is below this. For a value it is the
two-sided probability of being as far from its prediction."""
FROM_TASKS = "tasks"
"""As `labels`: the values of the tasks themselves."""

MakeModel = Callable[[], LabelModel]
"""Fits the model that scores other items, when it is needed."""
MakeLabelledScorer = Callable[[Task, MakeScorer | None, MakeModel], MakeScorer]
"""(task, what scores others without labels, model of labels) → what scores others by both."""


def task_labels(tasks: Sequence[Task], labels: object) -> list[Labels]:
    """The labels of each task."""
    if isinstance(labels, str):
        if labels != FROM_TASKS:
            raise CcrankError(
                f"labels={labels!r}: labels in a text are {FROM_TASKS!r}, the tasks' own values"
            )
        return [
            Labels() if task.values is None else Labels.parse(dict(zip(task.items, task.values, strict=True)))
            for task in tasks
        ]
    parsed = Labels.parse(labels)
    if len(tasks) != 1:
        raise CcrankError(
            f"labels are for the items of one list; there are {len(tasks)} tasks: rank them one by one, or put values "
            f"into the tasks and give labels={FROM_TASKS!r}"
        )
    parsed.check(tasks[0].items)
    return [parsed]


def with_labels(
    tasks: Sequence[Task],
    labels: Sequence[Labels],
    label_free: Sequence[Answer],
    states: Mapping[int, States],
    scorer: MakeLabelledScorer = lambda task, plain, model: model,
) -> list[Answer]:
    """Answers by labels, from label-free answers and states that have been read; nothing is read here. Lists of one
    fit share a scorer."""
    answers = [*label_free]
    for members in by_criterion(tasks).values():
        of_pool = [labels[index] for index in members]
        if any(map(len, of_pool)):
            plain = [answers[index] for index in members]
            items = [tasks[index].items for index in members]
            pool, model = score_lists(items, of_pool, plain, [states[index] for index in members])
            make = scorer(tasks[members[0]], plain[0].scorer if len(members) == 1 else None, model)
            for index, answer in zip(members, pool, strict=True):
                answers[index] = replace(answer, scorer=make)
    return answers


def score_lists(
    items: Sequence[Sequence[str]],
    labels: Sequence[Labels],
    label_free: Sequence[Answer],
    states: Sequence[States],
) -> tuple[list[Answer], MakeModel]:
    """Answers for lists of one criterion, by one fit to the labels on one or more of them, and what makes its model."""
    starts = [0, *accumulate(map(len, items))]
    seen = observations_of(labels, items)
    prior = np.concatenate([z_scores(np.asarray(answer.scores, float)) for answer in label_free])
    kernel = Kernel(states)
    written = any(WRITTEN in answer.details.get("signals", {}) for answer in label_free)
    fitted = fit(prior, kernel.products(seen.items), seen, grid(written))
    shown = prior
    if any(said.moves for said in labels):  # by someone who saw the order by all other labels
        others = [said.without_moves() for said in labels]
        if any(map(len, others)):
            seen_before, _ = score_lists(items, others, label_free, states)
            shown = np.concatenate([answer.scores for answer in seen_before])
    draws = fitted.draws(np.random.default_rng(0))
    held_out = leave_out(fitted)
    too_few = (ONE_VALUE,) if Labels.joined(labels).teaches_nothing else ()
    answers = []
    for number, (texts, said) in enumerate(zip(items, labels, strict=True)):
        part = slice(starts[number], starts[number + 1])
        settled = settle(shown[part], fitted.mean[part], fitted.deviation[part], draws[part], said, texts)
        details = {
            "labels": sum(map(len, labels)),
            "labelled": len(seen.items),
            "label_free_weight": round(fitted.expected("prior_weight"), 4),
            "states_share": round(fitted.expected("kernel_share"), 4),
            "left_out_tau": finite(held_out.tau),
            "label_free_tau": finite(held_out.prior_tau),
            "right_pairs": finite(settled.right_pairs),
            "agreements": agreements(said),
            **_about_rows(
                fitted.observations, held_out.probability, settled.scores, texts, said, number, part.start
            ),
        }
        answers.append(
            replace(
                label_free[number],
                scores=settled.scores,
                details={**label_free[number].details, "labels": details},
                uncertainty=settled.uncertainty,
                warnings=(*label_warnings(details), *too_few),
                confidence=None,  # how labels change it was not studied
            )
        )
    alone = np.asarray(label_free[0].scores, float) if len(label_free) == 1 else None
    return answers, partial(LabelModel.fit, fitted, kernel, alone)


def _about_rows(
    seen: Observations,
    probability: np.ndarray,
    scores: np.ndarray,
    texts: Sequence[str],
    labels: Labels,
    number: int,
    start: int,
) -> dict[str, Any]:
    """What is said about single labels of a list: the noise of annotators, labels that disagree with the rest, the most
    surprising first, and pairs that are reversed in the order."""
    first, second = seen.first - start, seen.second - start
    of_two = (seen.first >= 0) & (seen.second >= 0)
    rows = np.flatnonzero(seen.lists == number).tolist()
    noises = seen.noises / np.where(of_two, 2.0, 1.0)
    pairs = [row for row in rows if of_two[row] and not seen.is_value[row]]
    surprising = sorted((row for row in rows if probability[row] < SURPRISING), key=probability.__getitem__)

    def words(row: int) -> str:
        if seen.is_graded[row]:
            return f"{texts[first[row]]}: {seen.values[row]:g}"
        if of_two[row]:
            return f"{texts[first[row]]} {'=' if seen.is_value[row] else '>'} {texts[second[row]]}"
        return f"best: {texts[first[row]]}" if seen.first[row] >= 0 else f"worst: {texts[second[row]]}"

    return {
        "annotator_noise": {
            name or "unnamed": float(noises[seen.people == person].max(initial=1.0))
            for person, (name, labels_of) in enumerate(labels.parts)
            if labels.annotators and len(labels_of)
        },
        "disagree": [
            {"label": words(row), "probability": round(float(probability[row]), 4)} for row in surprising
        ],
        "reversed": [words(row) for row in pairs if scores[first[row]] <= scores[second[row]]],
    }


def label_warnings(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Warnings about single labels: those that disagree with the rest, and pairs that are reversed in the order."""
    surprising = ((one_line(label["label"]), label["probability"]) for label in details["disagree"])
    return (
        *(
            f"label disagrees with the rest (probability {share:.3f}), check it: {text}"
            for text, share in surprising
        ),
        *(f"label is reversed in this order: {one_line(label)}" for label in details["reversed"]),
    )


@dataclass(frozen=True)
class HeldOut:
    """Each label as predicted by all others."""

    probability: np.ndarray  # (M,) two-sided for a value, of the order for a pair or pick
    tau: float
    """Of pairs of values, pairs and picks, as predicted without the labels that they are about; NaN without any."""
    prior_tau: float
    """The same by the label-free score."""


def leave_out(fitted: Fitted) -> HeldOut:
    """Leave each label out in turn, in closed form: with P = (G + W⁻¹)⁻¹ and r = P(sites − mean), the residual of a
    block B that is left out is P_BB⁻¹ r_B, with the covariance P_BB⁻¹. Exact for values; pairs and picks keep the sites
    of Laplace's approximation."""
    seen = fitted.observations
    compared = ~seen.is_value
    highs, lows = _value_pairs(seen)
    probability, signs = np.zeros(len(seen)), np.zeros(len(highs) + int(compared.sum()))
    for weight, setting, posterior in zip(fitted.weights, fitted.settings, fitted.posteriors, strict=True):
        check()
        inverse, dual, sites = posterior.inverse(), posterior.dual, posterior.sites
        diagonal = np.diag(inverse)
        predicted = sites - dual / diagonal
        # What is left out is predicted without its own noise: 1/P_ii holds it, once.
        variance = np.maximum(1 / diagonal - 1 / posterior.precision, 1e-12)
        z = (seen.target - predicted) / np.sqrt(variance + setting.noise * seen.noises)
        probability += weight * np.where(seen.is_value, 2 * ndtr(-np.abs(z)), ndtr(-z))
        # Both rows of a pair of values are left out together.
        a, b, c = inverse[highs, highs], inverse[highs, lows], inverse[lows, lows]
        first, second = dual[highs], dual[lows]
        residual = ((c * first - b * second) - (a * second - b * first)) / (a * c - b * b)
        apart = sites[highs] - sites[lows] - residual
        signs = signs + weight * np.concatenate([apart, (predicted - seen.target)[compared]])
    if not len(signs):
        return HeldOut(probability, float("nan"), float("nan"))
    before = seen.contrast @ fitted.prior[seen.items]
    prior_order = np.concatenate([before[highs] - before[lows], (before - seen.target)[compared]])
    return HeldOut(probability, float(np.sign(signs).mean()), float(np.sign(prior_order).mean()))


def _value_pairs(seen: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Rows (higher, lower) of all pairs of unequal values within a list; an even sample of too many."""
    above = seen.target[:, None] > seen.target[None]
    within = (seen.lists[:, None] == seen.lists[None]) & np.outer(seen.is_graded, seen.is_graded)
    other = seen.first[:, None] != seen.first[None]
    highs, lows = np.nonzero(above & within & other)
    step = -(-len(highs) // MAX_VALUE_PAIRS) or 1
    return highs[::step], lows[::step]


def agreements(labels: Labels) -> list[dict[str, Any]]:
    """For each two annotators who said something about the same pairs of items: how many, and the share of them about
    which they said the same."""
    orders = {name or "unnamed": dict(_orders(said)) for name, said in labels.parts}
    entries = []
    for pair in combinations(orders, 2):
        first, second = (orders[name] for name in pair)
        if shared := first.keys() & second.keys():
            share = sum(first[items] == second[items] for items in shared) / len(shared)
            entries.append({"annotators": [*pair], "pairs": len(shared), "agreement": round(share, 4)})
    return entries


def _orders(labels: Labels) -> Iterator[tuple[tuple[str, str], int]]:
    """Pairs of items in the order of their texts: 1 if the first is higher, −1 if lower, 0 if they are about equal."""
    graded = combinations(sorted(dict(labels.values).items()), 2)
    for (first, value), (second, other) in islice(graded, MAX_PAIRS):
        yield (first, second), (value > other) - (value < other)
    for first, second in labels.equal:
        yield (min(first, second), max(first, second)), 0
    for high, low in labels.orders:
        yield (min(high, low), max(high, low)), 1 if high < low else -1
