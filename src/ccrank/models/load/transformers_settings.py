"""Weights of fewer bits, through the packages that `transformers` supports."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from ccrank.errors import CcrankError

KINDS = ("no", "int8", "int4")
PACKAGES = {"torchao": "torchao", "bitsandbytes": "bitsandbytes", "optimum.quanto": "optimum-quanto"}
"""Module → package, in order of preference."""
ON_CUDA = ("bitsandbytes", "torchao", "optimum.quanto")
"""The order on a CUDA device."""
GROUP = 32
"""Weights of 4 bits that share a scale, where torchao has no kernel of its own."""


def quantization(kind: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
    """The configuration that `transformers` takes, and its name in a model's identity; (None, "") for "no".

    Parameters
    ----------
    kind
        "no", "int8" or "int4".
    device
        The model's device; on CUDA devices bitsandbytes is preferred.
    dtype
        The precision of what is not quantized.
    """
    if kind not in KINDS:
        raise CcrankError(f"unknown quantization {kind!r}; choose {', '.join(KINDS)}")
    if kind == "no":
        return None, ""
    usable = ON_CUDA if device.type == "cuda" else tuple(PACKAGES)
    found = next((name for name in usable if _installed(name)), None)
    if found is None:
        names = " or ".join(PACKAGES[name] for name in usable)
        raise CcrankError(
            f"--quantize {kind} on {device.type} needs the package {names}: pip install {PACKAGES[usable[0]]}"
        )
    return _configuration(found, kind, device, dtype), f"{kind}-{PACKAGES[found]}"


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _configuration(module: str, kind: str, device: torch.device, dtype: torch.dtype) -> Any:
    import transformers

    if module == "bitsandbytes":
        if kind == "int8":
            return transformers.BitsAndBytesConfig(load_in_8bit=True)
        return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype)
    if module == "torchao":
        kinds = import_module("torchao.quantization")
        if kind == "int8":
            return transformers.TorchAoConfig(kinds.Int8WeightOnlyConfig())
        if device.type == "cuda":
            return transformers.TorchAoConfig(kinds.Int4WeightOnlyConfig())
        groups = import_module("torchao.quantization.granularity").PerGroup(GROUP)
        return transformers.TorchAoConfig(
            kinds.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=groups)  # type: ignore[attr-defined]
        )
    return transformers.QuantoConfig(weights=kind)
