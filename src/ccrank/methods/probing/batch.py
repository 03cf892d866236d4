"""Packing tasks of different sizes into tensors that are trained together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ccrank.errors import CcrankError
from ccrank.methods.probing.losses import ranks_of
from ccrank.methods.probing.objectives import ProbeSpec
from ccrank.util.zscores import FLOAT32_ROUNDING, z_scores


def ordered_pairs(count: int) -> np.ndarray:
    """The ordered pairs of a task's items, (0, 1), (0, 2), …, in the order of the pair states. (P, 2)."""
    return np.array(list(permutations(range(count), 2)), dtype=np.int64).reshape(-1, 2)


def item_count(prompts: int, spec: ProbeSpec) -> int:
    """N of a task, from its prompts: N, or N(N − 1) for the pair methods."""
    return (1 + math.isqrt(1 + 4 * prompts)) // 2 if spec.objective.paired else prompts


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tasks of similar size, padded to the longest: T tasks of at most M rows."""

    place: Tensor
    """(T, M): the row of each task's items, counted from the bucket's first; arbitrary where there is no item."""
    home: Tensor
    """(R,): the index in T × M of each of the bucket's rows, the inverse of `place`."""
    mask: Tensor
    """(G, F, T, M): the items trained on."""
    gold: Tensor | None
    """(G, F, T, M): ranks among the items trained on, or whether each answered prompt is true."""


@dataclass(frozen=True, slots=True)
class PackedTasks:
    """G groups (tasks, or pools of tasks), each with F training sets that share the group's states."""

    states: Tensor
    """(G, R, d): the rows of all the group's tasks, bucket by bucket and task by task."""
    buckets: tuple[Bucket, ...]

    @property
    def sets(self) -> int:
        """F, the number of training sets."""
        return self.buckets[0].mask.shape[1]

    def weights(self) -> list[Tensor]:
        """Per bucket (G, F, T): the weight of each task in its training set, 0 for tasks without items."""
        used = [bucket.mask.any(-1).to(self.states.dtype) for bucket in self.buckets]
        total = torch.cat(used, dim=-1).sum(-1, keepdim=True).clamp(min=1)
        return [share / total for share in used]

    def row_mask(self) -> Tensor:
        """(G, F, R): the rows trained on."""
        return torch.cat([bucket.mask.flatten(2)[..., bucket.home] for bucket in self.buckets], dim=-1)

    def part(self, axis: int, part: slice) -> PackedTasks:
        """Some of the groups (axis 0), or some of the training sets (axis 1)."""
        index = (slice(None),) * axis + (part,)
        buckets = [
            replace(bucket, mask=bucket.mask[index], gold=None if bucket.gold is None else bucket.gold[index])
            for bucket in self.buckets
        ]
        return PackedTasks(self.states if axis else self.states[part], tuple(buckets))


def as_states(states: Any, spec: ProbeSpec, where: str) -> Tensor:
    """One task's states, validated and Z-scored: (N, d) unchanged in shape, (P, 2, d) as (2P, d)."""
    if not isinstance(states, Tensor):
        states = np.require(states, requirements="W")  # torch warns about read-only memory
    tensor = torch.as_tensor(states, device=spec.device, dtype=spec.dtype)
    pair = spec.objective.paired
    if tensor.ndim != 2 + pair or (pair and tensor.shape[1] != 2):
        form = (
            "(N(N - 1), 2, d): every ordered pair, answered Yes and No" if pair else "(N, d): a row per item"
        )
        raise CcrankError(f"{where}: {spec.name} needs states of shape {form}; got {tuple(tensor.shape)}")
    count = item_count(len(tensor), spec)
    if count < 2 or (pair and len(tensor) != count * (count - 1)):
        raise CcrankError(f"{where}: {len(tensor)} rows of states do not correspond to 2 or more items")
    if not bool(torch.isfinite(tensor).all()):
        raise CcrankError(f"{where}: the states contain NaN or infinity; read them in float32 or bfloat16")
    # Over the items of a task; for pairs over its prompts, with separate means for "Yes" and "No".
    scaled: Tensor = z_scores(tensor, axis=0, rounding=FLOAT32_ROUNDING)
    return scaled.reshape(-1, tensor.shape[-1])


def as_gold(gold: Any, spec: ProbeSpec, count: int, where: str) -> Tensor:
    """One task's gold along its rows: a value per item, or whether each answered prompt is true. (M,)."""
    values = torch.as_tensor(np.asarray(gold, dtype=np.float64), device=spec.device)
    if values.shape != (count,):
        raise CcrankError(
            f"{where}: gold has shape {tuple(values.shape)} for {count} items; give one value per item"
        )
    if not spec.objective.paired:
        return values
    first, second = values[torch.as_tensor(ordered_pairs(count), device=spec.device).T]
    above = (first > second).to(values.dtype)
    return torch.stack([above, 1 - above], dim=-1).reshape(-1)


def pack_each(
    states: Sequence[Any], spec: ProbeSpec, gold: Sequence[Any] | None, *, leave_one_out: bool = False
) -> Iterator[tuple[list[int], PackedTasks]]:
    """Each task as its own group: (indices of the tasks, batch), with tasks of similar size in one batch. With
    `leave_one_out` there are N training sets per task, set i without item i; a batch then contains a single N."""
    for members, rows, present, values in _by_size(states, spec, gold, least=1.0 if leave_one_out else 0.6):
        mask = present[:, None, None]  # (G, F, T, M) with one training set of one task
        if leave_one_out:
            count = item_count(len(states[members[0]]), spec)
            mask = mask & _kept_rows([~np.eye(count, dtype=bool)], spec, mask)
        column = torch.arange(mask.shape[-1], device=mask.device)
        ranks = _ranks(None if values is None else values[:, None, None], mask, spec)
        bucket = Bucket(column.unsqueeze(0), column, mask, ranks)
        yield members, PackedTasks(pad_sequence(rows, batch_first=True), (bucket,))


def pack_pool(
    states: Sequence[Any],
    spec: ProbeSpec,
    gold: Sequence[Any] | None,
    train: np.ndarray,
    kept: Sequence[np.ndarray] | None = None,
) -> PackedTasks:
    """All tasks as one group; train (F, T) marks the tasks of each of the F training sets, kept per task (F, N) the
    items. A task of which fewer than two items are kept is left out."""
    all_rows, buckets = [], []
    for members, rows, present, values in _by_size(states, spec, gold, least=0.6):
        chosen = torch.as_tensor(train[:, members], dtype=torch.bool, device=present.device)
        mask = (chosen.unsqueeze(-1) & present).unsqueeze(0)
        if kept is not None:
            enough = [kept[i] & (kept[i].sum(axis=1, keepdims=True) > 1) for i in members]
            mask = mask & _kept_rows(enough, spec, mask)
        place = present.flatten().cumsum(0).reshape(present.shape) - 1
        home = torch.nonzero(present.flatten()).squeeze(-1)
        all_rows += rows
        buckets.append(Bucket(place, home, mask, _ranks(values, mask, spec)))
    return PackedTasks(torch.cat(all_rows).unsqueeze(0), tuple(buckets))


def _by_size(
    states: Sequence[Any], spec: ProbeSpec, gold: Sequence[Any] | None, least: float
) -> Iterator[tuple[list[int], list[Tensor], Tensor, Tensor | None]]:
    """Tasks of similar size: their indices, each one's rows, which of M rows (T, M) each has when they are padded to
    the longest, and their gold along the rows, (T, M), for supervised probes."""
    _check(states, gold, spec)
    sizes = [item_count(len(task), spec) for task in states]
    for members in _similar_sizes(sizes, least):
        rows = [as_states(states[i], spec, f"task {i}") for i in members]
        lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
        present = torch.arange(int(lengths.max()), device=rows[0].device) < lengths.unsqueeze(-1)
        values = None
        if gold is not None and spec.objective.supervised:
            truth = [as_gold(gold[i], spec, sizes[i], f"task {i}") for i in members]
            values = pad_sequence(truth, batch_first=True)
        yield members, rows, present, values


def _check(states: Sequence[Any], gold: Sequence[Any] | None, spec: ProbeSpec) -> None:
    if len(states) == 0:
        raise CcrankError(f"{spec.name}: fitting a probe needs at least one task, got none")
    widths = {int(task.shape[-1]) for task in states}
    if len(widths) > 1:
        raise CcrankError(
            f"states of different widths {sorted(widths)} cannot share a probe; use the states of one model"
        )
    if not spec.objective.supervised:
        return
    if gold is None:
        raise CcrankError(
            f"{spec.name} is supervised and needs gold; pass gold= or use an unsupervised probe"
        )
    if len(gold) != len(states):
        raise CcrankError(f"there is gold for {len(gold)} tasks, but states for {len(states)}")


def _similar_sizes(sizes: Sequence[int], least: float) -> Iterator[list[int]]:
    """Groups of indices, largest first, in which no size is below `least` times the largest."""
    members: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if members and sizes[index] < least * sizes[members[0]]:
            yield members
            members = []
        members.append(index)
    yield members


def _ranks(values: Tensor | None, mask: Tensor, spec: ProbeSpec) -> Tensor | None:
    """Gold as the losses need it: ranks among the items trained on, or the truth of each answer."""
    if values is None:
        return None
    values = values.expand(mask.shape)
    return (values if spec.objective.paired else ranks_of(values, mask)).to(spec.dtype)


def _kept_rows(kept: Sequence[np.ndarray], spec: ProbeSpec, mask: Tensor) -> Tensor:
    """(F, T, M): the rows of the items that are kept, per task (F, N); for pairs the prompts of two such items."""
    rows = np.zeros((len(kept[0]), len(kept), mask.shape[-1]), dtype=bool)
    for index, items in enumerate(kept):
        if spec.objective.paired:
            items = np.repeat(items[:, ordered_pairs(items.shape[1])].all(axis=-1), 2, axis=-1)
        rows[:, index, : items.shape[1]] = items
    return torch.as_tensor(rows, device=mask.device)
