"""What this machine can do with a model: free memory, tokens per pass, and tokens per second."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ccrank.errors import CcrankError
from ccrank.models.products import linear
from ccrank.prompts import Piece, Prompt
from ccrank.util.files import cache_folder, remember

if TYPE_CHECKING:
    from ccrank.models.reader import Reader

FASTEST_ON_CPU = 1024  # more tokens than this per pass do not make a CPU faster and exceed its caches
MAX_ON_GPU = 32768
MIN_TOKENS = 256
MEMINFO = Path("/proc/meminfo")
UNKNOWN = 8 << 30  # bytes assumed to be available on a system that does not report them


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
    most = MAX_ON_GPU if model.device.type == "cuda" else FASTEST_ON_CPU
    return max(MIN_TOKENS, min(most, fits))


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


ATTAINED = 0.6
"""Fraction of the matmul rate that reading attains on a CPU; see docs/explanation/reading-models.md."""
SIZE = 768
REPEATS = 4
NOMINAL_RATES = {"cpu": 1e11, "cuda": 2e13}
"""Floating-point operations per second of a slow device of each kind."""


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a square matrix product: the best of a few runs, about 20 ms on a CPU."""
    size = SIZE if device.type == "cpu" else 4 * SIZE
    left = torch.ones(size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        with torch.inference_mode():
            float(linear(left, left)[0, 0])  # reading a value waits for the GPU
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def tokens_per_second(model: Any) -> float:
    """The expected reading speed: the matmul rate over two operations per parameter and token."""
    return expected_speed(_weights(model), matmul_rate(model.device, model.dtype))


def nominal_speed(model: Any) -> float:
    """As `tokens_per_second`, by the kind of device alone: the same in every run, for what results may depend on."""
    return expected_speed(_weights(model), NOMINAL_RATES.get(model.device.type, NOMINAL_RATES["cuda"]))


def _weights(model: Any) -> int:
    """The number of weights outside the embeddings."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    return sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in tables)


def expected_speed(parameters: int, rate: float) -> float:
    """Tokens per second of a model with this many weights outside its embeddings, at a `matmul_rate`."""
    return ATTAINED * rate / (2 * max(1, parameters))


SPEED_PROMPTS, SPEED_WORDS = 12, 48


def measure_speed(reader: Reader) -> dict[str, Any]:
    """Measure tokens per second on texts without a common prefix, and store it for `ccrank models list`."""
    plain = reader.with_engine(reader.engine)
    plain.cache = None
    generator = np.random.default_rng(0)
    words = np.array(["river", "stone", "music", "paper", "winter", "garden", "mother", "silver"])
    prompts = [
        Prompt((Piece(" ".join(generator.choice(words, SPEED_WORDS)) + " "), Piece("", "slot")))
        for _ in range(SPEED_PROMPTS)
    ]
    plain.read(prompts[:1], layers=[-1])  # the first pass allocates memory
    start = time.perf_counter()
    cost = plain.read(prompts[1:], layers=[-1]).cost
    seconds = time.perf_counter() - start
    speed = {
        "model": reader.name,
        "tokens_per_second": round(cost.computed_tokens / seconds, 1),
        **_where(reader),
    }
    remember(_speed_note(reader.name), json.dumps(speed))
    return speed


def known_speed(name: str, reader: Reader | None = None) -> Mapping[str, Any] | None:
    """What `measure_speed` stored for a model; None if it was never measured."""
    try:
        speed = json.loads(_speed_note(name).read_bytes())
        wanted = {"model": name, **({} if reader is None else _where(reader))}
        return speed if all(speed[key] == value for key, value in wanted.items()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _where(reader: Reader) -> dict[str, str]:
    """The device and the precision."""
    model = reader.loaded.model
    return {"device": model.device.type, "dtype": str(model.dtype).removeprefix("torch.")}


def _speed_note(name: str) -> Path:
    return cache_folder("speeds", name.replace("/", "--") + ".json")
