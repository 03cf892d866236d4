"""How fast pairwise prompts are read, against padded batches of 32 through plain `transformers`, in one run.

    python benchmarks/reading.py [--tasks 20] [--json build/reading.json]

All sides read the same prompts on the same default model and must give the same logits. The baseline is given its best
form: prompts sorted by length, padded on the left, logits of the last position alone. It is run as users run it, and
with `torch.set_float32_matmul_precision("medium")`, which gives it the kernel that ccrank takes. "Of peak" compares the
useful work, two operations per weight of the layers and distinct token, with the rate of the fastest exact float32
product, measured right before and after. `--json` writes what `roofline.py` draws.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from ccrank.errors import CcrankError
from ccrank.models import Reader
from ccrank.models.products import fastest_product
from ccrank.prompts import Prompt, load_templates
from ccrank.reader_options import ReaderOptions
from ccrank.study.datasets import load_dataset

BATCH = 32
DATASETS = ("wikilists", "entsalience")
SHAPE = (2048, 576, 1536)
"""Rows, inner width and columns of the products that are timed: those of the default model."""


@dataclass(frozen=True)
class Row:
    """What one reader took for the prompts of one dataset."""

    dataset: str
    reader: str
    seconds: float
    cpu_seconds: float
    computed_tokens: int
    distinct_tokens: int
    passes: int
    operations_per_token: int
    of_peak: float
    """Useful work relative to the rate of products around it."""
    difference: float
    """The largest difference from the logits of ccrank in float32."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20, help="tasks of each dataset")
    parser.add_argument("--no-baseline", action="store_true", help="leave the baselines out")
    parser.add_argument("--repeats", type=int, default=3, help="how often ccrank reads; the median counts")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    arguments = parser.parse_args()
    readers = {
        dtype: Reader.open("default", ReaderOptions(device="cpu", dtype=dtype))
        for dtype in ("float32", "bfloat16")
    }
    machine = machine_rates()
    print(", ".join(f"{name} {value:.0f}" for name, value in machine.items()))
    print(f"{'dataset':<12}{'reader':<22}{'tokens':>8}{'wall s':>8}{'CPU s':>8}{'ratio':>7}{'tok/s':>7}{'of peak':>8}"
          f"{'max |Δ|':>9}")  # fmt: skip
    rows: list[Row] = []
    for name in DATASETS:
        try:
            prompts = pair_prompts(name, arguments.tasks)
        except CcrankError as error:
            print(f"{name}: left out, {error}")
            continue
        own = list(compare(name, prompts, readers, arguments.repeats, baselines=not arguments.no_baseline))
        for row in own:
            print(f"{row.dataset:<12}{row.reader:<22}{row.computed_tokens:>8,}{row.seconds:>8.1f}{row.cpu_seconds:>8.1f}"
                  f"{row.seconds / own[0].seconds:>7.1f}{row.distinct_tokens / row.seconds:>7.0f}{row.of_peak:>8.0%}"
                  f"{row.difference:>9.0e}", flush=True)  # fmt: skip
        rows += own
    if arguments.json:
        found = {"machine": machine, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def pair_prompts(dataset: str, count: int) -> list[Prompt]:
    """Every ordered pair of the first tasks of a dataset."""
    templates = load_templates()
    return [
        templates.pair(task, first, second)
        for task in load_dataset(dataset)[:count]
        for first in range(len(task.items))
        for second in range(len(task.items))
        if first != second
    ]


def compare(
    name: str, prompts: list[Prompt], readers: dict[str, Reader], repeats: int, *, baselines: bool
) -> Iterator[Row]:
    """ccrank in float32 and bfloat16, then the baseline without and with the faster kernel."""
    expected = None
    for dtype, reader in readers.items():
        operations = 2 * layer_weights(reader)
        reader.read(prompts[:50], ["Yes", "No"])  # warm-up
        timed = [timed_with_peak(lambda: reader.read(prompts, ["Yes", "No"])) for _ in range(repeats)]  # noqa: B023
        wall, cpu, peak = np.median([one[:3] for one in timed], axis=0)
        readings = timed[-1][3]
        assert readings.logits is not None
        expected = readings.logits if expected is None else expected
        cost = readings.cost
        computed, distinct = cost.computed_tokens, cost.distinct_tokens
        passes = -(-computed // reader.engine.budget)
        yield Row(name, f"ccrank, {dtype}", wall, cpu, computed, distinct, passes, operations,
                  operations * distinct / wall / peak, float(np.abs(readings.logits - expected).max()))  # fmt: skip
    if not baselines:
        return
    for label, precision in (("padded", "highest"), ("padded, medium", "medium")):
        with matmul_precision(precision):
            wall, cpu, peak, (logits, computed, passes) = timed_with_peak(
                plain_transformers(str(reader.loaded.folder), prompts)
            )
        yield Row(name, label, wall, cpu, computed, distinct, passes, operations,
                  operations * distinct / wall / peak, float(np.abs(logits - expected).max()))  # fmt: skip


def layer_weights(reader: Reader) -> int:
    """The number of weights that each token is multiplied with in the layers."""
    layers = reader.engine.backbone.layers
    modules = [
        module for layer in layers for module in layer.modules() if isinstance(module, torch.nn.Linear)
    ]
    return sum(module.weight.numel() for module in modules)


def plain_transformers(folder: str, prompts: list[Prompt]) -> Callable[[], tuple[np.ndarray, int, int]]:
    """A function that gives the logits of Yes and No in padded batches of 32, as one would write it without ccrank, the
    number of tokens and of passes."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    answers = [tokenizer(f"? {word}", add_special_tokens=False)["input_ids"][-1] for word in ("Yes", "No")]
    texts = [prompt.text.removesuffix(" _") for prompt in prompts]

    def read() -> tuple[np.ndarray, int, int]:
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        logits, tokens, starts = np.zeros((len(texts), 2), np.float32), 0, range(0, len(order), BATCH)
        with torch.inference_mode():
            for start in starts:
                part = order[start : start + BATCH]
                batch = tokenizer([texts[index] for index in part], return_tensors="pt", padding=True)
                positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
                output = model(**batch, position_ids=positions, logits_to_keep=1, use_cache=False)
                logits[part] = output.logits[:, -1, answers].numpy()
                tokens += batch["input_ids"].numel()
        return logits, tokens, len(starts)

    return read


def timed_with_peak(work: Callable[[], object]) -> tuple:
    """Wall and CPU seconds of some work, the rate of products around it, and its result."""
    before = product_rate(fastest_product())
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    # The machine's speed drifts, so the work is set against products right before and after it.
    return wall, cpu, (before + product_rate(fastest_product())) / 2, found


def machine_rates() -> dict[str, float]:
    """Threads, GFLOP/s of products and GB/s from memory: the lines of the roofline."""
    return {
        "threads": torch.get_num_threads(),
        "torch float32 GFLOP/s": product_rate(functional.linear) / 1e9,
        "fastest float32 GFLOP/s": product_rate(fastest_product()) / 1e9,
        "bfloat16 GFLOP/s": product_rate(functional.linear, torch.bfloat16) / 1e9,
        "memory GB/s": memory_rate() / 1e9,
    }


@torch.inference_mode()
def product_rate(
    product: Callable[[torch.Tensor, torch.Tensor, None], torch.Tensor],
    dtype: torch.dtype = torch.float32,
    seconds: float = 1.0,
) -> float:
    """Operations per second of products of the model's own shapes: the median."""
    rows, inner, columns = SHAPE
    states, weight = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
    rates, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(4):
            product(states, weight, None)
        rates.append(4 * 2 * rows * inner * columns / (time.perf_counter() - start))
    return float(np.median(rates))


def memory_rate() -> float:
    """Bytes per second that are read from memory: the best of a few sums over more than the caches hold."""
    values, best = torch.zeros(1 << 27), float("inf")
    for _ in range(4):
        start = time.perf_counter()
        values.sum()
        best = min(best, time.perf_counter() - start)
    return values.numel() * 4 / best


@contextmanager
def matmul_precision(chosen: str) -> Iterator[None]:
    """PyTorch's setting for the whole process, within the context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(chosen)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


if __name__ == "__main__":
    main()
