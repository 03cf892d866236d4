"""Probes on hidden states: the paper's Contrast-Consistent Ranking, supervised counterparts and baselines."""

from ccrank.probing.batch import ordered_pairs
from ccrank.probing.crossval import (
    cross_validate,
    held_out_scores,
    leave_one_item_out,
    task_folds,
    train_sets,
)
from ccrank.probing.fits import Fits, fit_each, fit_pool, points_of_pairs
from ccrank.probing.objectives import OBJECTIVES, Objective, Settings
from ccrank.probing.probe import Probe

__all__ = [
    "OBJECTIVES",
    "Fits",
    "Objective",
    "Probe",
    "Settings",
    "cross_validate",
    "fit_each",
    "fit_pool",
    "held_out_scores",
    "leave_one_item_out",
    "ordered_pairs",
    "points_of_pairs",
    "task_folds",
    "train_sets",
]
