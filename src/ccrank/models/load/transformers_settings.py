"""How `transformers` loads a model: the device, the precision, weights of fewer bits, and no output."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from ccrank.errors import CcrankError

DEVICE_MAPS = ("no", "auto", "balanced", "sequential")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def placement(device_map: str, where: torch.device, quantized: bool) -> Any:
    """What `transformers` takes as `device_map`; None if the model is moved to its device after loading."""
    if device_map not in DEVICE_MAPS:
        raise CcrankError(f"unknown device map {device_map!r}; choose {', '.join(DEVICE_MAPS)}")
    placed = {"": where} if quantized else None  # quantized weights cannot be moved
    return placed if device_map == "no" else device_map


def choose_device(device: str) -> torch.device:
    """The requested device; "auto" is a CUDA GPU, else Apple's GPU, else the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise CcrankError(
            f"the device {device!r} cannot be used: {str(error).splitlines()[0]}; choose another, such as cpu, or auto"
        ) from None
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The requested precision; "auto" is float32 on a CPU, bfloat16 on a GPU."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise CcrankError(f"unknown precision {dtype!r}; choose auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


KINDS = ("no", "int8", "int4")
PACKAGES = {"torchao": "torchao", "bitsandbytes": "bitsandbytes", "optimum.quanto": "optimum-quanto"}
"""Module → package, in order of preference."""
ON_CUDA = ("bitsandbytes", "torchao", "optimum.quanto")  # the order on a CUDA device
GROUP = 32  # weights of 4 bits that share a scale, where torchao has no kernel of its own


def quantization(kind: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
    """The configuration that `transformers` takes, and its name in a model's identity; (None, "") for "no"."""
    if kind not in KINDS:
        raise CcrankError(f"unknown quantization {kind!r}; choose {', '.join(KINDS)}")
    if kind == "no":
        return None, ""
    usable = ON_CUDA if device.type == "cuda" else tuple(PACKAGES)
    package = next((name for name in usable if _installed(name)), None)
    if package is None:
        names = " or ".join(PACKAGES[name] for name in usable)
        raise CcrankError(
            f"--quantize {kind} on {device.type} needs the package {names}: pip install {PACKAGES[usable[0]]}"
        )
    return _configuration(package, kind, device, dtype), f"{kind}-{PACKAGES[package]}"


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _configuration(module: str, kind: str, device: torch.device, dtype: torch.dtype) -> Any:
    import transformers

    if module == "optimum.quanto":
        return transformers.QuantoConfig(weights=kind)
    if module == "bitsandbytes":
        if kind == "int8":
            return transformers.BitsAndBytesConfig(load_in_8bit=True)
        return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype)
    kinds = import_module("torchao.quantization")
    if kind == "int8":
        chosen = kinds.Int8WeightOnlyConfig()
    elif device.type == "cuda":
        chosen = kinds.Int4WeightOnlyConfig()
    else:
        groups = import_module("torchao.quantization.granularity").PerGroup(GROUP)
        chosen = kinds.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=groups)  # type: ignore[attr-defined]
    return transformers.TorchAoConfig(chosen)


_ONE_AT_A_TIME = threading.RLock()
"""A load changes the whole process: torch's functions of initialization, the verbosity, stderr. Two threads at once
restore what the other has set, and models made later have weights that nothing initialized."""


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Load with `transformers`, one thread at a time, without its progress bars and warnings; both return on exit."""
    from transformers.utils import logging

    # Some bars are drawn by tqdm directly and have no switch.
    with _ONE_AT_A_TIME, redirect_stderr(io.StringIO()):
        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()
