"""Speed on a CUDA device: short prompts, pairs behind a context, one list, probes; and that every path agrees.

    python benchmarks/gpu.py [--rows short,list,probes,pairs,memory]

Weights are random, which changes no operation count, and the tokenizer is trained on made-up words, so nothing is
downloaded. Every comparison asserts equality within the precision of bfloat16 before a time is printed. Rates are
relative to matrix products of the model's own shapes, measured in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ccrank.api import rank_tasks
from ccrank.methods.probing.fits import fit_each
from ccrank.models import LoadedModel, Reader
from ccrank.models.engine.plan import Wish
from ccrank.prompts import Prompt, load_templates
from ccrank.task import Criterion, Task

NAMES = ("Russia", "Canada", "Brazil", "Chad", "Monaco", "Peru", "India", "Norway")
PROBES = ("ccs-pair", "ccs", "margin", "triplet", "ordreg")
GENERATOR = np.random.default_rng(0)
ANSWERS = ["Yes", "No"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="short,list,probes,pairs,memory", help="what to measure")
    parser.add_argument("--items", type=int, default=40_000, help="short prompts")
    parser.add_argument("--tasks", type=int, default=128, help="tasks of pairs behind a context")
    parser.add_argument("--layers", type=int, default=32, help="layers of the 7B shape")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}"
    )
    rows = arguments.rows.split(",")
    tokenizer = made_up_tokenizer()
    if {"short", "list"} & set(rows):
        small = loaded_of(tokenizer, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                          num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True)  # fmt: skip
        if "short" in rows:
            short_prompts(small, arguments.items)
        if "list" in rows:
            one_list(small)
        del small
    if "probes" in rows:
        probes()
    if {"pairs", "memory"} & set(rows):
        torch.cuda.empty_cache()
        large = loaded_of(tokenizer, hidden_size=4096, intermediate_size=11008,
                          num_hidden_layers=arguments.layers, num_attention_heads=32)  # fmt: skip
        prompts = pairs_behind_contexts(tokenizer, arguments.tasks)
        if "pairs" in rows:
            pairs(large, prompts)
        if "memory" in rows:
            out_of_memory(large, prompts)


def short_prompts(loaded: LoadedModel, count: int) -> None:
    """Single prompts of about 12 tokens, from texts to scores."""
    templates, reader = load_templates(), Reader(loaded)
    warm = Task(Criterion("size", "larger"), made_up_items(8192))
    read_singles(templates, reader, warm)
    rates = []
    for _ in range(3):
        task = Task(Criterion("size", "larger"), made_up_items(count))  # new items: nothing is remembered
        start = time.perf_counter()
        readings = read_singles(templates, reader, task)
        torch.cuda.synchronize()
        rates.append(count / (time.perf_counter() - start))
    prompts = [templates.single(task, index) for index in range(4096)]
    rendering = timed(lambda: [templates.single(task, index) for index in range(4096)])
    host = timed(lambda: reader._prepare(prompts, [tuple(ANSWERS)] * len(prompts), Wish()))
    few = GENERATOR.choice(count, 64, replace=False).tolist()
    one = Reader(loaded, path="one").read([templates.single(task, index) for index in few], ANSWERS)
    difference = agree(readings.logits[few], one.logits, "short prompts, tree and one by one")
    cost = readings.cost
    print(
        f"short prompts: {max(rates):,.0f} items/s of {count:,} "
        f"({cost.prompt_tokens / count:.1f} tokens each, {cost.distinct_tokens:,} distinct); "
        "rendering takes "
        f"{rendering / len(prompts) * 1e6:.1f} and preparing {host / len(prompts) * 1e6:.1f} µs a prompt; "
        f"largest difference {difference:.3f}"
    )


def read_singles(templates: Any, reader: Reader, task: Task) -> Any:
    return reader.read([templates.single(task, index) for index in range(len(task.items))], ANSWERS)


def one_list(loaded: LoadedModel) -> None:
    """One list of 8 names by `auto`, after start-up, with and without replayed passes."""
    task = Task(Criterion("size", "larger"), NAMES)
    scores = {}
    for name in ("plain passes", "CUDA graphs"):
        reader = Reader(loaded)
        assert reader.engine.graphs is not None
        reader.engine.graphs.enabled = name != "plain passes"
        rank_tasks([task], reader)
        rank_tasks([task], reader)  # the second time records, the third replays
        passes: list[int] = []
        hook = loaded.model.model.register_forward_pre_hook(lambda *_: passes.append(1))  # noqa: B023
        times = []
        for _ in range(10):
            start = time.perf_counter()
            scores[name] = rank_tasks([task], reader)[0].scores
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        hook.remove()
        used = name == "plain passes" or bool(reader.engine.graphs._graphs)
        print(
            f"one list of 8 by auto, {name}: {np.median(times):.3f} s, {len(passes) / 10:.0f} eager passes"
            + ("" if used else " (recording failed: plain passes were used)")
        )
    agree(scores["plain passes"], scores["CUDA graphs"], "scores with and without graphs")


def probes() -> None:
    """All five probes, 5 seeds, 1,000 tasks of 10 items, width 4096."""
    total = 0.0
    for method in PROBES:
        shape = (90, 2, 4096) if method == "ccs-pair" else (10, 4096)
        states = [GENERATOR.random(shape, dtype=np.float32) for _ in range(1000)]
        fit_each(states[:50], method, seeds=range(5), device="cuda")
        seconds = timed(lambda: fit_each(states, method, seeds=range(5), device="cuda"))  # noqa: B023
        total += seconds
        print(f"probe {method}: {seconds:.2f} s")
    print(f"all five probes: {total:.2f} s")


def pairs(loaded: LoadedModel, prompts: list[Prompt]) -> None:
    """The 56 ordered pairs of 8 items behind 400 tokens of context."""
    peak = matmul_rate()
    weights = sum(parameter.numel() for parameter in loaded.model.model.layers.parameters())
    reader = Reader(loaded, path="tree")
    reader.read(prompts[:448], ANSWERS)
    found: dict[str, Any] = {}
    seconds = min(timed(lambda: found.__setitem__("tree", reader.read(prompts, ANSWERS))) for _ in range(2))
    cost = found["tree"].cost
    useful = 2 * weights * cost.distinct_tokens / seconds
    padded = Reader(loaded, path="padded", batch_tokens=16384).read(prompts[:112], ANSWERS)
    difference = agree(found["tree"].logits[:112], padded.logits, "pairs, tree and padded")
    print(
        f"7B pairs: {len(prompts) / 56 / seconds:.1f} tasks/s "
        f"({seconds:.2f} s for {len(prompts) // 56} tasks), "
        f"{useful / 1e12:.0f} of {peak / 1e12:.0f} TFLOP/s ({useful / peak:.0%}); "
        f"largest difference from padded {difference:.3f}"
    )


def out_of_memory(loaded: LoadedModel, prompts: list[Prompt]) -> None:
    """Too large a budget is halved, and the readings are the same."""
    plain = Reader(loaded, path="padded", batch_tokens=8192).read(prompts[:224], ANSWERS).logits
    torch.cuda.empty_cache()
    held = torch.cuda.memory_allocated()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (held + (3 << 30)) / total))
    try:
        reader = Reader(loaded, path="padded", batch_tokens=1 << 17)
        tight = reader.read(prompts[:224], ANSWERS).logits
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert reader.engine.halvings > 0, "memory did not run out"
    agree(tight, plain, "after running out of memory")
    print(
        f"out of memory: the budget was halved {reader.engine.halvings} times, to {reader.engine.budget:,} tokens"
    )


def agree(ours: np.ndarray, theirs: np.ndarray, what: str) -> float:
    """The largest difference, which must be small beside the values' own spread."""
    difference, spread = float(np.abs(ours - theirs).max()), float(np.std(theirs))
    assert difference < 0.25 * spread + 0.05, f"{what} differ by {difference} at a spread of {spread}"
    return difference


def pairs_behind_contexts(tokenizer: Any, count: int) -> list[Prompt]:
    templates, prompts = load_templates(), []
    for number in range(count):
        text = " ".join(made_up_items(250))
        context = tokenizer.decode(tokenizer(text)["input_ids"][:400])
        task = Task(Criterion("size", "larger"), NAMES, context, id=str(number))
        prompts += [templates.pair(task, a, b) for a in range(8) for b in range(8) if a != b]
    return prompts


def made_up_items(count: int) -> tuple[str, ...]:
    """Different names of two made-up words."""
    names: dict[str, None] = {}
    while len(names) < count:
        pair = GENERATOR.choice(len(WORDS), 2)
        names[f"{WORDS[pair[0]]} {WORDS[pair[1]]}"] = None
    return tuple(names)


def made_up_words(count: int) -> list[str]:
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "or", "is")]
    lengths = GENERATOR.integers(2, 4, count)
    return ["".join(GENERATOR.choice(syllables, length)).capitalize() for length in lengths]


WORDS = made_up_words(20_000)


def made_up_tokenizer() -> Any:
    """Byte-level BPE like that of most models."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=24_000, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    template = "The size of it is larger than that? Yes No small large countries In terms of "
    tokenizer.train_from_iterator([template, *NAMES, *(f"the {word} of {word}" for word in WORDS)], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def loaded_of(tokenizer: Any, **shape: Any) -> LoadedModel:
    config = transformers.LlamaConfig(
        vocab_size=49152, max_position_embeddings=4096, dtype="bfloat16", **shape
    )
    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return LoadedModel("random", None, model, tokenizer, "causal", "random")


def matmul_rate() -> float:
    left = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(4096, 11008, device="cuda", dtype=torch.bfloat16)
    timed(lambda: [left @ right for _ in range(5)])
    return 20 * 2 * 8192 * 4096 * 11008 / timed(lambda: [left @ right for _ in range(20)])


def timed(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
