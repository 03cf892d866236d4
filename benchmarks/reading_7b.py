"""Reading speed of a model of 7B shape on a GPU: prefix tree against padded batches and one by one, in one run.

    python benchmarks/reading_7b.py [--tasks 8] [--tokenizer FOLDER]

Weights are random, which changes no operation count. Each task is 8 items' ordered pairs behind 400 tokens of context.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
import transformers

from ccrank.models import LoadedModel, Reader
from ccrank.models.load.hub import find_model
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task

NAMES = ("Russia", "Canada", "Brazil", "Chad", "Monaco", "Peru", "India", "Norway")
WORDS = (
    "the",
    "river",
    "council",
    "north",
    "market",
    "paper",
    "winter",
    "station",
    "garden",
    "bridge",
    "music",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument(
        "--tokenizer", default=None, help="a folder with a tokenizer; else the default model's"
    )
    parser.add_argument("--layers", type=int, default=32)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        arguments.tokenizer or find_model("default").folder
    )
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=4096, intermediate_size=11008, num_hidden_layers=arguments.layers,
        num_attention_heads=32, max_position_embeddings=4096, dtype="bfloat16",
    )  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    loaded = LoadedModel("llama-7b-shape", None, model, tokenizer, "causal", "random")
    generator = np.random.default_rng(0)
    tasks = []
    for number in range(arguments.tasks):
        text = " ".join(generator.choice(WORDS, 420))
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:400]
        tasks.append(Task(Criterion("size", "larger"), NAMES, tokenizer.decode(ids), id=str(number)))
    templates = load_templates()
    prompts = [templates.pair(task, a, b) for task in tasks for a in range(8) for b in range(8) if a != b]
    left = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(4096, 11008, device="cuda", dtype=torch.bfloat16)
    timed(lambda: [left @ right for _ in range(5)])  # warm-up
    peak = 20 * 2 * 8192 * 4096 * 11008 / timed(lambda: [left @ right for _ in range(20)])
    weights = sum(parameter.numel() for parameter in model.model.layers.parameters())
    print(f"bf16 matrix products at {peak / 1e12:.0f} TFLOP/s; {weights / 1e9:.1f}B weights in the layers")
    answers = {}
    print("path       prompts   tokens computed  seconds  tasks/s  TFLOP/s of peak")
    for path, budget in (("tree", 32768), ("padded", 16384), ("one", 4096)):
        few = prompts if path != "one" else prompts[:56]
        reader = Reader(loaded, path=path, batch_tokens=budget)
        reader.read(few[:56], ["Yes", "No"])  # warm-up
        seconds = timed(lambda: answers.__setitem__(path, reader.read(few, ["Yes", "No"])))  # noqa: B023
        cost = answers[path].cost
        useful = 2 * weights * cost.computed_tokens / seconds
        print(f"{path:<10}{cost.prompts:>8,}{cost.prompt_tokens:>9,}{cost.computed_tokens:>9,}{seconds:>9.2f}"
              f"{cost.prompts / 56 / seconds:>9.2f}{useful / 1e12:>9.0f}{useful / peak:>8.0%}")  # fmt: skip
    worst = max(np.abs(answers["tree"].logits - answers["padded"].logits).max(), 0)
    print(
        f"tree and padded differ by at most {worst:.3f} (bf16, logits' deviation {answers['tree'].logits.std():.3f})"
    )


def timed(work: object) -> float:
    assert callable(work)
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
