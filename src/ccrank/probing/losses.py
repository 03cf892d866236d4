"""The paper's unsupervised losses, one short function each.

Every loss takes scores (..., N) and a mask (..., N) of the items present and returns one number per leading index, so
that tasks of different N, seeds and layers train together. Pair and triple losses are means over pairs or triples, so a
task's weight does not depend on its size; Adam is almost invariant to a constant factor anyway.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ccrank.probing.counting import neighbours, pair_count, sum_pair_hinges, sum_pair_minima

Consistency = Literal["squared", "as-printed"]


def ccs_pair_loss(plus: Tensor, minus: Tensor, mask: Tensor) -> Tensor:
    """origCCS on prompts answered "Yes" and "No": mean over prompts of consistency + confidence. (..., P) -> (...).

    (f(x⁺) − (1 − f(x⁻)))² + min(f(x⁺), f(x⁻))²
    """
    each = (plus + minus - 1).square() + torch.minimum(plus, minus).square()
    return (each * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def ccs_loss(scores: Tensor, mask: Tensor) -> Tensor:
    """origCCS with any two items as x⁺ and x⁻: mean over pairs {A, B} of consistency + confidence. (..., N) -> (...).

    (s_A − (1 − s_B))² + min(s_A, s_B)²

    With u = s − ½ the consistency terms sum to (n − 2) Σu² + (Σu)²; the confidence terms to Σ s² × items above s.
    """
    present = mask.sum(-1)
    centred = (scores - 0.5) * mask
    consistency = (present - 2) * centred.square().sum(-1) + centred.sum(-1).square()
    confidence = sum_pair_minima(scores.square(), neighbours(scores, mask))
    return (consistency * (present > 1) + confidence) / pair_count(mask)


def margin_loss(scores: Tensor, mask: Tensor, margin: float) -> Tensor:
    """MarginCCR: mean over pairs {A, B} of the smaller of the two hinges. (..., N) -> (...).

    min(max(0, s_A − s_B + m), max(0, s_B − s_A + m)) = max(0, m − |s_A − s_B|)
    """
    return sum_pair_hinges(scores, neighbours(scores, mask, margin), margin) / pair_count(mask)


def triplet_loss(scores: Tensor, mask: Tensor, margin: float) -> Tensor:
    """TripletCCR: mean over anchors C and pairs {A, B} of other items. (..., N) -> (...).

    min(max(0, d_CA − d_CB + m), max(0, d_CB − d_CA + m)) + max(0, m − min(d_CA, d_CB)),   d_XY = |s_X − s_Y|

    The first term is max(0, m − |d_CA − d_CB|). The second is our reading of the paper's "additional positive margin
    term", for which it gives no formula: the anchor and its nearer item are at least m apart.
    """
    distance = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs()  # (..., anchor, other)
    itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    others = mask.unsqueeze(-1) & mask.unsqueeze(-2) & ~itself
    counts = neighbours(distance, others, margin)
    contrast = sum_pair_hinges(distance, counts, margin)
    apart = sum_pair_minima((margin - distance).clamp(min=0), counts)
    present = mask.sum(-1)
    return (contrast + apart).sum(-1) / (pair_count(mask) * (present - 2)).clamp(min=1)


def ordreg_loss(columns: Tensor, mask: Tensor, consistency: Consistency = "squared") -> Tensor:
    """OrdRegCCR on the scores s^k_n of N items in K − 1 columns. columns (..., N, width), mask (..., N) -> (...).

    [ Σ_k (target_k − Σ_n s^k_n)²  +  Σ_n Σ_k min(s^k_n, 1 − s^k_n) ] / N(K − 1),    k = 1 … K − 1,  K = N

    Column k means "ranks above k", which is true of K − k items: its target. "as-printed" omits the square and uses the
    printed target K − (k − 1): as a constant it changes no gradient, and all scores = 1 is then the minimum. Columns
    from N on belong to larger tasks in the batch and are ignored.
    """
    present = mask.sum(-1, keepdim=True)  # (..., 1)
    place = torch.arange(1, columns.shape[-1] + 1, device=columns.device)
    counted = place < present  # (..., width)
    cells = mask.unsqueeze(-1) & counted.unsqueeze(-2)
    height = (columns * mask.unsqueeze(-1)).sum(-2)
    short = present - place - height  # target minus column sum
    column_terms = short.square() if consistency == "squared" else short + 1
    confidence = (0.5 - (columns - 0.5).abs()) * cells
    cell_count = (present * (present - 1)).squeeze(-1).clamp(min=1)
    return ((column_terms * counted).sum(-1) + confidence.sum((-1, -2))) / cell_count
