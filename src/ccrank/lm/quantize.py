"""Weights of fewer bits, through the packages that `transformers` supports."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from ccrank.errors import CcrankError

KINDS = ("no", "int8", "int4")
PACKAGES = {"bitsandbytes": "bitsandbytes", "torchao": "torchao", "optimum": "optimum-quanto"}
"""Module → package, in order of preference."""


def quantization(kind: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
    """The configuration that `transformers` takes, and its name in a model's identity; (None, "") for "no".

    Parameters
    ----------
    kind
        "no", "int8" or "int4".
    device
        The model's device; bitsandbytes is used on CUDA devices only.
    dtype
        The precision of what is not quantized.
    """
    if kind not in KINDS:
        raise CcrankError(f"unknown quantization {kind!r}; choose {', '.join(KINDS)}")
    if kind == "no":
        return None, ""
    usable = [name for name in PACKAGES if name != "bitsandbytes" or device.type == "cuda"]
    found = next((name for name in usable if find_spec(name) is not None), None)
    if found is None:
        names = " or ".join(PACKAGES[name] for name in usable)
        raise CcrankError(
            f"--quantize {kind} on {device.type} needs the package {names}: pip install {PACKAGES[usable[0]]}"
        )
    return _configuration(found, kind, dtype), f"{kind}-{PACKAGES[found]}"


def _configuration(module: str, kind: str, dtype: torch.dtype) -> Any:
    import transformers

    if module == "bitsandbytes":
        if kind == "int8":
            return transformers.BitsAndBytesConfig(load_in_8bit=True)
        return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype)
    if module == "torchao":
        kinds = import_module("torchao.quantization")
        name = "Int8WeightOnlyConfig" if kind == "int8" else "Int4WeightOnlyConfig"
        return transformers.TorchAoConfig(getattr(kinds, name)())
    return transformers.QuantoConfig(weights=kind)
