"""The number of tokens per forward pass."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ccrank.errors import CcrankError

FASTEST_ON_CPU = 1024
"""More tokens than this per pass do not make a CPU faster and exceed its caches."""
MOST_ON_GPU = 32768
LEAST = 256
MEMINFO = Path("/proc/meminfo")
UNKNOWN = 8 << 30
"""Bytes assumed to be available on a system that does not report them."""


def token_budget(batch_tokens: str | int, model: Any) -> int:
    """The given number of tokens; for "auto" what fits in half of the available memory and the device can use."""
    if batch_tokens != "auto":
        try:
            budget = int(batch_tokens)
        except (TypeError, ValueError):
            raise CcrankError(
                f"--batch-tokens must be 'auto' or a number of tokens, not {batch_tokens!r}"
            ) from None
        if budget < 16:
            raise CcrankError(f"--batch-tokens must be at least 16, got {budget}")
        return budget
    fits = int(available_memory(model.device) / 2 / bytes_per_token(model))
    most = MOST_ON_GPU if model.device.type == "cuda" else FASTEST_ON_CPU
    return max(LEAST, min(most, fits))


def bytes_per_token(model: Any) -> int:
    """A conservative estimate of the memory that one token needs inside a layer, including its share of the mask."""
    config = model.config
    width = int(getattr(config, "hidden_size", 0) or config.d_model)
    inner = int(getattr(config, "intermediate_size", 0) or getattr(config, "d_ff", 0) or 4 * width)
    size = torch.finfo(model.dtype).bits // 8
    return int(size * (16 * width + 4 * inner) + 8 * 2048)


def available_memory(device: torch.device) -> int:
    """Bytes that can still be used on the device, among them those in which Linux keeps copies of files."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        stated = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        return int(stated.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):  # not Linux
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf, macOS lacks this name
        return UNKNOWN
