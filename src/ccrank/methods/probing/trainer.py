"""The batched trainer: all probes of a batch are trained at once, each exactly as if trained alone.

The parameters of all probes are one tensor and Adam is elementwise, so the gradient of the sum of
all losses moves each probe exactly as its own loss would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import PackedTasks
from ccrank.methods.probing.lbfgs import Evaluate, minimise_lbfgs
from ccrank.methods.probing.objectives import Settings, objective_of, task_losses
from ccrank.methods.probing.sub_batches import minimise_sub_batches, sub_batch_of
from ccrank.util.cancellation import check

CELL_LIMIT = 2**24  # numbers in the largest tensor of a step; larger batches are split
GPU_FACTOR = 8  # a GPU needs larger batches to be busy, and has the memory for them
CACHE_LIMIT = 2**21  # numbers of states that fit in a CPU's cache between steps: 8 MB in float32
WEIGHT_NORM = 3**-0.5  # expected norm of the uniform initial weights, also used for the pca start


@dataclass(frozen=True, slots=True)
class Parameters:
    """Trained probes of G groups, F training sets, S seeds."""

    weights: Tensor
    """(G, F, S, d)"""
    bias: Tensor
    """(G, F, S); 0 for the ordinal probes, whose biases are centred."""
    shape: Tensor
    """(G, F, S, 2): α and β of the ordinal probes, else 1."""
    loss: Tensor
    """(G, F, S): the final loss on the training set, without weight decay."""


def initial_weights(seed: int, width: int) -> tuple[Tensor, Tensor]:
    """Weights (d,) and bias (1,) as torch.nn.Linear draws them, uniform in ±1/√d, determined by the seed.

    Drawn in float64 for every precision and device, so that a seed gives the same start everywhere.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(width + 1, generator=generator, dtype=torch.float64)
    drawn = (2 * drawn - 1) * width**-0.5
    return drawn[:width], drawn[width:]


def principal_directions(batch: PackedTasks, paired: bool) -> Tensor:
    """The first principal component of each training set's Z-scored states, (G, F, d), of length 1.

    For pair states, the component of x⁺ − x⁻. The sign is arbitrary; the largest entry is made positive.
    """
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


def train(batch: PackedTasks, method: str, seeds: Sequence[int], settings: Settings) -> Parameters:
    """A probe for each group, training set and seed of the batch."""
    groups, sets = len(batch.states), batch.sets
    if settings.sub_batch != "none":
        sub_batch_of(method, settings.sub_batch)
        if sets > 1 or len(batch.buckets) > 1 or len(batch.buckets[0].place) > 1:
            raise CcrankError(
                f"sub_batch={settings.sub_batch} trains one probe per task, not across tasks; use the split same-task"
            )
    # Losses allocate up to the square of each task's rows.
    cells = len(seeds) * max(bucket.mask.numel() * bucket.mask.shape[-1] for bucket in batch.buckets)
    device = batch.states.device.type
    crowded = device == "cpu" and groups > 1 and batch.states.numel() > CACHE_LIMIT
    if crowded or (cells > CELL_LIMIT * (GPU_FACTOR if device == "cuda" else 1) and groups * sets > 1):
        first, second, axis = batch.halves()
        parts = [train(part, method, seeds, settings) for part in (first, second)]
        fields = ("weights", "bias", "shape", "loss")
        return Parameters(*(torch.cat([getattr(part, name) for part in parts], dim=axis) for name in fields))
    with _one_thread(device == "cpu" and batch.states.numel() <= CACHE_LIMIT):
        return _train_whole(batch, method, seeds, settings)


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


def _train_whole(batch: PackedTasks, method: str, seeds: Sequence[int], settings: Settings) -> Parameters:
    objective = objective_of(method)
    problem = _Problem(batch, method, len(seeds), settings)
    start = _start(batch, method, seeds, settings)
    if objective.loss is None or settings.epochs == 0:
        parameters = start
    elif settings.sub_batch != "none":
        parameters = minimise_sub_batches(batch, problem.states, method, seeds, settings, start)
    elif settings.optimiser == "lbfgs":
        parameters = minimise_lbfgs(problem.evaluate, start, settings.epochs)
    else:
        parameters = minimise_adam(problem.evaluate, start, settings.epochs, settings.learning_rate)
    width = batch.states.shape[-1]
    weights, rest = parameters[..., :width], parameters[..., width:]
    plain = torch.ones(*rest.shape[:-1], 2, dtype=rest.dtype, device=rest.device)
    bias = torch.zeros_like(rest[..., 0]) if objective.ordinal else rest[..., 0]
    shape = rest if objective.ordinal else plain
    loss = problem.loss(problem.logits(parameters), rest)
    if objective.reflects:
        turn = problem.agreement(parameters).sign()
        turn = torch.where(turn == 0, 1.0, turn)
        weights, bias = weights * turn.unsqueeze(-1), bias * turn
    return Parameters(weights, bias, shape, loss)


class _Problem:
    """Loss and gradient of all probes of a batch as functions of one tensor (G, F, S, D).

    D is the weights, then the bias, or α and β. The states get matching columns: 1 for a bias, 0 for α and β.
    """

    def __init__(self, batch: PackedTasks, method: str, seeds: int, settings: Settings) -> None:
        self.batch, self.method, self.settings = batch, method, settings
        self.ordinal = objective_of(method).ordinal
        groups, rows, self.width = batch.states.shape
        self.columns = (batch.sets, seeds)
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
            losses = task_losses(self.method, piece, mask, gold, shape, self.settings)
            total = total + (losses * weight).sum(-1)
        return total

    def evaluate(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (G, F, S) and its gradient (G, F, S, D), including the penalty.

        Only the step from logits to loss uses autograd; the step from weights to logits is one matmul.
        """
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
        if self.settings.weight_decay:
            weights = parameters[..., : self.width]
            gradient[..., : self.width] += self.settings.weight_decay * weights
            loss = loss + 0.5 * self.settings.weight_decay * weights.square().sum(-1)
        return loss, gradient

    def agreement(self, parameters: Tensor) -> Tensor:
        """The covariance of scores and gold ranks within the training tasks: (G, F, S, D) -> (G, F, S)."""
        total = torch.zeros_like(parameters[..., 0])
        for piece, mask, gold in zip(self.logits(parameters), self.masks, self.golds, strict=True):
            if gold is not None:
                middle = (gold * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
                total += (piece.sigmoid() * (gold - middle) * mask).sum((-1, -2))
        return total


def minimise_adam(evaluate: Evaluate, start: Tensor, steps: int, learning_rate: float) -> Tensor:
    """The parameters after `steps` steps of Adam with torch.optim.Adam's defaults: β = (0.9, 0.999), ε = 1e-8.

    Implemented here because the first step of any torch.optim class loads the compiler: 1.6 s before a fit of 0.1 s.
    """
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


def _start(batch: PackedTasks, method: str, seeds: Sequence[int], settings: Settings) -> Tensor:
    """(G, F, S, D): the initial weights with the bias, or with α = β = 1."""
    objective = objective_of(method)
    width = batch.states.shape[-1]
    drawn = [initial_weights(seed, width) for seed in seeds]
    weights = torch.stack([weight for weight, _ in drawn]).expand(len(batch.states), batch.sets, -1, -1)
    bias = torch.stack([bias for _, bias in drawn]).expand(len(batch.states), batch.sets, -1, -1)
    weights, bias = weights.to(batch.states.device), bias.to(batch.states.device)
    if (objective.initial or settings.initial) == "pca":
        principal = principal_directions(batch, objective.prompt == "pair") * WEIGHT_NORM
        weights, bias = principal.unsqueeze(2).expand_as(weights), torch.zeros_like(bias)
    if objective.loss is None:
        bias = torch.zeros_like(bias)
    rest = torch.ones_like(weights[..., :2]) if objective.ordinal else bias
    return torch.cat([weights, rest], dim=-1).to(batch.states.dtype)
