"""Float32 matrix products on a CPU through the fastest kernel that is float32 in truth.

PyTorch multiplies float32 matrices by MKL, which does not use the full width of AMD's vector units; oneDNN, which is
part of PyTorch too, does. Which is faster is measured once for each machine. oneDNN is called directly: the switch that
PyTorch offers (`set_float32_matmul_precision`) holds for the whole process, and allows products in bfloat16 where the
CPU has them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccrank.util.files import cache_folder, remember

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""States (…, d), weights (n, d) and perhaps a bias (n,) to (…, n)."""

MAX_ERROR = 1e-5
"""Of the largest value. Products in float32 are at 1e-6; TF32 would be at 5e-4 and bfloat16 at 4e-3."""
MIN_ADVANTAGE = 1.1  # oneDNN is used if it is faster by this factor: chance must not decide between equals
SHAPE = (256, 768, 768)
REPEATS = 7
CPU_INFO = Path("/proc/cpuinfo")


class UninitialisedLinear(nn.Linear):
    """A matrix whose weights are given later, so that no random ones are drawn."""

    def reset_parameters(self) -> None:
        """Nothing to do."""


class FastLinear(nn.Linear):
    """A linear layer of a model that is only read: it multiplies by `fastest_product`."""

    def forward(self, input: Tensor) -> Tensor:
        """States (…, d) to (…, n)."""
        return linear(input, self.weight, self.bias)


def use_fastest_products(model: nn.Module) -> None:
    """Let the linear layers of a model on a CPU use the fastest kernel; subclasses compute something else."""
    for module in model.modules():
        if type(module) in (nn.Linear, UninitialisedLinear):
            module.__class__ = FastLinear


def linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """states · weightᵀ + bias, of any precision and on any device."""
    given = [tensor for tensor in (states, weight, bias) if tensor is not None]
    plain = all((tensor.dtype, tensor.device.type) == (torch.float32, "cpu") for tensor in given)
    # oneDNN reads a bias as if it were contiguous, and takes no empty matrices.
    simple = bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous())
    if not plain or not simple or weight.ndim != 2 or not weight.numel() or torch.is_grad_enabled():
        return functional.linear(states, weight, bias)
    return fastest_product()(states, weight, bias)


@cache
def fastest_product() -> Product:
    """The fastest kernel of those that are exact to float32 here."""
    return _onednn if _is_exact(_onednn) and _is_faster() else functional.linear


def _onednn(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(states, weight, bias, "none", [], "")
    return product


@torch.inference_mode()
def _is_exact(product: Product) -> bool:
    """Whether products have the precision of float32, with and without a bias; False if the kernel is not there."""
    generator = torch.Generator().manual_seed(0)
    states, weight, bias = (
        torch.randn(shape, generator=generator) for shape in ((48, 576), (192, 576), (192,))
    )
    exact = states.double() @ weight.double().T
    try:
        errors = [
            (product(states, weight, added).double() - (exact if added is None else exact + bias)).abs().max()
            for added in (None, bias)
        ]
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return float(max(errors)) <= MAX_ERROR * float(exact.abs().max())


def _is_faster() -> bool:
    """Whether oneDNN is the faster kernel on this machine: measured once, then kept in the cache."""
    note = cache_folder("kernels", hashlib.sha256(_circumstances().encode()).hexdigest()[:32] + ".json")
    with suppress(OSError, ValueError, KeyError, TypeError):  # not measured yet, or damaged
        return bool(json.loads(note.read_bytes())["faster"])
    seconds = _race()
    faster = seconds["torch"] > MIN_ADVANTAGE * seconds["onednn"]
    remember(note, json.dumps({"faster": faster, "seconds": seconds, "on": _circumstances()}))
    return faster


@torch.inference_mode()
def _race() -> dict[str, float]:
    """Kernel → seconds of one product: the best of several, in turns."""
    kernels: dict[str, Product] = {"torch": functional.linear, "onednn": _onednn}
    rows, inner, columns = SHAPE
    states, weight = torch.ones(rows, inner), torch.ones(columns, inner)
    best = dict.fromkeys(kernels, float("inf"))
    for _ in range(REPEATS):
        for name, product in kernels.items():
            start = time.perf_counter()
            product(states, weight, None)
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _circumstances() -> str:
    """What the race depends on: the CPU, the version of PyTorch and the number of threads."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    wanted = ("vendor_id", "cpu family", "model", "stepping")
    processor = [line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() in wanted]
    name = " ".join(processor[: len(wanted)]) or f"{platform.machine()} {platform.processor()}"
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{name}, {capability}, torch {torch.__version__}, {torch.get_num_threads()} threads"
