"""Supervised counterparts of the losses, trained on gold: upper bounds for the unsupervised ones.

All take logits or scores (..., N), a mask (..., N) and gold ranks (..., N) among the items present: 0 for the
lowest, n − 1 for the highest.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ccrank.probing.counting import pair_count, rows_at_once


def ranks_of(gold: Tensor, mask: Tensor) -> Tensor:
    """The number of present items with a lower gold value. (..., N) -> (..., N)."""
    below = (gold.unsqueeze(-1) > gold.unsqueeze(-2)) & mask.unsqueeze(-2)
    return below.sum(-1).to(gold.dtype)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−[y log σ(z) + (1 − y) log(1 − σ(z))], elementwise and without overflow."""
    return softplus(logits) - target * logits


def sup_ccs_pair_loss(logits: Tensor, mask: Tensor, truth: Tensor) -> Tensor:
    """Mean cross-entropy of answered prompts: "A above B? Yes" is true iff A is above B. (..., 2P) -> (...)."""
    return (cross_entropy(logits, truth) * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def sup_ccs_loss(logits: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    """Mean over pairs of the cross-entropy that the higher item is 1 and the lower item 0. (..., N) -> (...).

    An item of rank r is the higher one r times and the lower one n − 1 − r times, hence the soft target r/(n − 1).
    """
    present = mask.sum(-1)
    target = ranks / (present - 1).clamp(min=1).unsqueeze(-1)
    return (cross_entropy(logits, target) * mask).sum(-1) / present.clamp(min=1)


def sup_margin_loss(scores: Tensor, mask: Tensor, ranks: Tensor, margin: float) -> Tensor:
    """Max-margin: mean over pairs of max(0, m − (s_higher − s_lower)). (..., N) -> (...)."""
    above = (ranks.unsqueeze(-1) > ranks.unsqueeze(-2)) & mask.unsqueeze(-1) & mask.unsqueeze(-2)
    hinges = (margin - (scores.unsqueeze(-1) - scores.unsqueeze(-2))).clamp(min=0)
    return (hinges * above).sum((-1, -2)) / pair_count(mask)


def sup_triplet_loss(scores: Tensor, mask: Tensor, ranks: Tensor, margin: float) -> Tensor:
    """Triplet: mean over anchors C and pairs of max(0, d(C, P) − d(C, N) + m). (..., N) -> (...).

    P is the item nearer to C in gold rank, N the farther one; pairs at the same gold distance from C are omitted.
    """
    itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    others = mask.unsqueeze(-1) & mask.unsqueeze(-2) & ~itself  # (..., C, X)
    distance = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs()
    gold = (
        (ranks.unsqueeze(-1) - ranks.unsqueeze(-2)).abs().masked_fill(~others, math.nan)
    )  # NaN is never nearer
    pull, active, counted = _triplet_counts(distance, gold.expand_as(distance), margin)
    total = (distance * pull).sum((-1, -2)) + margin * active.sum(-1)
    return total / counted.sum(-1).clamp(min=1)


@torch.no_grad()
def _triplet_counts(distance: Tensor, gold: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Counts over triples (C, P, N) with a positive hinge: how often X is P minus how often X is N, (..., C, X); their
    number, (..., C); and the number of triples with known gold, (..., C). As weights they give the exact gradient."""
    count = distance.shape[-1]
    size = rows_at_once(count, distance.device)
    parts = []
    for near, known in zip(
        distance.reshape(-1, count).split(size), gold.reshape(-1, count).split(size), strict=True
    ):
        counted = known.unsqueeze(-1) < known.unsqueeze(-2)  # (rows, P, N)
        active = (counted & (near.unsqueeze(-1) - near.unsqueeze(-2) + margin > 0)).to(distance.dtype)
        parts.append((active.sum(-1) - active.sum(-2), active.sum((-1, -2)), counted.sum((-1, -2))))
    pull, active, counted = (torch.cat(part) for part in zip(*parts, strict=True))
    return (
        pull.reshape(distance.shape),
        active.reshape(distance.shape[:-1]),
        counted.reshape(distance.shape[:-1]),
    )


def sup_ordreg_loss(columns: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    """CORAL: mean cross-entropy of "ranks above k" over items and columns k < K. Logits (..., N, width) -> (...)."""
    present = mask.sum(-1, keepdim=True)
    place = torch.arange(1, columns.shape[-1] + 1, device=columns.device)
    cells = mask.unsqueeze(-1) & (place < present).unsqueeze(-2)
    target = (ranks.unsqueeze(-1) >= place).to(
        columns.dtype
    )  # ranks start at 0: rank r is above the first r columns
    return (cross_entropy(columns, target) * cells).sum((-1, -2)) / cells.sum((-1, -2)).clamp(min=1)
