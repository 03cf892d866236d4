"""How far the rankings of other precisions agree with those of float32 on a CPU, and how fast they are.

    CCRANK_DATA=… python benchmarks/precision.py [--tasks 6] [--method auto]
    CCRANK_DATA=… python benchmarks/precision.py --only int8 --datasets scalaradj,everyday
    CCRANK_DATA=… python benchmarks/precision.py --only packages     # those of --quantize that are installed

Kendall's τ between the orders of the default model in float32 and in others: bfloat16 in the whole model, or in its
linear layers alone; and integers of 8 bits in the linear layers, for weights alone (products in float32), for weights
and inputs with one scale for all inputs of a product (`torch.ao.quantization.quantize_dynamic`), and with one scale for
each token. "gold τ" is the mean τ with gold values. Another precision would be the default on a CPU if τ were at least
0.99 on every dataset. Tokens per second of CPU time, on one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor, nn

from ccrank.api import rank_tasks
from ccrank.models import Reader
from ccrank.models.products import FastLinear
from ccrank.ranking import Ranking
from ccrank.reader_options import ReaderOptions
from ccrank.study.datasets import load_dataset

DATASETS = ("reviews", "scalaradj", "wikilists", "entsalience", "everyday")
FIRST = 400
"""Tasks are taken evenly from the first ones."""


class HalfLinear(nn.Module):
    """A linear layer that multiplies in bfloat16 and takes and returns float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight.data.bfloat16()
        self.bias = None if linear.bias is None else linear.bias.data.bfloat16()

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states.bfloat16(), self.weight, self.bias).float()


class TokenScaledLinear(nn.Module):
    """A linear layer that multiplies integers of 8 bits: a scale for each output's weights and for each token."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.scale = linear.weight.data.abs().amax(1) / 127
        self.weight = (linear.weight.data / self.scale[:, None]).round().to(torch.int8).T.contiguous()
        self.bias = linear.bias

    def forward(self, states: Tensor) -> Tensor:
        rows = states.reshape(-1, states.shape[-1])
        scale = rows.abs().amax(1, keepdim=True).clamp_min(1e-9) / 127
        products = torch._int_mm((rows / scale).round().to(torch.int8), self.weight)
        found = products.float() * (scale * self.scale)
        return (found if self.bias is None else found + self.bias).reshape(*states.shape[:-1], -1)


def rounded_weights(linear: nn.Linear) -> nn.Module:
    """Weights as integers of 8 bits would have them, multiplied in float32."""
    scale = linear.weight.data.abs().amax(1, keepdim=True) / 127
    return plain_linear(linear, (linear.weight.data / scale).round() * scale)


def batch_scaled(linear: nn.Linear) -> nn.Module:
    """PyTorch's own dynamic quantization, which has one scale for all inputs."""
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    torch.backends.quantized.engine = "onednn"  # the fastest of them
    holder = nn.Sequential(plain_linear(linear, linear.weight.data))
    quantized: nn.Module = quantize_dynamic(holder, {nn.Linear: per_channel_dynamic_qconfig})[0]
    return quantized


def plain_linear(linear: nn.Linear, weight: Tensor) -> nn.Linear:
    made = FastLinear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    made.weight = nn.Parameter(weight, requires_grad=False)
    if linear.bias is not None:
        made.bias = nn.Parameter(linear.bias.data, requires_grad=False)
    return made


LINEAR: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "bfloat16 linear layers": HalfLinear,
    "int8 weights alone": rounded_weights,
    "int8, a scale for each token": TokenScaledLinear,
    "int8, one scale for all": batch_scaled,
}
"""Precision of the linear layers alone → what replaces each."""


def precisions(only: str | None) -> list[str]:
    """Those to compare with float32."""
    if only == "packages":
        return ["quantize int8", "quantize int4"]
    every = ["bfloat16", *LINEAR]
    return [name for name in every if only is None or name.startswith(only)]


def open_as(precision: str) -> Reader:
    """The default model in a precision."""
    if precision.startswith("quantize "):
        return Reader.open(
            "default", ReaderOptions(dtype="float32", quantize=precision.split()[1], device="cpu")
        )
    if precision not in LINEAR:
        return Reader.open("default", ReaderOptions(dtype=precision, device="cpu"))
    reader = Reader.open("default", ReaderOptions(dtype="float32", device="cpu"))
    replace_linear_layers(reader.engine.backbone.module, LINEAR[precision])
    return reader


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=6, help="tasks of each dataset")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--only", help="the beginning of the precisions' names, or packages")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tasks = {}
    for name in arguments.datasets.split(","):
        found = load_dataset(name)[:FIRST]
        tasks[name] = found[:: max(1, len(found) // arguments.tasks)][: arguments.tasks]
    plain: dict[str, list[Ranking]] = {}
    print(f"{'precision':<30}{'dataset':<14}{'tokens/s':>9}{'mean τ':>8}{'least τ':>9}{'gold τ':>8}")
    for precision in ("float32", *precisions(arguments.only)):
        reader = open_as(precision)
        for name, own in tasks.items():
            before, start = reader.spent.computed_tokens, time.process_time()
            rankings = rank_tasks(own, reader, arguments.method)
            rate = (reader.spent.computed_tokens - before) / (time.process_time() - start)
            taus = [
                kendalltau(one.scores, other.scores).statistic
                for one, other in zip(rankings, plain.setdefault(name, rankings), strict=True)
            ]
            gold = [
                kendalltau(ranking.scores, task.values).statistic
                for ranking, task in zip(rankings, own, strict=True)
            ]
            print(
                f"{precision:<30}{name:<14}{rate:>9.0f}{np.nanmean(taus):>8.3f}{np.nanmin(taus):>9.3f}"
                f"{np.nanmean(gold):>8.3f}",
                flush=True,
            )


@torch.inference_mode()
def replace_linear_layers(module: nn.Module, made: Callable[[nn.Linear], nn.Module]) -> None:
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, made(child))


if __name__ == "__main__":
    main()
