"""Evaluation metrics with their chance levels: pure functions on scores and gold values.

Scores and gold are aligned with the items and mean the same: more = higher.
"""

from ccrank.metrics.chance import (
    Floor,
    chance_abs_tau,
    chance_floor,
    chance_free_accuracy,
    chance_pair_accuracy,
    chance_tau_sd,
    p_value_abs_tau,
    p_value_tau,
)
from ccrank.metrics.multiple import detectable_difference, holm
from ccrank.metrics.order import (
    TaskMetrics,
    abs_tau,
    evaluate,
    free_accuracy,
    kendall_tau,
    pair_accuracy,
    pairwise_accuracy,
    tau_b,
)
from ccrank.metrics.tasks import (
    CommonDirection,
    Estimate,
    PairedTest,
    common_direction,
    mean_with_interval,
    paired_test,
)

__all__ = [
    "CommonDirection",
    "Estimate",
    "Floor",
    "PairedTest",
    "TaskMetrics",
    "abs_tau",
    "chance_abs_tau",
    "chance_floor",
    "chance_free_accuracy",
    "chance_pair_accuracy",
    "chance_tau_sd",
    "common_direction",
    "detectable_difference",
    "evaluate",
    "free_accuracy",
    "holm",
    "kendall_tau",
    "mean_with_interval",
    "p_value_abs_tau",
    "p_value_tau",
    "pair_accuracy",
    "paired_test",
    "pairwise_accuracy",
    "tau_b",
]
