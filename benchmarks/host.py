"""CPU time per prompt of everything around the model: rendering, tokenizing, planning, packing, masks, the cache.

    python benchmarks/host.py

The model has one layer of width 8, so that what remains is the host's work; its own passes are subtracted. The
tokenizer is the default model's. One thread; the best of five repetitions.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ccrank.models import LoadedModel, Reader, ReadingCache
from ccrank.models.load.hub import find_model
from ccrank.prompts import Prompt, load_templates
from ccrank.task import Criterion, Task

SIZE = Criterion("size", "larger")
ANSWERS = ["Yes", "No"]


def main() -> None:
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(find_model("default").folder)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        max_position_embeddings=4096,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    loaded = LoadedModel("tiny", None, model, tokenizer, "causal", "random")
    print(
        f"{'µs per prompt':<22}{'render':>8}{'encode':>8}{'all but model':>15}{'new in cache':>14}{'from cache':>12}"
    )
    for name, render in prompts_by_kind(tokenizer).items():
        prompts = render()
        reader = Reader(loaded, batch_tokens=32768)
        answers = [tuple(ANSWERS)] * len(prompts)
        passes = watch(reader)
        times = [
            best(render, len(prompts)),
            best(lambda: reader.prompt_tokenizer.encode(prompts, answers), len(prompts)),  # noqa: B023
            best(lambda: reader.read(prompts, ANSWERS), len(prompts), passes),  # noqa: B023
        ]
        with tempfile.TemporaryDirectory() as folder:
            cached = Reader(loaded, batch_tokens=32768, cache=ReadingCache(Path(folder)))
            passes = watch(cached)
            times += [best(lambda: cached.read(prompts, ANSWERS), len(prompts), passes, 1) for _ in range(2)]  # noqa: B023
        widths = (8, 8, 15, 14, 12)
        print(f"{name:<22}" + "".join(f"{one:>{width}.1f}" for one, width in zip(times, widths, strict=True)))


def prompts_by_kind(tokenizer: Any) -> dict[str, Callable[[], list[Prompt]]]:
    generator, templates = np.random.default_rng(0), load_templates()
    words = sorted(
        word[1:] for word in tokenizer.get_vocab() if word[0] == "Ġ" and word[1:].isalpha() and len(word) > 4
    )
    names = [f"{words[a]} {words[b]}" for a, b in generator.integers(0, len(words), (5000, 2))]
    single = Task(SIZE, tuple(dict.fromkeys(names))[:4096])
    short = [Task(SIZE, tuple(names[10 * n : 10 * n + 10]), id=str(n)) for n in range(40)]
    long = [
        Task(SIZE, tuple(names[8 * n : 8 * n + 8]), " ".join(generator.choice(words, 300)), id=str(n))
        for n in range(60)
    ]

    def pairs(tasks: list[Task]) -> list[Prompt]:
        return [
            templates.pair(task, a, b)
            for task in tasks
            for a in range(len(task.items))
            for b in range(len(task.items))
            if a != b
        ]

    return {
        "single prompts": lambda: [templates.single(single, index) for index in range(len(single.items))],
        "pairs": lambda: pairs(short),
        "pairs after a context": lambda: pairs(long),
    }


def watch(reader: Reader) -> list[float]:
    """Collects the CPU time of the model's passes."""
    times: list[float] = []
    original = reader.engine.backbone.rows

    def rows(*arguments: Any) -> Any:
        start = time.process_time()
        found = original(*arguments)
        times.append(time.process_time() - start)
        return found

    reader.engine.backbone.rows = rows  # type: ignore[method-assign]
    return times


def best(
    work: Callable[[], object], count: int, passes: list[float] | None = None, repeats: int = 5
) -> float:
    """Microseconds per prompt, without the model's passes."""
    times = []
    for _ in range(repeats):
        if passes is not None:
            passes.clear()
        start = time.process_time()
        work()
        times.append(time.process_time() - start - sum(passes or ()))
    return min(times) / count * 1e6


if __name__ == "__main__":
    main()
