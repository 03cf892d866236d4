"""Estimating the reading speed of a model on this machine."""

from __future__ import annotations

import time
from typing import Any

import torch

ATTAINED = 0.6
"""Fraction of the matmul rate that reading attains on a CPU; see docs/reading.md."""
SIZE = 768
REPEATS = 4


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a square matrix product: the best of a few runs, about 20 ms on a CPU."""
    size = SIZE if device.type == "cpu" else 4 * SIZE
    left = torch.ones(size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        float((left @ left)[0, 0])  # reading a value waits for the GPU
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def tokens_per_second(model: Any) -> float:
    """The expected reading speed: the matmul rate over two operations per parameter and token.

    Parameters
    ----------
    model
        A transformers model, on its device and in its precision. Embedding tables are looked up, not multiplied, so
        they do not count.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    parameters: int = sum(one.numel() for one in model.parameters() if id(one) not in tables)
    return ATTAINED * matmul_rate(model.device, model.dtype) / (2 * max(1, parameters))
