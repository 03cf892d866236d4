"""How fast llama.cpp reads prompts, against ccrank on the same file, machine and threads, in one run.

    python -m venv /tmp/llamacpp
    /tmp/llamacpp/bin/pip install scikit-build-core cmake ninja flit_core numpy
    CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" /tmp/llamacpp/bin/pip install --no-build-isolation \\
        --no-binary llama-cpp-python llama-cpp-python==0.3.36
    python benchmarks/llamacpp.py model.gguf --python /tmp/llamacpp/bin/python [--threads 1]

llama.cpp is built for the CPU's own instructions, since its wheels leave AVX-512 out; the program refuses such a one.
Both read the pairwise prompts of WikiLists and EntSalience. llama.cpp takes one prompt after another and keeps the
prefix that a prompt shares with the one before it, which is its best form; ccrank reads each distinct prefix once.
Seconds are of the CPU, because the machine may be shared; rates are per distinct token for ccrank and per token that
llama.cpp says it computed. A text of 512 tokens, which shares nothing, gives the plain speed of both. The answers, Yes
or No, are compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a .gguf file")
    parser.add_argument("--python", default=sys.executable, help="the Python that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=3, help="tasks of each dataset")
    parser.add_argument("--texts", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.texts:
        print(json.dumps(read_with_llamacpp(arguments.model, Path(arguments.texts), arguments.threads)))
        return
    compare(arguments)


def read_with_llamacpp(model: str, texts: Path, threads: int) -> list[dict[str, Any]]:
    """For each list of texts: tokens computed, seconds of the CPU and of the clock, and whether Yes was more likely
    than No after each."""
    import llama_cpp
    import numpy as np

    features = llama_cpp.llama_print_system_info().decode()
    if "avx512f" in Path("/proc/cpuinfo").read_text() and "AVX512 = 1" not in features:
        raise SystemExit(f"this llama.cpp was built without AVX-512, which the CPU has: {features}")
    reader = llama_cpp.Llama(model, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
    yes, no = (reader.tokenize(answer, add_bos=False)[-1] for answer in (b" Yes", b" No"))
    results = []
    for group in json.loads(texts.read_text()):
        wall, start, count, answers = time.perf_counter(), time.process_time(), 0, []
        before: list[int] = []
        for text in group:
            tokens = reader.tokenize(text.encode())
            pairs = zip(tokens[:-1], before, strict=False)
            shared = next(
                (at for at, (a, b) in enumerate(pairs) if a != b), min(len(tokens) - 1, len(before))
            )
            reader.n_tokens = shared
            reader.eval(tokens[shared:])
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(reader.ctx), (reader.n_vocab(),))
            answers.append(bool(logits[yes] > logits[no]))
            count, before = count + len(tokens) - shared, tokens
        seconds, wall = time.process_time() - start, time.perf_counter() - wall
        results.append({"tokens": count, "seconds": seconds, "wall": wall, "answers": answers})
    return results


def compare(arguments: argparse.Namespace) -> None:
    import numpy as np
    import torch

    from ccrank.models import Reader
    from ccrank.prompts import Piece, Prompt, load_templates
    from ccrank.reader_options import ReaderOptions
    from ccrank.study.datasets import load_dataset

    torch.set_num_threads(arguments.threads)
    templates = load_templates()
    groups: dict[str, list[Prompt]] = {}
    words = " ".join(task.context or "" for task in load_dataset("entsalience")[:9]).split()
    groups["one text"] = [
        Prompt((Piece(" ".join(words[start : start + 380])), Piece(" ", "text"), Piece("", "slot")))
        for start in (0, 400)
    ]
    for name in ("wikilists", "entsalience"):
        groups[name] = [
            templates.pair(task, a, b)
            for task in load_dataset(name)[: arguments.tasks]
            for a in range(len(task.items))
            for b in range(len(task.items))
            if a != b
        ]
    texts = [[prompt.text.removesuffix("_").rstrip() for prompt in prompts] for prompts in groups.values()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.json")
        path.write_text(json.dumps(texts))
        command = [arguments.python, __file__, arguments.model, "--texts", str(path)]
        command += ["--threads", str(arguments.threads)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"llama.cpp failed:\n{result.stderr[-2000:]}")
    theirs = json.loads(result.stdout.strip().splitlines()[-1])
    print(f"{'prompts':<14}{'reader':<20}{'tokens':>8}{'CPU s':>8}{'tokens/s':>10}{'same answers':>14}")
    for (name, prompts), other in zip(groups.items(), theirs, strict=True):
        print(
            f"{name:<14}{'llama.cpp':<20}{other['tokens']:>8,}{other['seconds']:>8.1f}"
            f"{other['tokens'] / other['seconds']:>10.0f}"
        )
        for dtype in ("float32", "bfloat16"):
            reader = Reader.open(arguments.model, ReaderOptions(dtype=dtype))
            reader.read(prompts[:20], ["Yes", "No"])
            start = time.process_time()
            readings = reader.read(prompts, ["Yes", "No"])
            seconds = time.process_time() - start
            assert readings.logits is not None
            yes = readings.logits[:, 0] > readings.logits[:, 1]
            same = [
                ours == theirs
                for ours, theirs in zip(yes, other["answers"], strict=True)
                if theirs is not None
            ]
            agreement = f"{np.mean(same):.0%} of {len(same)}" if same else "-"
            count = readings.cost.distinct_tokens
            print(
                f"{name:<14}{'ccrank ' + dtype:<20}{count:>8,}{seconds:>8.1f}{count / seconds:>10.0f}{agreement:>14}"
            )


if __name__ == "__main__":
    main()
