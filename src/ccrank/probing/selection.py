"""Which states to probe, chosen without labels: those whose probe agrees best with label-free anchors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccrank.errors import CcrankError
from ccrank.labelfree.combine import read_parts
from ccrank.lm import Cost, Reader
from ccrank.lm.reader import Progress
from ccrank.prompting.asking import shares_by_items
from ccrank.prompts import Templates
from ccrank.task import Task

TEMPLATES = ("poles", "single")
"""The templates of which `template=auto` takes one. Of equals the last is taken: the paper's."""


def read_anchors(
    tasks: Sequence[Task], reader: Reader, templates: Templates, progress: Progress | None = None
) -> tuple[list[np.ndarray], list[Cost]]:
    """Each task's label-free scores (N,), the mean of `auto`'s routes, and its share of what they cost to read."""
    read = read_parts(tasks, reader, templates, progress)
    anchors = [part.total() for part in read.parts]
    for task, anchor in zip(tasks, anchors, strict=True):
        if not np.isfinite(anchor).all():
            raise CcrankError(
                f"task {task.id!r}: the label-free anchors are not all finite numbers; try --dtype float32"
            )
    return anchors, shares_by_items(read.cost, tasks)


def agreement(scores: Sequence[np.ndarray], anchors: Sequence[np.ndarray]) -> float:
    """Mean |τ-b| between probes and anchors, over tasks and rows; NaN where a score is. Per task: (R, N), (N,)"""
    return float(
        np.mean([_abs_tau(row, anchor) for own, anchor in zip(scores, anchors, strict=True) for row in own])
    )


def closest_to_anchors(candidates: Sequence[Sequence[np.ndarray]], anchors: Sequence[np.ndarray]) -> int:
    """The place of the candidate with the largest `agreement`, of equals the last. No label is used.

    candidates: each one's scores, per task (R, N), a row for each seed; anchors: per task (N,).
    """
    found = [agreement(scores, anchors) if anchors else 0.0 for scores in candidates]
    # A fit that broke down agrees with nothing.
    ranked = np.nan_to_num(found, nan=-1.0)
    return int(np.flatnonzero(ranked == ranked.max())[-1])


def _abs_tau(first: np.ndarray, second: np.ndarray) -> float:
    """|τ-b| = |Σ s_ij t_ij| / √(Σ s_ij² Σ t_ij²) over the signs of all pairs; 0 if one side ties in all. (N,), (N,)"""
    signs, others = (np.sign(np.subtract.outer(one, one)) for one in (first, second))
    norm = np.sqrt((signs**2).sum() * (others**2).sum())
    return float(abs((signs * others).sum()) / norm) if norm != 0 else 0.0
