"""Adam, L-BFGS and training on sub-batches, each for many independent problems at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import PackedTasks, item_count, ordered_pairs
from ccrank.methods.probing.objectives import (
    OBJECTIVES,
    SUB_BATCH_ITEMS,
    ProbeSpec,
    objective_of,
    task_losses,
)
from ccrank.util.cancellation import check

Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Parameters (..., D) -> (loss (...), gradient (..., D))."""
HISTORY = 10
TOLERANCE = 1e-7
"""The gradient of a problem that is solved."""


def minimise_adam(evaluate: Evaluate, start: Tensor, steps: int, learning_rate: float) -> Tensor:
    """The parameters after `steps` steps of Adam with torch.optim.Adam's defaults, β = (0.9, 0.999) and ε = 1e-8. The
    first step of any class of torch.optim loads the compiler: 1.6 s before a fit of 0.1 s."""
    parameters = start.clone()
    first, second = torch.zeros_like(start), torch.zeros_like(start)
    for step in range(1, steps + 1):
        check()
        _, gradient = evaluate(parameters)
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = second.sqrt().div_((1 - 0.999**step) ** 0.5).add_(1e-8)
        parameters.addcdiv_(first, scale, value=-learning_rate / (1 - 0.9**step))
    return parameters


def minimise_lbfgs(evaluate: Evaluate, start: Tensor, steps: int) -> Tensor:
    """Minimise with at most `steps` steps; each problem has its own history and step length, which torch.optim.LBFGS
    would share. The step is halved until the loss has fallen by 1e-4 of the decrease predicted by the slope (Armijo); a
    problem that finds no such step, or whose gradient is below the tolerance, does not move."""
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
        open_ = gradient.abs().amax(-1) > TOLERANCE
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
        del past[:-HISTORY]
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


def minimise_sub_batches(batch: PackedTasks, rows: Tensor, spec: ProbeSpec, start: Tensor) -> Tensor:
    """The parameters after `epochs` passes over the sub-batches of each task, in an order drawn from the seed: a step
    of Adam for every two of its items (for triplet every three), as the paper trains "the pairwise approaches". All
    tasks and seeds take their steps together; a task whose pairs are used up waits for the next epoch. rows (G, R, D),
    start (G, 1, S, D)"""
    settings, slopes_of = spec.settings, spec.objective.slopes or _slopes_of_loss(spec)
    if not settings.learning_rate:
        return start
    # Tasks with more sub-batches first: those that still have one at a given place are then the first n.
    present = batch.buckets[0].mask[:, 0, 0].sum(-1).tolist()  # rows of each task
    counts = np.array([item_count(rows // (1 + spec.objective.paired), spec) for rows in present])
    order = np.argsort(-counts, kind="stable")
    size = SUB_BATCH_ITEMS[settings.sub_batch]
    numbers = np.array([math.comb(count, size) for count in counts[order].tolist()])
    active = [int((numbers > place).sum()) for place in range(numbers[0])]

    index = torch.as_tensor(order, device=start.device)
    rows = rows[index]
    parameters = start[index].squeeze(1)  # (G, S, D), a copy
    first, second = torch.zeros_like(parameters), torch.zeros_like(parameters)
    task = torch.arange(len(order), device=start.device).reshape(-1, 1, 1)
    length = torch.as_tensor(numbers, dtype=torch.float64, device=start.device)
    places = torch.arange(1, len(active) + 1, dtype=torch.float64, device=start.device).unsqueeze(-1)
    decay = torch.full(start.shape[-1:], settings.weight_decay, dtype=start.dtype, device=start.device)
    decay[-1] = 0  # the bias has none
    for epoch, chosen in enumerate(_epoch_rows(counts[order], spec)):
        by_place = torch.as_tensor(chosen, device=start.device)
        # Corrections of Adam's moments for each place and task: a task's own steps are counted.
        step = epoch * length + places  # (B, G)
        rate = -settings.learning_rate / (1 - 0.9**step)
        spread = ((1 - 0.999**step).rsqrt() / rate).to(start.dtype)[..., None, None]
        floor = (1e-8 / rate).to(start.dtype)[..., None, None]
        for place, number in enumerate(active):
            check()
            moving = parameters[:number]
            states = rows[task[:number], by_place[place, :number]]  # (n, S, k, D)
            scores = torch.matmul(states, moving.unsqueeze(-1)).squeeze(-1).sigmoid()
            slopes = slopes_of(scores, settings.margin) * scores * (1 - scores)
            gradient = torch.matmul(slopes.unsqueeze(-2), states).squeeze(-2)
            if settings.weight_decay:
                gradient = gradient + decay * moving
            first[:number].lerp_(gradient, 0.1)
            second[:number].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            # rate · first / (√second · correction + 1e-8), with the rate in the denominator: fewer passes.
            scale = torch.addcmul(floor[place, :number], second[:number].sqrt(), spread[place, :number])
            moving.addcdiv_(first[:number], scale)
    ordered = torch.empty_like(start)
    ordered[index] = parameters.unsqueeze(1)
    return ordered


def _epoch_rows(counts: np.ndarray, spec: ProbeSpec) -> Iterator[np.ndarray]:
    """For each epoch, the rows of the sub-batches at each place in it, (B, G, S, k); 0 where a task has none."""
    groups = {count: sub_batch_rows(spec.name, count) for count in set(counts.tolist())}
    epochs = spec.settings.epochs
    orders = {
        count: np.stack([orders_of(seed, len(rows), epochs) for seed in spec.seeds], axis=-1)
        for count, rows in groups.items()
    }  # (epochs, B, S)
    most, width = max(map(len, groups.values())), groups[int(counts[0])].shape[-1]
    for epoch in range(epochs):
        chosen = np.zeros((most, len(counts), len(spec.seeds), width), dtype=np.int64)
        for count, rows in groups.items():
            chosen[: len(rows), counts == count] = rows[orders[count][epoch]][:, None]
        yield chosen


def check_sub_batch(spec: ProbeSpec) -> None:
    """Raise an error unless the probe has the sub-batches that its settings ask for."""
    kind, wanted = spec.objective.sub_batch, spec.settings.sub_batch
    if kind == "none":
        names = [name for name, objective in OBJECTIVES.items() if objective.sub_batch != "none"]
        raise CcrankError(
            f"{spec.name} has no sub-batches; only {', '.join(names)} are trained a few items at a time"
        )
    if kind != wanted:
        raise CcrankError(
            f"{spec.name} is trained {SUB_BATCH_ITEMS[kind]} items at a time: use sub_batch={kind}, not {wanted}"
        )


def _slopes_of_loss(spec: ProbeSpec) -> Callable[[Tensor, float], Tensor]:
    """The slopes of any loss of scores, by differentiating it."""

    def slopes(scores: Tensor, margin: float) -> Tensor:
        with torch.enable_grad():
            values = scores.detach().logit().requires_grad_()
            mask = torch.ones(scores.shape[-1], dtype=torch.bool, device=scores.device)
            losses = task_losses(spec.name, values, mask, None, scores.new_ones(2), spec.settings)
            [slope] = torch.autograd.grad(losses.sum(), values)
        return slope / (scores * (1 - scores)).clamp(min=1e-12)

    return slopes


def sub_batch_rows(method: str, count: int) -> np.ndarray:
    """The rows of each sub-batch of a task of N items, (B, k): items, or for ccs-pair the prompts of both orders of two
    items, each answered Yes and No, k = 4."""
    objective = objective_of(method)
    size = SUB_BATCH_ITEMS[objective.sub_batch]
    groups = np.array([*combinations(range(count), size)], dtype=np.int64).reshape(-1, size)
    if not objective.paired:
        return groups
    number = {(int(a), int(b)): index for index, (a, b) in enumerate(ordered_pairs(count))}
    both_orders = np.array([[number[a, b], number[b, a]] for a, b in groups.tolist()], dtype=np.int64)
    return (2 * both_orders[..., None] + [0, 1]).reshape(-1, 4)


def orders_of(seed: int, count: int, epochs: int) -> np.ndarray:
    """The order of `count` sub-batches in each epoch: (epochs, count). It depends on these numbers only, so a task is
    trained in the same order whatever else is in its batch."""
    generator = np.random.default_rng([seed, count])
    return np.asarray(generator.permuted(np.tile(np.arange(count), (epochs, 1)), axis=1))
