"""Consistency of answers: both orders, circular triads, position bias, agreement of rankings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ccrank.aggregate.pairwise import checked_margins, net_margins
from ccrank.aggregate.rankings import checked_rankings, votes
from ccrank.errors import CcrankError


@dataclass(frozen=True, slots=True)
class CircularTriads:
    """Triads in which i beats j, j beats k and k beats i, which no ranking can satisfy."""

    observed: float
    """Their number; a tied pair counts as a fair coin, so with ties this is an expectation."""
    expected: float
    """Their expected number for random answers: a quarter of the complete triads."""
    triads: int
    """The number of complete triads: those whose three pairs were all compared."""
    coefficient: float
    """Kendall & Babington Smith's ζ = 1 − observed / maximum: 1 for a ranking. NaN if pairs are missing or N < 3."""


@dataclass(frozen=True, slots=True)
class PositionBias:
    """The advantage of the item presented first; without bias ½ and 0."""

    first_share: float
    """Share of answers in favour of the item presented first; a margin of 0 counts ½."""
    mean_log_odds: float
    """Mean margin of the item presented first. Meaningful only if each pair is compared in both orders, or in a
    random one."""


def agreement_both_orders(margins: ArrayLike) -> float:
    """Share of the pairs compared in both orders whose two answers agree; a margin of 0 counts ½.

    Parameters
    ----------
    margins
        (N, N) log-odds, NaN if not compared.

    Returns
    -------
    float
        NaN if no pair was compared in both orders.
    """
    answers = checked_margins(margins)
    upper = np.triu_indices(len(answers), k=1)
    product = np.sign(answers[upper]) * np.sign(answers.T[upper])
    product = product[~np.isnan(product)]
    return float((1 - product).mean() / 2) if len(product) else float("nan")


def circular_triads(margins: ArrayLike) -> CircularTriads:
    """Circular triads in the tournament of the net margins (the mean of both orders).

    With A[i, j] = 1, ½, 0 as i beats, ties, loses to j, the number is tr(A³) / 3: each cycle is counted once for each
    of its three items. If all pairs were compared and none tied, it equals C(N, 3) − Σ_i w_i (w_i − 1) / 2 with w_i the
    wins of i (Kendall & Babington Smith 1940).

    Parameters
    ----------
    margins
        (N, N) log-odds, NaN if not compared.
    """
    net = net_margins(margins)
    n_items = len(net)
    asked = (~np.isnan(net)).astype(float)
    beats = np.nan_to_num((1 + np.sign(net)) / 2)
    triads = round(float(np.sum((asked @ asked) * asked.T)) / 6)
    observed = float(np.sum((beats @ beats) * beats.T)) / 3
    complete = asked.sum() == n_items * (n_items - 1)
    coefficient = float("nan")
    if complete and n_items >= 3:
        coefficient = 1 - observed / most_circular_triads(n_items)
    return CircularTriads(observed, triads / 4, triads, coefficient)


def most_circular_triads(n_items: int) -> float:
    """The largest number of circular triads of N items: (N³ − N) / 24 for odd N, (N³ − 4N) / 24 for even N.

    Parameters
    ----------
    n_items
        N.
    """
    return (n_items**3 - (1 if n_items % 2 else 4) * n_items) / 24


def position_bias(margins: ArrayLike) -> PositionBias:
    """The bias towards the item presented first, over all comparisons.

    Parameters
    ----------
    margins
        (N, N) log-odds, NaN if not compared.
    """
    answers = checked_margins(margins)
    asked = answers[~np.isnan(answers)]
    if len(asked) == 0:
        raise CcrankError("no pair was compared: all margins are NaN")
    return PositionBias(float((1 + np.sign(asked)).mean() / 2), float(asked.mean()))


def kendall_w(rankings: ArrayLike) -> float:
    """Kendall's coefficient of concordance of R orders of N items: 12 S / (R² (N³ − N)), from 1/R by chance to 1.

    S = Σ_i (rank sum of i − mean rank sum)².

    Parameters
    ----------
    rankings
        (R, N), each row an order of item indices, highest first.
    """
    orders = checked_rankings(rankings)
    n_rankings, n_items = orders.shape
    if n_items < 2:
        raise CcrankError("agreement of rankings needs at least 2 items, got 1")
    sums = np.argsort(orders, axis=1).sum(axis=0)
    spread = float(((sums - sums.mean()) ** 2).sum())
    return float(12 * spread / (n_rankings**2 * (n_items**3 - n_items)))


def mean_pairwise_tau(rankings: ArrayLike) -> float:
    """Mean Kendall's τ over all pairs of R ≥ 2 orders: 0 by chance, 1 if all are equal.

    With V[i, j] the number of orders that place i above j minus those that do not, it is
    (Σ_{i<j} V[i, j]² − R P) / (R (R − 1) P), P = N(N − 1)/2.

    Parameters
    ----------
    rankings
        (R, N), each row an order of item indices, highest first.
    """
    orders = checked_rankings(rankings)
    n_rankings, n_items = orders.shape
    if n_rankings < 2 or n_items < 2:
        raise CcrankError(f"agreement needs at least 2 rankings of 2 items, got {n_rankings} of {n_items}")
    above = votes(orders)
    pairs = n_items * (n_items - 1) // 2
    squares = float(((above - above.T) ** 2).sum()) / 2
    return float((squares - n_rankings * pairs) / (n_rankings * (n_rankings - 1) * pairs))
