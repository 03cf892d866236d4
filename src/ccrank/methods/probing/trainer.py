"""The batched trainer: all probes of a batch are trained at once, each exactly as if trained alone, since Adam is
elementwise: the gradient of the sum of all losses moves each probe as its own loss would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import PackedTasks
from ccrank.methods.probing.objectives import ProbeSpec, task_losses
from ccrank.methods.probing.optimisers import (
    check_sub_batch,
    minimise_adam,
    minimise_lbfgs,
    minimise_sub_batches,
)
from ccrank.util.cancellation import check

CELL_LIMIT = 2**24  # numbers in the largest tensor of a step; larger batches are split
GPU_FACTOR = 8  # a GPU needs larger batches to be busy, and has the memory for them
CACHE_LIMIT = 2**21  # numbers of states that fit in a CPU's cache between steps: 8 MB in float32
WEIGHT_NORM = 3**-0.5  # expected norm of the uniform initial weights, also used for the pca start


def train(batch: PackedTasks, spec: ProbeSpec) -> list[Tensor]:
    """A probe for each group, training set and seed of the batch: weights (G, F, S, d), bias (G, F, S), shape
    (G, F, S, 2) and final training loss (G, F, S). Ordinal probes have a bias of 0, and α and β as their shape."""
    groups, sets, first = len(batch.states), batch.sets, batch.buckets[0]
    if spec.settings.sub_batch != "none":
        check_sub_batch(spec)
        if sets > 1 or len(batch.buckets) > 1 or len(first.place) > 1:
            raise CcrankError(
                f"sub_batch={spec.settings.sub_batch} trains one probe per task, not across tasks; use the split "
                "same-task"
            )
    # Losses allocate up to the square of each task's rows.
    cells = len(spec.seeds) * max(bucket.mask.numel() * bucket.mask.shape[-1] for bucket in batch.buckets)
    on_cpu = batch.states.device.type == "cpu"
    crowded = batch.states.numel() > CACHE_LIMIT
    too_many = cells > CELL_LIMIT * (GPU_FACTOR if batch.states.device.type == "cuda" else 1)
    if (on_cpu and crowded and groups > 1) or (too_many and groups * sets > 1):
        axis, count = (0, groups) if groups > 1 else (1, sets)
        halves = (slice(None, count // 2), slice(count // 2, None))
        parts = [train(batch.part(axis, half), spec) for half in halves]
        return [torch.cat(columns, dim=axis) for columns in zip(*parts, strict=True)]
    with _one_thread(on_cpu and not crowded):
        return _train_whole(batch, spec)


@contextmanager
def _one_thread(small: bool) -> Iterator[None]:
    """Train a small batch on one thread: its steps take microseconds, and threads that wait for each other on busy
    cores make them 10 to 20 times slower."""
    before = torch.get_num_threads()
    if small and before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def _train_whole(batch: PackedTasks, spec: ProbeSpec) -> list[Tensor]:
    objective, settings = spec.objective, spec.settings
    problem, parameters = _Problem(batch, spec), _start(batch, spec)
    if objective.loss is not None and settings.epochs > 0:
        if settings.sub_batch != "none":
            parameters = minimise_sub_batches(batch, problem.states, spec, parameters)
        elif settings.optimiser == "lbfgs":
            parameters = minimise_lbfgs(problem.evaluate, parameters, settings.epochs)
        else:
            parameters = minimise_adam(problem.evaluate, parameters, settings.epochs, settings.learning_rate)
    weights, rest = parameters.tensor_split([batch.states.shape[-1]], dim=-1)
    bias = torch.zeros_like(rest[..., 0]) if objective.ordinal else rest[..., 0]
    shape = rest if objective.ordinal else rest.new_ones(*rest.shape[:-1], 2)
    loss = problem.loss(problem.logits(parameters), rest)
    if objective.reflects:
        turn = problem.agreement(parameters).sign()
        turn = torch.where(turn == 0, 1.0, turn)
        weights, bias = weights * turn.unsqueeze(-1), bias * turn
    return [weights, bias, shape, loss]


class _Problem:
    """Loss and gradient of all probes of a batch as functions of one tensor (G, F, S, D).

    D is the weights, then the bias, or α and β. The states get matching columns: 1 for a bias, 0 for α and β.
    """

    def __init__(self, batch: PackedTasks, spec: ProbeSpec) -> None:
        self.batch, self.spec, self.ordinal = batch, spec, spec.objective.ordinal
        groups, rows, self.width = batch.states.shape
        self.columns = (batch.sets, len(spec.seeds))
        fill, width = (0.0, 2) if self.ordinal else (1.0, 1)
        extra = batch.states.new_full((groups, rows, width), fill)
        self.states = torch.cat([batch.states, extra], dim=-1)
        # (G, F, 1, T, M) and (G, F, 1, T): shared by all seeds
        self.masks = [bucket.mask.unsqueeze(2) for bucket in batch.buckets]
        self.golds = [None if bucket.gold is None else bucket.gold.unsqueeze(2) for bucket in batch.buckets]
        self.weights = [share.unsqueeze(2) for share in batch.weights()]

    def logits(self, parameters: Tensor) -> list[Tensor]:
        """(G, F, S, D) -> (G, F, S, T, M) of each bucket."""
        rows = torch.matmul(parameters.flatten(1, 2), self.states.mT).unflatten(1, self.columns)
        buckets = self.batch.buckets
        if len(buckets) == 1 and len(buckets[0].place) == 1:
            return [rows.unsqueeze(-2)]  # one task: its rows are in order already
        pieces = rows.split([len(bucket.home) for bucket in buckets], dim=-1)
        return [piece[..., bucket.place] for piece, bucket in zip(pieces, buckets, strict=True)]

    def rows(self, places: Sequence[Tensor]) -> Tensor:
        """The inverse of the gather in `logits`: (G, F, S, T, M) of each bucket -> (G, F, S, R)."""
        if len(places) == 1 and places[0].shape[-2] == 1:
            return places[0].squeeze(-2)
        pieces = zip(places, self.batch.buckets, strict=True)
        return torch.cat([piece.flatten(3)[..., bucket.home] for piece, bucket in pieces], dim=-1)

    def loss(self, logits: Sequence[Tensor], shape: Tensor) -> Tensor:
        """The mean over the training set's tasks: (G, F, S)."""
        total = shape.new_zeros(shape.shape[:-1])
        for piece, mask, gold, weight in zip(logits, self.masks, self.golds, self.weights, strict=True):
            losses = task_losses(self.spec.name, piece, mask, gold, shape, self.spec.settings)
            total = total + (losses * weight).sum(-1)
        return total

    def evaluate(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (G, F, S) and its gradient (G, F, S, D), including the penalty."""
        # Only the step from logits to loss needs autograd; the step from weights to logits is one matmul.
        logits = [piece.requires_grad_() for piece in self.logits(parameters)]
        rest = parameters[..., self.width :].detach()
        if self.ordinal:
            rest.requires_grad_()
        loss = self.loss(logits, rest)
        slopes = torch.autograd.grad(loss.sum(), [*logits, rest] if self.ordinal else logits)
        rows = self.rows(slopes[: len(logits)])
        gradient = torch.matmul(rows.flatten(1, 2), self.states).unflatten(1, self.columns)
        if self.ordinal:
            gradient[..., self.width :] = slopes[-1]
        loss = loss.detach()
        if decay := self.spec.settings.weight_decay:
            weights = parameters[..., : self.width]
            gradient[..., : self.width] += decay * weights
            loss = loss + 0.5 * decay * weights.square().sum(-1)
        return loss, gradient

    def agreement(self, parameters: Tensor) -> Tensor:
        """The covariance of scores and gold ranks within the training tasks: (G, F, S, D) -> (G, F, S)."""
        total = torch.zeros_like(parameters[..., 0])
        for piece, mask, gold in zip(self.logits(parameters), self.masks, self.golds, strict=True):
            if gold is not None:
                middle = (gold * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
                total += (piece.sigmoid() * (gold - middle) * mask).sum((-1, -2))
        return total


def _start(batch: PackedTasks, spec: ProbeSpec) -> Tensor:
    """(G, F, S, D): the initial weights with the bias, or with α = β = 1."""
    objective, width = spec.objective, batch.states.shape[-1]
    drawn = torch.stack([torch.cat(initial_weights(seed, width)) for seed in spec.seeds])
    drawn = drawn.to(batch.states.device).expand(len(batch.states), batch.sets, -1, -1)
    weights, bias = drawn.split([width, 1], dim=-1)
    if (objective.initial or spec.settings.initial) == "pca":
        principal = principal_directions(batch, objective.paired) * WEIGHT_NORM
        weights, bias = principal.unsqueeze(2).expand_as(weights), torch.zeros_like(bias)
    if objective.loss is None:
        bias = torch.zeros_like(bias)
    rest = torch.ones_like(weights[..., :2]) if objective.ordinal else bias
    return torch.cat([weights, rest], dim=-1).to(batch.states.dtype)


def initial_weights(seed: int, width: int) -> tuple[Tensor, Tensor]:
    """Weights (d,) and bias (1,) as torch.nn.Linear draws them, uniform in ±1/√d; in float64, so that a seed gives the
    same start for every precision and device."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(width + 1, generator=generator, dtype=torch.float64)
    drawn = (2 * drawn - 1) * width**-0.5
    return drawn[:width], drawn[width:]


def principal_directions(batch: PackedTasks, paired: bool) -> Tensor:
    """The first principal component of each training set's Z-scored states, (G, F, d), for pair states of x⁺ − x⁻, of
    length 1. Its sign is arbitrary; the largest entry is made positive."""
    used = batch.row_mask()
    groups, sets = used.shape[:2]
    rows = batch.states.double()
    if paired:
        rows, used = rows[:, ::2] - rows[:, 1::2], used[..., ::2]
    count, width = rows.shape[-2:]
    directions = rows.new_zeros(groups, sets, width)
    for index in range(sets):
        check()
        kept = rows * used[:, index].unsqueeze(-1)
        if count <= width:
            direction = (kept.mT @ torch.linalg.eigh(kept @ kept.mT).eigenvectors[..., -1:]).squeeze(-1)
        else:
            direction = torch.linalg.eigh(kept.mT @ kept).eigenvectors[..., -1]
        direction = direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-30)
        largest = direction.gather(-1, direction.abs().argmax(-1, keepdim=True))
        directions[:, index] = torch.where(largest < 0, -direction, direction)
    return directions
