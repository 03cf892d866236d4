"""Which states to probe, chosen without labels: those whose probes agree best with label-free anchors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ccrank.errors import CcrankError
from ccrank.labelfree.combine import read_signals
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.reader import Progress
from ccrank.lm.reading import shares_by_items
from ccrank.metrics import tau_b
from ccrank.prompts import Templates
from ccrank.task import Task

if TYPE_CHECKING:
    from ccrank.probe_pipeline.fitting import LayerFit

TEMPLATES = ("poles", "single")
"""The templates that `template=auto` chooses from. Of equally good ones the last is taken: the paper's."""


def read_anchors(
    tasks: Sequence[Task], reader: ReaderLike, templates: Templates, progress: Progress | None = None
) -> tuple[list[np.ndarray], list[Cost]]:
    """Each task's label-free scores (N,), the mean of `auto`'s signals, and its share of what they cost to read."""
    read = read_signals(tasks, reader, templates, progress)
    anchors = [signals.total() for signals in read.signals]
    for task, anchor in zip(tasks, anchors, strict=True):
        if not np.isfinite(anchor).all():
            raise CcrankError(
                f"task {task.id!r}: the label-free anchors are not all finite numbers; try --dtype float32"
            )
    return anchors, shares_by_items(read.cost, tasks)


def agreement(scores: Sequence[np.ndarray], anchors: Sequence[np.ndarray]) -> float:
    """Mean |τ-b| between probes and anchors, over tasks and rows; NaN if any score is. Per task: (R, N), (N,)"""
    if any(np.isnan(own).any() for own in scores):
        return float("nan")
    return float(
        np.mean([abs(tau_b(row, anchor)) for own, anchor in zip(scores, anchors, strict=True) for row in own])
    )


def closest_to_anchors(candidates: Sequence[Sequence[np.ndarray]], anchors: Sequence[np.ndarray]) -> int:
    """The index of the candidate with the largest `agreement`, of equals the last. No label is used.

    Parameters
    ----------
    candidates
        Each candidate's scores: per task (R, N), a row for each seed.
    anchors
        Per task (N,).
    """
    found = [agreement(scores, anchors) if anchors else 0.0 for scores in candidates]
    # A fit that failed agrees with nothing.
    ranked = np.nan_to_num(found, nan=-1.0)
    return int(np.flatnonzero(ranked == ranked.max())[-1])


def closest_layer(layers: Sequence[LayerFit], anchors: Mapping[int, np.ndarray]) -> LayerFit:
    """The layer whose probes agree best with the anchors; its time is that of the fits of all layers."""
    own = [anchors[fit.index] for fit in layers[0].tasks]
    chosen = layers[closest_to_anchors([[fit.scores for fit in one.tasks] for one in layers], own)]
    seconds = np.sum([[fit.seconds for fit in one.tasks] for one in layers], axis=0)
    tasks = (replace(fit, seconds=float(spent)) for fit, spent in zip(chosen.tasks, seconds, strict=True))
    return replace(chosen, tasks=tuple(tasks))
