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
from ccrank.methods.probing.objectives import objective_of
from ccrank.util.zscores import FLOAT32_ROUNDING, z_scores


def ordered_pairs(count: int) -> np.ndarray:
    """The ordered pairs of a task's items, (0, 1), (0, 2), …, in the order of the pair states. (P, 2)."""
    return np.array(list(permutations(range(count), 2)), dtype=np.int64).reshape(-1, 2)


def item_count(states: Any, method: str) -> int:
    """N of a task, from its states: (N, d), or (N(N − 1), 2, d) for the pair methods."""
    rows = int(states.shape[0])
    return rows if objective_of(method).prompt == "single" else (1 + math.isqrt(1 + 4 * rows)) // 2


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

    def halves(self) -> tuple[PackedTasks, PackedTasks, int]:
        """Two batches of half the groups, or of half the training sets, and the axis (0 or 1) that was split."""
        axis = 0 if len(self.states) > 1 else 1
        middle = (len(self.states) if axis == 0 else self.sets) // 2

        def cut(part: slice) -> PackedTasks:
            index = (part,) if axis == 0 else (slice(None), part)
            buckets = []
            for bucket in self.buckets:
                gold = None if bucket.gold is None else bucket.gold[index]
                buckets.append(replace(bucket, mask=bucket.mask[index], gold=gold))
            return PackedTasks(self.states[part] if axis == 0 else self.states, tuple(buckets))

        return cut(slice(None, middle)), cut(slice(middle, None)), axis


def as_states(states: Any, method: str, device: torch.device, dtype: torch.dtype, where: str) -> Tensor:
    """One task's states, validated and Z-scored: (N, d) unchanged in shape, (P, 2, d) as (2P, d)."""
    if not isinstance(states, Tensor):
        states = np.require(states, requirements="W")  # torch warns about read-only memory
    tensor = torch.as_tensor(states, device=device, dtype=dtype)
    pair = objective_of(method).prompt == "pair"
    if tensor.ndim != 2 + pair or (pair and tensor.shape[1] != 2):
        form = (
            "(N(N - 1), 2, d): every ordered pair, answered Yes and No" if pair else "(N, d): a row per item"
        )
        raise CcrankError(f"{where}: {method} needs states of shape {form}; got {tuple(tensor.shape)}")
    count = item_count(tensor, method)
    if count < 2 or (pair and tensor.shape[0] != count * (count - 1)):
        raise CcrankError(f"{where}: {tensor.shape[0]} rows of states do not correspond to 2 or more items")
    if not bool(torch.isfinite(tensor).all()):
        raise CcrankError(f"{where}: the states contain NaN or infinity; read them in float32 or bfloat16")
    # Over the items of a task; for pairs over its prompts, with separate means for "Yes" and "No".
    scaled: Tensor = z_scores(tensor, axis=0, rounding=FLOAT32_ROUNDING)
    return scaled.reshape(-1, tensor.shape[-1])


def as_gold(gold: Any, method: str, count: int, device: torch.device, where: str) -> Tensor:
    """One task's gold along its rows: a value per item, or whether each answered prompt is true. (M,)."""
    values = torch.as_tensor(np.asarray(gold, dtype=np.float64), device=device)
    if values.shape != (count,):
        raise CcrankError(
            f"{where}: gold has shape {tuple(values.shape)} for {count} items; give one value per item"
        )
    if objective_of(method).prompt == "single":
        return values
    first, second = torch.as_tensor(ordered_pairs(count), device=device).T
    above = (values[first] > values[second]).to(values.dtype)
    return torch.stack([above, 1 - above], dim=-1).reshape(-1)


def _check(states: Sequence[Any], gold: Sequence[Any] | None, method: str) -> None:
    if len(states) == 0:
        raise CcrankError(f"{method}: fitting a probe needs at least one task, got none")
    widths = {int(task.shape[-1]) for task in states}
    if len(widths) > 1:
        raise CcrankError(
            f"states of different widths {sorted(widths)} cannot share a probe; use the states of one model"
        )
    if objective_of(method).supervised:
        if gold is None:
            raise CcrankError(
                f"{method} is supervised and needs gold; pass gold= or use an unsupervised probe"
            )
        if len(gold) != len(states):
            raise CcrankError(f"there is gold for {len(gold)} tasks, but states for {len(states)}")


def pack_each(
    states: Sequence[Any],
    method: str,
    gold: Sequence[Any] | None,
    *,
    leave_one_out: bool = False,
    device: torch.device,
    dtype: torch.dtype,
) -> Iterator[tuple[list[int], PackedTasks]]:
    """Each task as its own group: (indices of the tasks, batch), with tasks of similar size in one batch.

    With `leave_one_out` there are N training sets per task, set i without item i; a batch then contains a single N.
    """
    _check(states, gold, method)
    sizes = [item_count(task, method) for task in states]
    for members in _similar_sizes(sizes, least=1.0 if leave_one_out else 0.6):
        rows = [as_states(states[i], method, device, dtype, f"task {i}") for i in members]
        packed = pad_sequence(rows, batch_first=True)
        place = torch.arange(packed.shape[1], device=device)
        present = place < torch.tensor([len(row) for row in rows], device=device).unsqueeze(-1)
        mask = present[:, None, None]  # (G, F, T, M) with one training set of one task
        if leave_one_out:
            mask = mask & _without_each(sizes[members[0]], method, device)
        values = _values(members, gold, method, sizes, device)
        ranks = _gold_of(None if values is None else values[:, None, None], mask, method, dtype)
        yield members, PackedTasks(packed, (Bucket(place.unsqueeze(0), place, mask, ranks),))


def pack_pool(
    states: Sequence[Any],
    method: str,
    gold: Sequence[Any] | None,
    train: np.ndarray,
    kept: Sequence[np.ndarray] | None = None,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> PackedTasks:
    """All tasks as one group; train (F, T) marks the tasks of each of the F training sets, kept per task (F, N) the
    items. A task of which fewer than two items are kept is left out."""
    _check(states, gold, method)
    sizes = [item_count(task, method) for task in states]
    all_rows, buckets = [], []
    for members in _similar_sizes(sizes, least=0.6):
        rows = [as_states(states[i], method, device, dtype, f"task {i}") for i in members]
        lengths = torch.tensor([len(row) for row in rows], device=device)
        column = torch.arange(int(lengths.max()), device=device)
        present = column < lengths.unsqueeze(-1)  # (T, M)
        start = lengths.cumsum(0) - lengths
        place = (start.unsqueeze(-1) + column).masked_fill(~present, 0)
        home = torch.nonzero(present.flatten()).squeeze(-1)
        chosen = torch.as_tensor(train[:, members], dtype=torch.bool, device=device)
        mask = (chosen.unsqueeze(-1) & present).unsqueeze(0)
        if kept is not None:
            mask = mask & _kept_rows([kept[i] for i in members], method, mask.shape[-1]).to(device)
        values = _values(members, gold, method, sizes, device)
        all_rows += rows
        buckets.append(Bucket(place, home, mask, _gold_of(values, mask, method, dtype)))
    return PackedTasks(torch.cat(all_rows).unsqueeze(0), tuple(buckets))


def _values(
    members: Sequence[int],
    gold: Sequence[Any] | None,
    method: str,
    sizes: Sequence[int],
    device: torch.device,
) -> Tensor | None:
    """(T, M) the gold along the rows of some tasks, padded; None for unsupervised probes."""
    if gold is None or not objective_of(method).supervised:
        return None
    rows = [as_gold(gold[i], method, sizes[i], device, f"task {i}") for i in members]
    return pad_sequence(rows, batch_first=True)


def _gold_of(values: Tensor | None, mask: Tensor, method: str, dtype: torch.dtype) -> Tensor | None:
    """Gold as the losses need it: ranks among the items trained on, or the truth of each answer."""
    if values is None:
        return None
    values = values.expand(mask.shape)
    return (ranks_of(values, mask) if objective_of(method).prompt == "single" else values).to(dtype)


def _similar_sizes(sizes: Sequence[int], least: float) -> Iterator[list[int]]:
    """Groups of indices, largest first, in which no size is below `least` times the largest."""
    members: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if members and sizes[index] < least * sizes[members[0]]:
            yield members
            members = []
        members.append(index)
    yield members


def _kept_rows(kept: Sequence[np.ndarray], method: str, width: int) -> Tensor:
    """(F, T, M): the rows of the items that are kept, per task (F, N); for pairs the prompts of two such items."""
    rows = np.zeros((len(kept[0]), len(kept), width), dtype=bool)
    for place, items in enumerate(kept):
        enough = items & (items.sum(axis=1, keepdims=True) > 1)
        if objective_of(method).prompt == "pair":
            enough = np.repeat(enough[:, ordered_pairs(items.shape[1])].all(axis=-1), 2, axis=-1)
        rows[:, place, : enough.shape[1]] = enough
    return torch.as_tensor(rows)


def _without_each(count: int, method: str, device: torch.device) -> Tensor:
    """(N, 1, M): row i is False at item i, or at all answered prompts that contain item i."""
    left_out = np.eye(count, dtype=bool)
    if objective_of(method).prompt == "pair":
        pairs = ordered_pairs(count)
        left_out = np.repeat((pairs[None] == np.arange(count)[:, None, None]).any(-1), 2, axis=-1)
    return torch.as_tensor(~left_out, device=device).unsqueeze(1)
