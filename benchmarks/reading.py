"""How fast pairwise prompts are read, against padded batches of 32 through plain `transformers`, in one run.

    python benchmarks/reading.py [--tasks 20]

Both sides read the same prompts on the same default model and must give the same logits. The baseline is given its
best form: prompts sorted by length, padded on the left, logits of the last position alone. The last column compares the
useful work, two operations per weight of the layers and distinct token, with the matrix-product rate measured right
before and after.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ccrank.errors import CcrankError
from ccrank.models import Reader
from ccrank.prompts import load_templates
from ccrank.study.datasets import load_dataset

BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20, help="tasks of each dataset")
    parser.add_argument("--no-baseline", action="store_true", help="leave the baseline out")
    parser.add_argument("--repeats", type=int, default=3, help="how often ccrank reads; the median counts")
    arguments = parser.parse_args()
    reader = Reader.open("default")
    weights = sum(
        module.weight.numel()
        for layer in reader.engine.backbone.layers
        for module in layer.modules()
        if isinstance(module, torch.nn.Linear)
    )
    print(f"{torch.get_num_threads()} threads, fp32 matrix products at {matmul_rate() / 1e9:.0f} GFLOP/s")
    print(f"{'dataset':<12}{'prompts':>8}{'tokens':>9}{'distinct':>9}{'plain s':>9}{'ccrank s':>9}{'ratio':>7}"
          f"{'tok/s':>7}{'of peak':>8}{'max |Δ|':>9}")  # fmt: skip
    for name in ("wikilists", "entsalience"):
        try:
            tasks = load_dataset(name)[: arguments.tasks]
        except CcrankError as error:
            print(f"{name}: left out, {error}")
            continue
        templates = load_templates()
        prompts = [
            templates.pair(task, first, second)
            for task in tasks
            for first in range(len(task.items))
            for second in range(len(task.items))
            if first != second
        ]
        reader.read(prompts[:50], ["Yes", "No"])  # warm-up
        times, shares = [], []
        for _ in range(arguments.repeats):
            before = matmul_rate()
            start = time.perf_counter()
            readings = reader.read(prompts, ["Yes", "No"])
            times.append(time.perf_counter() - start)
            useful = 2 * weights * readings.cost.distinct_tokens / times[-1]
            # The machine's speed drifts, so each reading is set against products right before and after it.
            shares.append(2 * useful / (before + matmul_rate()))
        ours, share = float(np.median(times)), float(np.median(shares))
        plain, baseline = readings.logits, float("nan")
        if not arguments.no_baseline:
            plain, baseline = plain_transformers(str(reader.loaded.folder), prompts)
        cost = readings.cost
        rate = cost.distinct_tokens / ours
        assert readings.logits is not None
        print(f"{name:<12}{cost.prompts:>8,}{cost.prompt_tokens:>9,}{cost.distinct_tokens:>9,}{baseline:>9.1f}"
              f"{ours:>9.1f}{baseline / ours:>7.1f}{rate:>7.0f}{share:>8.0%}"
              f"{np.abs(readings.logits - plain).max():>9.1e}")  # fmt: skip


def plain_transformers(folder: str, prompts: list) -> tuple[np.ndarray, float]:
    """The logits of Yes and No in padded batches of 32, as one would write it without ccrank; seconds after loading."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    began = time.perf_counter()
    answers = [tokenizer(f"? {word}", add_special_tokens=False)["input_ids"][-1] for word in ("Yes", "No")]
    texts = [prompt.text.removesuffix(" _") for prompt in prompts]
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    logits = np.zeros((len(texts), 2), np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            batch = tokenizer([texts[index] for index in part], return_tensors="pt", padding=True)
            positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
            output = model(**batch, position_ids=positions, logits_to_keep=1, use_cache=False)
            logits[part] = output.logits[:, -1, answers].numpy()
    return logits, time.perf_counter() - began


def matmul_rate(seconds: float = 1.0) -> float:
    """Floating-point operations per second of float32 matrix products of the model's own shapes: the median."""
    left, right = torch.randn(2048, 1536), torch.randn(1536, 576)
    rates, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(4):
            left @ right
        rates.append(4 * 2 * 2048 * 1536 * 576 / (time.perf_counter() - start))
    return float(np.median(rates))


if __name__ == "__main__":
    main()
