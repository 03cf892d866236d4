"""Training with sub-batches: one step of Adam for every two items of a task (for triplet every three).

The paper trains "the pairwise approaches" this way. An epoch is one pass over all pairs in an order drawn from the
seed, so a task of N items takes N(N − 1)/2 steps per epoch instead of one. All tasks and seeds of a batch take their
steps together; a task whose pairs are used up waits for the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import PackedTasks, ordered_pairs
from ccrank.methods.probing.objectives import Settings, task_losses
from ccrank.util.cancellation import check

Slopes = Callable[[Tensor, float], Tensor]
"""(scores of a sub-batch's rows (..., k), margin) -> the derivative of its mean loss by the scores (..., k)."""


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
    the anchor to the other two.

    Entry i of `distance` is |s_i − s_{i+1}| (cyclically), so two neighbouring entries share an anchor.
    """
    difference = scores - scores.roll(-1, -1)
    distance = difference.abs()
    gap = distance - distance.roll(-1, -1)
    pull = gap.sign() * (gap.abs() < margin)  # how much the contrast terms increase entry i over i + 1
    near = torch.minimum(distance, distance.roll(-1, -1)) < margin
    first, second = near * (0.5 - 0.5 * gap.sign()), near * (0.5 + 0.5 * gap.sign())
    by_distance = -pull + pull.roll(1, -1) - first - second.roll(1, -1)
    by_score = by_distance * difference.sign()
    return (by_score - by_score.roll(1, -1)) / 3


@dataclass(frozen=True, slots=True)
class SubBatch:
    """How a method is trained a few items at a time."""

    name: str
    """The value of the setting that selects it."""
    items: int
    slopes: Slopes | None = None
    """None for a registered objective, whose loss is differentiated."""


ITEMS = {"pairs": 2, "triples": 3}
SUB_BATCHES = {
    "ccs-pair": SubBatch("pairs", 2, ccs_pair_slopes),
    "ccs": SubBatch("pairs", 2, ccs_slopes),
    "margin": SubBatch("pairs", 2, margin_slopes),
    "triplet": SubBatch("triples", 3, triplet_slopes),
}
"""The unsupervised probes whose loss is a mean over pairs or triples of items. A triplet needs three items, so it is
trained three at a time; ordreg looks at all items at once and has no sub-batches."""


def slopes_of_loss(method: str, settings: Settings) -> Slopes:
    """The slopes of any loss of scores, by differentiating it."""

    def slopes(scores: Tensor, margin: float) -> Tensor:
        with torch.enable_grad():
            values = scores.detach().logit().requires_grad_()
            mask = torch.ones(scores.shape[-1], dtype=torch.bool, device=scores.device)
            losses = task_losses(method, values, mask, None, scores.new_ones(2), settings)
            [slope] = torch.autograd.grad(losses.sum(), values)
        return slope / (scores * (1 - scores)).clamp(min=1e-12)

    return slopes


def sub_batch_of(method: str, name: str) -> SubBatch:
    """The sub-batches of a method; `name` must be the one that it has."""
    if method not in SUB_BATCHES:
        raise CcrankError(
            f"{method} has no sub-batches; only {', '.join(SUB_BATCHES)} are trained a few items at a time"
        )
    sub_batch = SUB_BATCHES[method]
    if sub_batch.name != name:
        raise CcrankError(
            f"{method} is trained {sub_batch.items} items at a time: use sub_batch={sub_batch.name}, not {name}"
        )
    return sub_batch


def sub_batch_rows(method: str, count: int) -> np.ndarray:
    """The rows of each sub-batch of a task of N items: (B, k).

    Rows are items; for ccs-pair the prompts of both orders of two items, each answered Yes and No: k = 4.
    """
    groups = list(combinations(range(count), SUB_BATCHES[method].items))
    if method != "ccs-pair":
        return np.array(groups, dtype=np.int64).reshape(-1, SUB_BATCHES[method].items)
    number = {(int(a), int(b)): index for index, (a, b) in enumerate(ordered_pairs(count))}
    both_orders = np.array([[number[a, b], number[b, a]] for a, b in groups], dtype=np.int64)
    return (2 * both_orders[..., None] + [0, 1]).reshape(-1, 4)


def orders_of(seed: int, count: int, epochs: int) -> np.ndarray:
    """The order of `count` sub-batches in each epoch: (epochs, count). It depends on these numbers only, so a task is
    trained in the same order whatever else is in its batch."""
    generator = np.random.default_rng([seed, count])
    return np.asarray(generator.permuted(np.tile(np.arange(count), (epochs, 1)), axis=1))


def minimise_sub_batches(
    batch: PackedTasks, rows: Tensor, method: str, seeds: Sequence[int], settings: Settings, start: Tensor
) -> Tensor:
    """The parameters after `settings.epochs` passes over the sub-batches of each task, a step of Adam for each. rows
    (G, R, D), start (G, 1, S, D) -> (G, 1, S, D)"""
    slopes_of = sub_batch_of(method, settings.sub_batch).slopes or slopes_of_loss(method, settings)
    if not settings.learning_rate:
        return start
    present = batch.buckets[0].mask[:, 0, 0].sum(-1).tolist()  # rows of each task
    counts = [_items(method, int(number)) for number in present]
    by_count = {count: sub_batch_rows(method, count) for count in set(counts)}
    # Tasks with more sub-batches first: those that still have one at a given place are then the first n.
    order = sorted(range(len(counts)), key=lambda index: -counts[index])
    numbers = np.array([len(by_count[counts[index]]) for index in order])
    epoch_rows = _epoch_rows(method, [counts[index] for index in order], by_count, seeds, settings.epochs)
    active = [int((numbers > step_of_epoch).sum()) for step_of_epoch in range(int(numbers.max(initial=0)))]

    index = torch.as_tensor(order, device=start.device)
    rows = rows[index]
    parameters = start[index].squeeze(1)  # (G, S, D), a copy
    first, second = torch.zeros_like(parameters), torch.zeros_like(parameters)
    group = torch.arange(len(order), device=start.device).reshape(-1, 1, 1)
    length = torch.as_tensor(numbers, dtype=torch.float64, device=start.device)
    places = torch.arange(1, len(active) + 1, dtype=torch.float64, device=start.device).unsqueeze(-1)
    decay = _decay(settings.weight_decay, start)
    for epoch in range(settings.epochs):
        chosen = torch.as_tensor(epoch_rows(epoch), device=start.device)  # (B, G, S, k)
        # Corrections of Adam's moments for each place and task: a task's own steps are counted.
        step = epoch * length + places  # (B, G)
        rate = -settings.learning_rate / (1 - 0.9**step)
        spread = ((1 - 0.999**step).rsqrt() / rate).to(start.dtype)[..., None, None]
        floor = (1e-8 / rate).to(start.dtype)[..., None, None]
        for step_of_epoch, number in enumerate(active):
            check()
            moving = parameters[:number]
            states = rows[group[:number], chosen[step_of_epoch, :number]]  # (n, S, k, D)
            scores = torch.matmul(states, moving.unsqueeze(-1)).squeeze(-1).sigmoid()
            slopes = slopes_of(scores, settings.margin) * scores * (1 - scores)
            gradient = torch.matmul(slopes.unsqueeze(-2), states).squeeze(-2)
            if decay is not None:
                gradient = gradient + decay * moving
            first[:number].lerp_(gradient, 0.1)
            second[:number].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            # rate · first / (√second · correction + 1e-8), with the rate in the denominator: fewer passes.
            scale = torch.addcmul(
                floor[step_of_epoch, :number], second[:number].sqrt(), spread[step_of_epoch, :number]
            )
            moving.addcdiv_(first[:number], scale)
    ordered = torch.empty_like(start)
    ordered[index] = parameters.unsqueeze(1)
    return ordered


def _items(method: str, rows: int) -> int:
    """N from the rows of a task: N, or 2N(N − 1)."""
    return rows if method != "ccs-pair" else (1 + int((1 + 2 * rows) ** 0.5)) // 2


def _decay(weight_decay: float, start: Tensor) -> Tensor | None:
    """(D,): the weight decay of the weights; the bias, the last column, has none."""
    if not weight_decay:
        return None
    decay = torch.full(start.shape[-1:], weight_decay, dtype=start.dtype, device=start.device)
    decay[-1] = 0
    return decay


def _epoch_rows(
    method: str, counts: Sequence[int], by_count: dict[int, np.ndarray], seeds: Sequence[int], epochs: int
) -> Callable[[int], np.ndarray]:
    """Epoch -> the rows of each place's sub-batches, (B, G, S, k); 0 where a task has none."""
    orders = {
        count: np.stack([orders_of(seed, len(groups), epochs) for seed in seeds], axis=-1)  # (epochs, B, S)
        for count, groups in by_count.items()
    }
    most, width = max(map(len, by_count.values())), next(iter(by_count.values())).shape[-1]
    members = {count: np.flatnonzero(np.asarray(counts) == count) for count in by_count}

    def rows(epoch: int) -> np.ndarray:
        by_place = np.zeros((most, len(counts), len(seeds), width), dtype=np.int64)
        for count, groups in by_count.items():
            by_place[: len(groups), members[count]] = groups[orders[count][epoch]][:, None]
        return by_place

    return rows
