"""Sums over all pairs of values by counting; the pair and triple losses are built from these.

Hinges over pairs are piecewise linear, so their sum over all pairs is a sum over single values with integer
weights. The weights carry no gradient; expressions built from them have the exact gradient of the double loop.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

DENSE_LIMIT = 64  # up to this N comparing all pairs is faster than sorting
BLOCK = 2**18  # numbers compared at once: fits in a core's cache and bounds memory for any batch


class Neighbours(NamedTuple):
    """For each value (..., N), counts of the other values present; 0 where masked."""

    larger: Tensor
    """The number of larger values; a tie counts ½."""
    pull: Tensor
    """Among those closer than the margin, the number of larger minus smaller ones."""
    close: Tensor
    """The number of values closer than the margin."""


def rows_at_once(count: int, device: torch.device) -> int:
    """The number of rows of `count` values that are compared pairwise at once; a GPU takes many more."""
    return max(1, BLOCK * (1 if device.type == "cpu" else 256) // count**2)


def pair_count(mask: Tensor) -> Tensor:
    """n(n − 1)/2 of the items present, at least 1, for use as a divisor. mask (..., N) -> (...)."""
    present = mask.sum(-1)
    return (present * (present - 1) / 2).clamp(min=1)


@torch.no_grad()
def neighbours(values: Tensor, mask: Tensor, margin: float = 0.0) -> Neighbours:
    """The counts of each value: (..., N) -> three tensors (..., N).

    All three come from S(c)_i = Σ_j sign(v_j − v_i + c), at c = 0, m and −m.
    """
    level, up, down = _sign_sums(values, mask, (0.0, margin, -margin) if margin else (0.0, 0.0, 0.0))
    larger = 0.5 * (level + (mask.sum(-1, keepdim=True) - 1))
    pull = level - 0.5 * (up + down)
    close = 0.5 * (up - down) - 1  # −1: itself
    return Neighbours(*(count.masked_fill(~mask, 0.0) for count in (larger, pull, close)))


def sum_pair_hinges(values: Tensor, counts: Neighbours, margin: float) -> Tensor:
    """Σ_{i<j} max(0, m − |v_i − v_j|) over the values present, given their counts. (..., N) -> (...).

    Each pair closer than m adds m − (larger − smaller): value i has weight +1 for each larger one within m, −1 for each
    smaller one.
    """
    return (values * counts.pull).sum(-1) + 0.5 * margin * counts.close.sum(-1)


def sum_pair_minima(transformed: Tensor, counts: Neighbours) -> Tensor:
    """Σ_{i<j} h(min(v_i, v_j)) given h(v) and the counts of v. (..., N) -> (...)."""
    return (transformed * counts.larger).sum(-1)


def _sign_sums(values: Tensor, mask: Tensor, shifts: tuple[float, ...]) -> list[Tensor]:
    """Σ over j present of sign(v_j − v_i + shift), one tensor (..., N) per shift; undefined where i is masked."""
    count = values.shape[-1]
    masked = count - mask.sum(-1, keepdim=True)  # masked values are infinite and count +1 below
    spread = values.masked_fill(~mask, math.inf)
    known: dict[float, Tensor] = {}
    if count <= DENSE_LIMIT:
        across = spread.reshape(-1, count).T.contiguous()  # (N, rows): long inner loops even for small N
        parts: dict[float, list[Tensor]] = {shift: [] for shift in shifts}
        for rows in across.split(rows_at_once(count, values.device), dim=1):
            difference = rows.unsqueeze(1) - rows.unsqueeze(0)  # [j, i]
            for shift, sums in parts.items():
                sums.append((difference + shift if shift else difference).sign().sum(0))
        for shift, sums in parts.items():
            known[shift] = torch.cat(sums, dim=1).T.reshape(values.shape) - masked
    else:
        spread = spread.contiguous()
        ordered = spread.sort(-1).values
        for shift in set(shifts):
            wanted = spread - shift
            below = torch.searchsorted(ordered, wanted)
            up_to = torch.searchsorted(ordered, wanted, right=True)
            known[shift] = (count - up_to - below).to(values.dtype) - masked
    return [known[shift] for shift in shifts]
