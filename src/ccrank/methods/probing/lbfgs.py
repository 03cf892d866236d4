"""L-BFGS for many independent problems at once.

torch.optim.LBFGS treats its parameters as one vector: stacked problems would share a step length and a history.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ccrank.util.cancellation import check

Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]


def minimise_lbfgs(
    evaluate: Evaluate, start: Tensor, steps: int, history: int = 10, tolerance: float = 1e-7
) -> Tensor:
    """Minimise with at most `steps` steps; each problem has its own history and step length.

    evaluate: parameters (..., D) -> (loss (...), gradient (..., D)). The step is halved until the loss has fallen by
    1e-4 of the decrease predicted by the slope (Armijo); a problem that finds no such step, or whose gradient is below
    the tolerance, does not move.
    """
    here = start.clone()
    loss, gradient = evaluate(here)
    past: list[tuple[Tensor, Tensor, Tensor]] = []  # (move, change of gradient, 1 / their product)
    for _ in range(steps):
        direction = -_two_loops(gradient, past)
        slope = (direction * gradient).sum(-1)
        uphill = (slope >= 0).unsqueeze(-1)
        direction = torch.where(uphill, -gradient, direction)
        slope = (direction * gradient).sum(-1)
        # Without curvature information, a step has length at most 1.
        length = torch.ones_like(loss) if past else 1 / gradient.norm(dim=-1).clamp(min=1.0)
        open_ = gradient.abs().amax(-1) > tolerance
        falls = torch.zeros_like(open_)
        for _ in range(25):
            check()
            there = here + length.unsqueeze(-1) * direction
            new_loss, new_gradient = evaluate(there)
            falls = new_loss <= loss + 1e-4 * length * slope
            if bool((falls | ~open_).all()):
                break
            length = torch.where(falls, length, 0.5 * length)
        accept = (falls & open_).unsqueeze(-1)
        if not bool(accept.any()):
            break
        move = torch.where(accept, there - here, 0.0)
        change = torch.where(accept, new_gradient - gradient, 0.0)
        product = (move * change).sum(-1, keepdim=True)
        curved = product > 1e-10 * change.square().sum(-1, keepdim=True)
        past.append((move, change, torch.where(curved, 1 / product.clamp(min=1e-30), 0.0)))
        del past[:-history]
        here = here + move
        gradient = torch.where(accept, new_gradient, gradient)
        loss = torch.where(accept.squeeze(-1), new_loss, loss)
    return here


def _two_loops(gradient: Tensor, past: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The estimated inverse Hessian times the gradient; a move of weight 0 has no effect."""
    result = gradient
    shares = []
    for move, change, weight in reversed(past):
        share = weight * (move * result).sum(-1, keepdim=True)
        shares.append(share)
        result = result - share * change
    scale = torch.ones_like(gradient[..., :1])
    for move, change, weight in past:  # the latest known curvature of each problem
        size = change.square().sum(-1, keepdim=True)
        known = (weight > 0) & (size > 0)
        scale = torch.where(known, (move * change).sum(-1, keepdim=True) / size.clamp(min=1e-30), scale)
    result = scale * result
    for (move, change, weight), share in zip(past, reversed(shares), strict=True):
        result = result + move * (share - weight * (change * result).sum(-1, keepdim=True))
    return result
