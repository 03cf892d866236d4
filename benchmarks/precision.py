"""How far the rankings of other precisions agree with those of float32 on a CPU, and how fast they are.

    CCRANK_DATA=… python benchmarks/precision.py [--tasks 6] [--method auto]

Kendall's τ between the orders of the default model in float32 and in bfloat16: the whole model, and its linear layers
alone with everything else in float32. `--dtype auto` would take bfloat16 on a CPU if τ were at least 0.99 on every
dataset. Seconds are of the CPU, on one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor, nn

from ccrank.api import rank_tasks
from ccrank.datasets import load_dataset
from ccrank.lm import Reader
from ccrank.ranking import Ranking
from ccrank.reader_options import ReaderOptions

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=6, help="tasks of each dataset")
    parser.add_argument("--method", default="auto")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tasks = {}
    for name in DATASETS:
        found = load_dataset(name)[:FIRST]
        tasks[name] = found[:: max(1, len(found) // arguments.tasks)][: arguments.tasks]
    plain: dict[str, list[Ranking]] = {}
    print(f"{'precision':<24}{'dataset':<14}{'CPU s':>8}{'mean τ':>8}{'least τ':>9}")
    for precision in ("float32", "bfloat16", "bfloat16 linear layers"):
        reader = Reader.open("default", ReaderOptions(dtype=precision if " " not in precision else "float32"))
        if " " in precision:
            halve_linear_layers(reader.engine.backbone.module)
        for name in DATASETS:
            start = time.process_time()
            rankings = rank_tasks(tasks[name], reader, arguments.method)
            seconds = time.process_time() - start
            taus = [
                kendalltau(one.scores, other.scores).statistic
                for one, other in zip(rankings, plain.setdefault(name, rankings), strict=True)
            ]
            print(
                f"{precision:<24}{name:<14}{seconds:>8.1f}{np.nanmean(taus):>8.3f}{np.nanmin(taus):>9.3f}",
                flush=True,
            )


def halve_linear_layers(module: nn.Module) -> None:
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, HalfLinear(child))


if __name__ == "__main__":
    main()
