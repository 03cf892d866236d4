"""The paper's losses and their supervised counterparts, one short function each.

Every loss takes scores or logits (..., N) and a mask (..., N) of the items present and returns one number per leading
index: the mean over pairs or triples, so that a task's weight does not depend on its size. Supervised losses also take
gold ranks (..., N) among the items present: 0 for the lowest, n − 1 for the highest.

Hinges over pairs are piecewise linear, so their sum over all pairs is a sum over single values with integer weights,
which are counted. The weights carry no gradient; expressions built from them have the exact gradient of a double loop.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

DENSE_LIMIT = 64  # up to this N comparing all pairs is faster than sorting
BLOCK = 2**18  # numbers compared at once: fits in a core's cache and bounds memory for any batch
MAX_LOG_STEP = 3.0
"""Steps between neighbouring biases stay within e^±3, so they are distinct in float32 up to K ~ 10⁴."""
Consistency = Literal["squared", "as-printed"]


class Neighbours(NamedTuple):
    """For each value (..., N), counts of the other values present; 0 where masked."""

    larger: Tensor
    """The number of larger values; a tie counts ½."""
    pull: Tensor
    """Among those closer than the margin, the number of larger minus smaller ones."""
    close: Tensor
    """The number of values closer than the margin."""


@torch.no_grad()
def neighbours(values: Tensor, mask: Tensor, margin: float = 0.0) -> Neighbours:
    """The counts of each value, from S(c)_i = Σ_j sign(v_j − v_i + c) at c = 0, m and −m. (..., N) -> 3 × (..., N)"""
    level, *shifted = _sign_sums(values, mask, (0.0, margin, -margin) if margin else (0.0,))
    up, down = shifted or (level, level)
    larger = 0.5 * (level + (mask.sum(-1, keepdim=True) - 1))
    pull = level - 0.5 * (up + down)
    close = 0.5 * (up - down) - 1  # −1: itself
    return Neighbours(*(count.masked_fill(~mask, 0.0) for count in (larger, pull, close)))


def _sign_sums(values: Tensor, mask: Tensor, shifts: tuple[float, ...]) -> list[Tensor]:
    """Σ over j present of sign(v_j − v_i + shift), one tensor (..., N) per shift; undefined where i is masked."""
    count = values.shape[-1]
    spread = values.masked_fill(~mask, math.inf).contiguous()  # masked values count +1
    if count <= DENSE_LIMIT:
        across = spread.reshape(-1, count).T.contiguous()  # (N, rows): long inner loops even for small N
        blocks = []
        for rows in across.split(_rows_at_once(count, values.device), dim=1):
            difference = rows.unsqueeze(1) - rows.unsqueeze(0)  # [j, i]
            blocks.append([(difference + shift if shift else difference).sign().sum(0) for shift in shifts])
        sums = [torch.cat(parts, dim=1).T.reshape(values.shape) for parts in zip(*blocks, strict=True)]
    else:
        ordered = spread.sort(-1).values
        wanted = [spread - shift for shift in shifts]
        sums = [
            (count - torch.searchsorted(ordered, row, right=True) - torch.searchsorted(ordered, row)).to(row)
            for row in wanted
        ]
    masked = count - mask.sum(-1, keepdim=True)
    return [total - masked for total in sums]


def _rows_at_once(count: int, device: torch.device) -> int:
    """The number of rows of `count` values that are compared pairwise at once; a GPU takes many more."""
    return max(1, BLOCK * (1 if device.type == "cpu" else 256) // count**2)


def pair_count(mask: Tensor) -> Tensor:
    """n(n − 1)/2 of the items present, at least 1, for use as a divisor. mask (..., N) -> (...)."""
    present = mask.sum(-1)
    return (present * (present - 1) / 2).clamp(min=1)


def sum_pair_hinges(values: Tensor, counts: Neighbours, margin: float) -> Tensor:
    """Σ_{i<j} max(0, m − |v_i − v_j|) over the values present, given their counts: each pair closer than m adds
    m − (larger − smaller). (..., N) -> (...)"""
    return (values * counts.pull).sum(-1) + 0.5 * margin * counts.close.sum(-1)


def sum_pair_minima(transformed: Tensor, counts: Neighbours) -> Tensor:
    """Σ_{i<j} h(min(v_i, v_j)) given h(v) and the counts of v. (..., N) -> (...)."""
    return (transformed * counts.larger).sum(-1)


def bias_terms(alpha: Tensor, beta: Tensor, count: Tensor, width: int) -> Tensor:
    """Strictly decreasing, centred biases b_1 > … > b_{K−1} for K = count ranks. Shapes (...) -> (..., width).

    δ_k  = (k − ½)/(K − 1)                    midpoints of K − 1 equal pieces of [0, 1]: never 0 or 1
    δ'_k = δ_k^(α−1) (1 − δ_k)^(β−1)          clipped to e^±3, so that every step is positive for any α, β
    δ''_k = Σ_{j≥k} δ'_j,    b_k = δ''_k − mean δ''

    α = β = 1 gives steps of 1. Entries from K on (of larger tasks in the batch) are 0.
    """
    pieces = (count - 1).unsqueeze(-1)
    column = torch.arange(1, width + 1, dtype=alpha.dtype, device=alpha.device)
    counted = column <= pieces
    cut = torch.where(counted, (column - 0.5) / pieces.clamp(min=1), 0.5)
    exponent = (alpha.unsqueeze(-1) - 1) * cut.log() + (beta.unsqueeze(-1) - 1) * (1 - cut).log()
    step = exponent.clamp(-MAX_LOG_STEP, MAX_LOG_STEP).exp() * counted
    upper = step.flip(-1).cumsum(-1).flip(-1)
    mean = (upper * counted).sum(-1, keepdim=True) / pieces.clamp(min=1)
    return (upper - mean) * counted


def column_logits(logits: Tensor, alpha: Tensor, beta: Tensor, mask: Tensor) -> Tensor:
    """θᵀx_n + b_k: logits (..., N), α and β (...), mask (..., N) -> (..., N, max(N − 1, 1))."""
    biases = bias_terms(alpha, beta, mask.sum(-1), max(logits.shape[-1] - 1, 1))
    return logits.unsqueeze(-1) + biases.unsqueeze(-2)


def ccs_pair_loss(scores: Tensor, mask: Tensor) -> Tensor:
    """origCCS on prompts answered "Yes" and "No": mean over prompts of consistency + confidence. (..., 2P) -> (...).

    (f(x⁺) − (1 − f(x⁻)))² + min(f(x⁺), f(x⁻))²
    """
    plus, minus, mask = scores[..., ::2], scores[..., 1::2], mask[..., ::2]
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
    distance, others = _distances(scores, mask)
    counts = neighbours(distance, others, margin)
    contrast = sum_pair_hinges(distance, counts, margin)
    apart = sum_pair_minima((margin - distance).clamp(min=0), counts)
    present = mask.sum(-1)
    return (contrast + apart).sum(-1) / (pair_count(mask) * (present - 2)).clamp(min=1)


def _distances(scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """|s_C − s_X|, and which X are other items than the anchor C. (..., N) -> two tensors (..., C, X)."""
    itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    others = mask.unsqueeze(-1) & mask.unsqueeze(-2) & ~itself
    return (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs(), others


def ordreg_loss(columns: Tensor, mask: Tensor, consistency: Consistency = "squared") -> Tensor:
    """OrdRegCCR on the scores s^k_n of N items in K − 1 columns. columns (..., N, width), mask (..., N) -> (...).

    [ Σ_k (target_k − Σ_n s^k_n)²  +  Σ_n Σ_k min(s^k_n, 1 − s^k_n) ] / N(K − 1),    k = 1 … K − 1,  K = N

    Column k means "ranks above k", which is true of K − k items: its target. "as-printed" omits the square and uses the
    printed target K − (k − 1): as a constant it changes no gradient, and all scores = 1 is then the minimum. Columns
    from N on belong to larger tasks in the batch and are ignored.
    """
    present = mask.sum(-1, keepdim=True)  # (..., 1)
    column = torch.arange(1, columns.shape[-1] + 1, device=columns.device)
    counted = column < present  # (..., width)
    cells = mask.unsqueeze(-1) & counted.unsqueeze(-2)
    height = (columns * mask.unsqueeze(-1)).sum(-2)
    short = present - column - height  # target minus column sum
    column_terms = short.square() if consistency == "squared" else short + 1
    confidence = (0.5 - (columns - 0.5).abs()) * cells
    cell_count = (present * (present - 1)).squeeze(-1).clamp(min=1)
    return ((column_terms * counted).sum(-1) + confidence.sum((-1, -2))) / cell_count


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
    distance, others = _distances(scores, mask)
    gold = (ranks.unsqueeze(-1) - ranks.unsqueeze(-2)).abs()
    gold = gold.masked_fill(~others, math.nan)  # NaN is never nearer
    pull, active, counted = _triplet_counts(distance, gold.expand_as(distance), margin)
    total = (distance * pull).sum((-1, -2)) + margin * active.sum(-1)
    return total / counted.sum(-1).clamp(min=1)


@torch.no_grad()
def _triplet_counts(distance: Tensor, gold: Tensor, margin: float) -> list[Tensor]:
    """Counts over triples (C, P, N) with a positive hinge: how often X is P minus how often X is N, (..., C, X); their
    number, (..., C); and the number of triples with known gold, (..., C). As weights they give the exact gradient."""
    count = distance.shape[-1]
    size = _rows_at_once(count, distance.device)
    parts = []
    for near, known in zip(
        distance.reshape(-1, count).split(size), gold.reshape(-1, count).split(size), strict=True
    ):
        counted = known.unsqueeze(-1) < known.unsqueeze(-2)  # (rows, P, N)
        active = (counted & (near.unsqueeze(-1) - near.unsqueeze(-2) + margin > 0)).to(distance.dtype)
        parts.append((active.sum(-1) - active.sum(-2), active.sum((-1, -2)), counted.sum((-1, -2))))
    return [torch.cat(part).unflatten(0, distance.shape[:-1]) for part in zip(*parts, strict=True)]


def sup_ordreg_loss(columns: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    """CORAL: mean cross-entropy of "ranks above k" over items and columns k < K. Logits (..., N, width) -> (...)."""
    present = mask.sum(-1, keepdim=True)
    column = torch.arange(1, columns.shape[-1] + 1, device=columns.device)
    cells = mask.unsqueeze(-1) & (column < present).unsqueeze(-2)
    # Ranks start at 0: rank r is above the first r columns.
    target = (ranks.unsqueeze(-1) >= column).to(columns.dtype)
    return (cross_entropy(columns, target) * cells).sum((-1, -2)) / cells.sum((-1, -2)).clamp(min=1)


# The derivatives of the losses of two or three items, by which a sub-batch of them is trained:
# (scores (..., k), margin) -> the derivative of their mean loss by the scores (..., k).


def ccs_slopes(scores: Tensor, margin: float) -> Tensor:
    """Of (s_A + s_B − 1)² + min(s_A, s_B)²."""
    first, second = scores[..., 0], scores[..., 1]
    consistency = 2 * (first + second - 1)
    lower = first - second  # below 0: the first is the smaller one
    confidence = (2 * torch.minimum(first, second)).unsqueeze(-1)
    share = torch.stack([0.5 - 0.5 * lower.sign(), 0.5 + 0.5 * lower.sign()], dim=-1)
    return consistency.unsqueeze(-1) + confidence * share


def ccs_pair_slopes(scores: Tensor, margin: float) -> Tensor:
    """Of the mean over the prompts (A, B) and (B, A) of (f(x⁺) + f(x⁻) − 1)² + min(f(x⁺), f(x⁻))²; four rows."""
    return 0.5 * ccs_slopes(scores.unflatten(-1, (2, 2)), margin).flatten(-2)


def margin_slopes(scores: Tensor, margin: float) -> Tensor:
    """Of max(0, m − |s_A − s_B|)."""
    difference = scores[..., 0] - scores[..., 1]
    slope = difference.sign() * (difference.abs() < margin)
    return torch.stack([-slope, slope], dim=-1)


def triplet_slopes(scores: Tensor, margin: float) -> Tensor:
    """Of the mean over the three anchors of max(0, m − |d − d'|) + max(0, m − min(d, d')), d and d' the distances from
    the anchor to the other two."""
    difference = scores - scores.roll(-1, -1)
    distance = (
        difference.abs()
    )  # entry i is |s_i − s_{i+1}| (cyclically): two neighbouring entries share an anchor
    gap = distance - distance.roll(-1, -1)
    pull = gap.sign() * (gap.abs() < margin)  # how much the contrast terms increase entry i over i + 1
    near = torch.minimum(distance, distance.roll(-1, -1)) < margin
    first, second = near * (0.5 - 0.5 * gap.sign()), near * (0.5 + 0.5 * gap.sign())
    by_distance = -pull + pull.roll(1, -1) - first - second.roll(1, -1)
    by_score = by_distance * difference.sign()
    return (by_score - by_score.roll(1, -1)) / 3
