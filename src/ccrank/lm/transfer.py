"""Moving arrays to a device and results back without waiting for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


def to_device(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Integer arrays as int64 tensors on the device, in one copy that does not wait for a GPU.

    Parameters
    ----------
    arrays
        Arrays of any shape.
    device
        Where the tensors go.
    """
    if device.type != "cuda":
        return [torch.as_tensor(np.ascontiguousarray(one), device=device) for one in arrays]
    packed = torch.from_numpy(np.concatenate([one.ravel() for one in arrays])).pin_memory()
    moved = packed.to(device, non_blocking=True)
    parts = moved.split([one.size for one in arrays])
    return [part.view(one.shape) for part, one in zip(parts, arrays, strict=True)]


def to_host(values: Tensor, store: Callable[[np.ndarray], object], waiting: list[Callable[[], None]]) -> None:
    """Have a result stored: at once from a CPU; from a GPU when `waiting` is called, after a copy that it starts now.

    Parameters
    ----------
    values
        The result.
    store
        Called with the values as an array.
    waiting
        Where the call that finishes the work is appended.
    """
    if values.device.type != "cuda":
        store(values.cpu().numpy())
        return
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(values.device))

    def finish() -> None:
        copied.synchronize()
        store(host.numpy())

    waiting.append(finish)
