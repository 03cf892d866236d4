"""The bias terms of ordinal regression, K − 1 of them from two parameters."""

from __future__ import annotations

import torch
from torch import Tensor

LOG_STEP_LIMIT = (
    3.0  # steps between neighbouring biases stay within e^±3, so they are distinct in float32 up to K ~ 10⁴
)


def bias_terms(alpha: Tensor, beta: Tensor, count: Tensor, width: int) -> Tensor:
    """Strictly decreasing, centred biases b_1 > … > b_{K−1} for K = count ranks. Shapes (...) -> (..., width).

    δ_k  = (k − ½)/(K − 1)                    midpoints of K − 1 equal pieces of [0, 1]: never 0 or 1
    δ'_k = δ_k^(α−1) (1 − δ_k)^(β−1)          clipped to e^±3, so that every step is positive for any α, β
    δ''_k = Σ_{j≥k} δ'_j,    b_k = δ''_k − mean δ''

    α = β = 1 gives steps of 1. Entries from K on (of larger tasks in the batch) are 0.
    """
    pieces = (count - 1).unsqueeze(-1)
    place = torch.arange(1, width + 1, dtype=alpha.dtype, device=alpha.device)
    counted = place <= pieces
    cut = torch.where(counted, (place - 0.5) / pieces.clamp(min=1), 0.5)
    exponent = (alpha.unsqueeze(-1) - 1) * cut.log() + (beta.unsqueeze(-1) - 1) * (1 - cut).log()
    step = exponent.clamp(-LOG_STEP_LIMIT, LOG_STEP_LIMIT).exp() * counted
    upper = step.flip(-1).cumsum(-1).flip(-1)
    mean = (upper * counted).sum(-1, keepdim=True) / pieces.clamp(min=1)
    return (upper - mean) * counted


def column_logits(logits: Tensor, alpha: Tensor, beta: Tensor, mask: Tensor) -> Tensor:
    """θᵀx_n + b_k: logits (..., N), α and β (...), mask (..., N) -> (..., N, max(N − 1, 1))."""
    biases = bias_terms(alpha, beta, mask.sum(-1), max(logits.shape[-1] - 1, 1))
    return logits.unsqueeze(-1) + biases.unsqueeze(-2)


def predicted_ranks(columns: Tensor, mask: Tensor) -> Tensor:
    """k̂ = 1 + Σ_{k<K} 1[s^k > 0.5], from 1 to K. columns (..., N, width), mask (..., N) -> (..., N)."""
    place = torch.arange(1, columns.shape[-1] + 1, device=columns.device)
    counted = place < mask.sum(-1, keepdim=True)
    return 1 + ((columns > 0.5) & counted.unsqueeze(-2)).sum(-1)
