"""Aggregation of pairwise margins or several rankings into scores or one order.

Margins are an (N, N) matrix: entry [i, j] is the log-odds that i is higher than j when presented in the order (i, j),
NaN if not compared; the diagonal is ignored. An order lists item indices, highest first. Scores are aligned with the
items: more = higher.
"""

from ccrank.aggregate.consistency import (
    CircularTriads,
    PositionBias,
    agreement_both_orders,
    circular_triads,
    kendall_w,
    mean_pairwise_tau,
    most_circular_triads,
    position_bias,
)
from ccrank.aggregate.pairwise import (
    BradleyTerry,
    bradley_terry,
    bradley_terry_pairs,
    log_odds,
    margins_of_pairs,
    mean_margins,
    win_counts,
)
from ccrank.aggregate.rankings import (
    KemenyOrder,
    kemeny,
    kemeny_rankings,
    mean_rank,
    order_to_scores,
    scores_to_order,
)

__all__ = [
    "BradleyTerry",
    "CircularTriads",
    "KemenyOrder",
    "PositionBias",
    "agreement_both_orders",
    "bradley_terry",
    "bradley_terry_pairs",
    "circular_triads",
    "kemeny",
    "kemeny_rankings",
    "kendall_w",
    "log_odds",
    "margins_of_pairs",
    "mean_margins",
    "mean_pairwise_tau",
    "mean_rank",
    "most_circular_triads",
    "order_to_scores",
    "position_bias",
    "scores_to_order",
    "win_counts",
]
