"""The order that labels leave: what was said holds, and other items move only with evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from ccrank.labels import Labels
from ccrank.methods.labelled.fit import rank_intervals
from ccrank.ranking import Uncertainty
from ccrank.task import normal_form
from ccrank.util.cancellation import check

MOVED = 0.85
"""After an item was moved, by someone who saw the order and left the others where they were, two of these change places
only if the posterior probability of the new order is above this. Chosen by studies/labels/corrections.py on the lists
for choosing."""
MAX_ITEMS = 3000
"""A longer list follows the posterior means: pairs of its items take too much memory."""
MAX_SWEEPS = 20
GAP = 1e-3
"""The least difference of two scores whose order was changed."""
PROBABILITY = 0.8
"""What an interval of ranks should hold."""


@dataclass(frozen=True)
class Settled:
    """The final scores of N items of one list, and how far their order is to be trusted."""

    scores: np.ndarray
    """(N,) the posterior means, changed as little as the order takes."""
    uncertainty: Uncertainty
    right_pairs: float
    """The expected share of pairs of items in the right order, if the answers are right; NaN for long lists."""


def settle(
    shown: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    draws: np.ndarray,
    labels: Labels,
    items: Sequence[str],
) -> Settled:
    """The scores of one list from those in whose order items were moved (N,), by all other labels or label-free, and
    posterior means, deviations (N,) and draws (N, T)."""
    every, index_of = labels.everyone, {normal_form(item): index for index, item in enumerate(items)}
    orders = [(index_of[high], index_of[low]) for high, low in every.orders]
    moves = [(index_of[item], side == "above", index_of[other]) for item, side, other in every.moves]
    count, share, scores = len(mean), float("nan"), mean
    order = np.argsort(-mean, kind="stable")
    if count <= MAX_ITEMS:
        above = implied(orders, np.arange(count))
        probability, threshold = order_probability(mean, draws), 0.5
        if moves:
            shown_order = np.argsort(-shown, kind="stable").tolist()
            order, threshold = np.array(moved_order(shown_order, moves)), MOVED
        if orders:
            order = best_order(order.tolist(), probability, threshold, above)
        scores = monotone(mean, order)
        share = right_pairs(np.where(above, 1.0, np.where(above.T, 0.0, probability)), order)
    rank = np.argsort(order) + 1
    low, high = rank_intervals(draws, PROBABILITY)
    if count <= MAX_ITEMS:  # the answers hold
        low, high = np.maximum(low, 1 + above.sum(axis=0)), np.minimum(high, count - above.sum(axis=1))
    doubt = Uncertainty(deviation, np.minimum(low, rank), np.maximum(high, rank), PROBABILITY)
    return Settled(scores, doubt, share)


def implied(orders: Sequence[tuple[int, int]], among: np.ndarray) -> np.ndarray:
    """(C, C) whether answers (higher, lower) put an item above another, also by way of others, among items (C,),
    ascending, that hold all of them. Contradictions say nothing."""
    named = np.unique(np.array(orders, int))
    reach = np.zeros((len(named), len(named)), bool)
    for pair in orders:
        reach[tuple(np.searchsorted(named, pair))] = True
    for between in range(len(named)):
        reach[reach[:, between]] |= reach[between]
    above = np.zeros((len(among), len(among)), bool)
    at = np.searchsorted(among, named)
    above[np.ix_(at, at)] = reach & ~reach.T
    return above


def order_probability(mean: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """(N, N) the probability that the row's item is above the column's: normal, with the draws' covariance."""
    apart = (draws - draws.mean(axis=1, keepdims=True)).astype(np.float32)
    covariance = apart @ apart.T / draws.shape[1]
    variance = np.diag(covariance)
    spread = np.maximum(variance[:, None] + variance - 2 * covariance, 1e-9)
    return np.asarray(ndtr((mean[:, None] - mean) / np.sqrt(spread)))


def moved_order(order: list[int], moves: Sequence[tuple[int, bool, int]]) -> list[int]:
    """The order after each move in turn."""
    order = [*order]
    for item, above, other in moves:
        order.remove(item)
        order.insert(order.index(other) + (not above), item)
    return order


def best_order(
    base: Sequence[int], probability: np.ndarray, threshold: float, above: np.ndarray
) -> np.ndarray:
    """The order that gains most: a pair's probability minus 1/2, plus what a change of the base order has to exceed;
    `above` (N, N) always holds. Items are moved one by one, as long as that gains."""
    count = len(base)
    rank = np.empty(count)
    rank[base] = np.arange(count)
    gain = 2 * probability - 1 + (2 * threshold - 1) * np.sign(rank - rank[:, None])
    gain += count * (above.astype(float) - above.T)
    np.fill_diagonal(gain, 0)
    order = _feasible(base, above)
    for _ in range(MAX_SWEEPS):
        before = order.copy()
        for item in base:
            check()
            place = int(np.flatnonzero(order == item)[0])
            row = gain[item, order]
            up = np.cumsum(row[:place][::-1])[::-1]  # of being put above all items from here on
            down = np.cumsum(-row[place + 1 :])
            gains = np.concatenate([up, [0.0], down])
            to = int(gains.argmax())
            if gains[to] > 1e-9:
                order = np.insert(np.delete(order, place), to, item)
        if (order == before).all():
            break
    return order


def _feasible(base: Sequence[int], above: np.ndarray) -> np.ndarray:
    """The base order, in which items wait for those that must be above them."""
    waits = above.sum(axis=0)
    order, left = [], [*base]
    while left:
        item = next(item for item in left if not waits[item])
        left.remove(item)
        order.append(item)
        waits -= above[item]
    return np.array(order)


def monotone(mean: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The scores nearest to the means (least squares) that fall along the order, by at least a small gap."""
    from scipy.optimize import isotonic_regression  # slow to import, and most rankings have no labels

    if (np.diff(mean[order]) <= 0).all():
        return mean
    steps = GAP * np.arange(len(order))
    fitted = isotonic_regression(mean[order] + steps, increasing=False).x - steps
    scores = np.empty(len(order))
    scores[order] = fitted
    return scores


def right_pairs(probability: np.ndarray, order: np.ndarray) -> float:
    """The mean probability of the pairs of an order."""
    high, low = np.triu_indices(len(order), 1)
    return float(probability[order[high], order[low]].mean())
