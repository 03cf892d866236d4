"""How fast ccrank reads, against other libraries on the same model, prompts, machine and threads, in one run.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install -r benchmarks/peers-requirements.txt
    python -m venv /tmp/lens && /tmp/lens/bin/pip install -r benchmarks/peers-lens-requirements.txt
    python -m venv /tmp/graphs && /tmp/graphs/bin/pip install -r benchmarks/peers-graphs-requirements.txt
    python benchmarks/peers.py --python /tmp/peers/bin/python [--lens-python /tmp/lens/bin/python]
        [--graphs-python /tmp/graphs/bin/python] [--llamacpp-python /tmp/llamacpp/bin/python --gguf model.gguf]
        [--plot docs/images/peers.png]

benchmarks/llamacpp.py says how llama.cpp is built for the CPU's own instructions: its wheels leave AVX-512 out.

Work 1 is the log-probabilities of Yes and No after the pairwise prompts of WikiLists tasks, work 2 the hidden states of
the middle and the last layer after the prompts of single items. Each library runs in a process of its own and first
reads a few other prompts; loading, and exporting a graph, is not counted. All numbers are compared with ccrank's before
any time is printed. llama.cpp reads a quantized file, so only its answers, Yes or No, are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 32
TOLERANCE = 1e-3
LEAST_EQUAL_ANSWERS = 0.85
MEDIUM = "transformers, padded, medium"
"""With `set_float32_matmul_precision("medium")`, which lets PyTorch take the kernel that ccrank takes."""
OWN = ("ccrank", "transformers, padded", MEDIUM, "transformers, one by one")
"""What runs in the environment of ccrank; the others run in that of --python."""
LENS, ONNX, OPENVINO, LLAMACPP = "TransformerLens", "ONNX Runtime", "OpenVINO", "llama.cpp"
ENVIRONMENTS = {
    LENS: "lens_python",
    ONNX: "graphs_python",
    OPENVINO: "graphs_python",
    LLAMACPP: "llamacpp_python",
}
"""Peers that need transformers 5, where cappr needs 4, or a build of their own; each is left out without its Python."""
PEERS = {
    "pairs": (*OWN, "minicons", "cappr", LLAMACPP),
    "states": (*OWN, "nnsight", LENS, ONNX, OPENVINO),
}
TITLES = {
    "pairs": "log-probabilities, pairs",
    "states": "hidden states, single items",
}

Work = Callable[[list[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="the Python of peers-requirements.txt")
    parser.add_argument(
        "--lens-python",
        help="the Python of peers-lens-requirements.txt; without it TransformerLens is left out",
    )
    parser.add_argument("--graphs-python", help="the same for peers-graphs-requirements.txt")
    parser.add_argument("--llamacpp-python", help="the Python that has llama-cpp-python; see llamacpp.py")
    parser.add_argument("--work", choices=tuple(PEERS), help="one of both works alone")
    parser.add_argument("--gguf", help="the model for llama.cpp; without it llama.cpp is left out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--tasks", type=int, default=2, help="tasks for pairs; three times as many for states"
    )
    parser.add_argument("--plot", type=Path, help="write a bar plot to this file")
    parser.add_argument("--worker", nargs=3, metavar=("WORK", "PEER", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work, peer, folder = arguments.worker
        run_worker(work, peer, Path(folder))
        return
    rows = compare(arguments)
    print_rows(rows, arguments.threads)
    if arguments.plot:
        plot_rows(rows, arguments.threads, arguments.plot)


def compare(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run every library on both works; one row each, after their numbers were compared with ccrank's."""
    from ccrank.models import Reader

    rows = []
    reader = Reader.open("default")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_for_old_versions(reader.loaded.folder, folder / "model")
        job: dict[str, Any] = {"tasks": arguments.tasks, "threads": arguments.threads, "gguf": arguments.gguf}
        job["layers"] = [reader.depth // 2, reader.depth]
        job["texts"] = {
            work: [[prompt.text.removesuffix(" _") for prompt in prompts] for prompts in groups]
            for work, groups in prompts_of(arguments.tasks).items()
        }
        (folder / "job.json").write_text(json.dumps(job))
        for work, peers in PEERS.items():
            if arguments.work not in (None, work):
                continue
            found: dict[str, np.ndarray] = {}
            for peer in peers:
                python = getattr(arguments, ENVIRONMENTS.get(peer, "python"))
                if python is None or (peer == LLAMACPP and not arguments.gguf):
                    continue
                python = sys.executable if peer in OWN else python
                row, found[peer] = run_peer(python, work, peer, folder, arguments.threads)
                rows.append(row)
                row["difference"] = check_agreement(peer, found[peer], found["ccrank"])
    for row in rows:
        ours = next(one for one in rows if one["peer"] == "ccrank" and one["work"] == row["work"])
        row["wall ratio"], row["CPU ratio"] = row["wall"] / ours["wall"], row["CPU"] / ours["CPU"]
    return rows


def prompts_of(count: int) -> dict[str, tuple[list, list]]:
    """For each work, the prompts to read first, which are not timed, and those of the first `count` tasks."""
    from ccrank.prompts import load_templates
    from ccrank.study.datasets import load_dataset

    templates, tasks = load_templates(), load_dataset("wikilists")
    pairs = [
        templates.pair(task, first, second)
        for task in tasks[:count]
        for first in range(len(task.items))
        for second in range(len(task.items))
        if first != second
    ]
    singles = [templates.single(task, item) for task in tasks[: 3 * count] for item in range(len(task.items))]
    other = tasks[-1]
    return {
        "pairs": ([templates.pair(other, 0, second) for second in range(1, len(other.items))], pairs),
        "states": ([templates.single(other, item) for item in range(len(other.items))], singles),
    }


def copy_for_old_versions(source: Path, target: Path) -> None:
    """The same model in a folder that transformers 4 reads too: it has other names for some settings."""
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).symlink_to(path.resolve())
    config = json.loads((source / "config.json").read_text())
    config |= {"rope_theta": config["rope_parameters"]["rope_theta"], "torch_dtype": config["dtype"]}
    tokenizer = json.loads((source / "tokenizer_config.json").read_text())
    tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"
    tokenizer["model_input_names"] = ["input_ids", "attention_mask"]
    for name, table in (("config.json", config), ("tokenizer_config.json", tokenizer)):
        (target / name).unlink()
        (target / name).write_text(json.dumps(table))


def run_peer(
    python: str, work: str, peer: str, folder: Path, threads: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Times of one library and what it read, from a process of its own."""
    command = [python, __file__, "--worker", work, peer, str(folder)]
    settings = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **settings}
    )
    if result.returncode:
        raise SystemExit(f"{peer} failed:\n{result.stderr[-2000:]}")
    return json.loads((folder / "times.json").read_text()), np.load(folder / "found.npy")


def run_worker(work: str, peer: str, folder: Path) -> None:
    """Read the texts of a job with one library, and leave times and numbers in the folder."""
    job = json.loads((folder / "job.json").read_text())
    first, texts = job["texts"][work]
    if peer == LLAMACPP:
        row, found = with_llamacpp(job, first, texts)
    else:
        import torch

        torch.set_num_threads(job["threads"])
        if peer == MEDIUM:
            torch.set_float32_matmul_precision("medium")
        with torch.inference_mode():
            read = open_peer(work, peer, job, folder / "model")
            read(first)
            wall, cpu = time.perf_counter(), time.process_time()
            found = read(texts)
            row = {"wall": time.perf_counter() - wall, "CPU": time.process_time() - cpu}
    np.save(folder / "found.npy", found)
    row |= {"work": work, "peer": peer, "prompts": len(texts)}
    (folder / "times.json").write_text(json.dumps(row))


def open_peer(work: str, peer: str, job: dict[str, Any], folder: Path) -> Work:
    """A function from texts to log-probabilities (P, 2) or hidden states (P, L, d)."""
    if peer == "ccrank":
        return open_ccrank(work, job)
    if peer == LENS:
        return open_lens(folder, job["layers"])
    if peer in (ONNX, OPENVINO):
        return open_graph(peer, folder, job)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    if peer == "minicons":
        return open_minicons(model, tokenizer)
    if peer == "cappr":
        return open_cappr(model, tokenizer)
    if peer == "nnsight":
        return open_nnsight(model, tokenizer, job["layers"])
    return open_transformers(
        work, model, tokenizer, 1 if peer.endswith("one by one") else BATCH, job["layers"]
    )


def open_ccrank(work: str, job: dict[str, Any]) -> Work:
    from ccrank.models import Reader
    from ccrank.reader_options import ReaderOptions

    reader = Reader.open("default", ReaderOptions(device="cpu", dtype="float32"))
    prompts = {
        prompt.text.removesuffix(" _"): prompt for group in prompts_of(job["tasks"])[work] for prompt in group
    }

    def read(texts: list[str]) -> np.ndarray:
        own = [prompts[text] for text in texts]
        if work == "pairs":
            found = reader.read(own, ["Yes", "No"], log_probabilities=True).logits
        else:
            found = reader.read(own, layers=job["layers"]).states
        assert found is not None
        return found

    return read


def open_transformers(work: str, model: Any, tokenizer: Any, size: int, layers: list[int]) -> Work:
    """Batches of prompts of similar length, padded on the left; only what is needed of the last position."""
    answers = [tokenizer(f"? {word}", add_special_tokens=False)["input_ids"][-1] for word in ("Yes", "No")]

    def read(texts: list[str]) -> np.ndarray:
        found: list[Any] = [None] * len(texts)
        for part in batches(texts, size):
            batch = tokenizer([texts[index] for index in part], return_tensors="pt", padding=True)
            batch["position_ids"] = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
            if work == "pairs":
                logits = model(**batch, logits_to_keep=1, use_cache=False).logits[:, -1]
                rows = logits.log_softmax(-1)[:, answers].numpy()
            else:
                output = model.model(**batch, output_hidden_states=True, use_cache=False)
                rows = np.stack([output.hidden_states[layer][:, -1].numpy() for layer in layers], axis=1)
            for index, row in zip(part, rows, strict=True):
                found[index] = row
        return np.stack(found)

    return read


def open_minicons(model: Any, tokenizer: Any) -> Work:
    from minicons.scorer import IncrementalLMScorer

    tokenizer.padding_side = "right"  # as minicons expects
    scorer = IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)

    def read(texts: list[str]) -> np.ndarray:
        found = np.zeros((len(texts), 2))
        for part in batches(texts, BATCH):
            for column, word in enumerate(("Yes", "No")):
                prefixes = [texts[index] for index in part]
                found[part, column] = scorer.conditional_score(
                    prefixes, [word] * len(part), reduction=lambda scores: scores.sum(0).item()
                )
        return found

    return read


def open_cappr(model: Any, tokenizer: Any) -> Work:
    from cappr.huggingface.classify import log_probs_conditional

    def read(texts: list[str]) -> np.ndarray:
        found = np.zeros((len(texts), 2))
        for part in batches(texts, BATCH):
            scores = log_probs_conditional(
                [texts[index] for index in part],
                ["Yes", "No"],
                (model, tokenizer),
                batch_size=BATCH,
                show_progress_bar=False,
            )
            found[part] = [[sum(tokens) for tokens in row] for row in scores]
        return found

    return read


def open_nnsight(model: Any, tokenizer: Any, layers: list[int]) -> Work:
    from nnsight import NNsight

    traced = NNsight(model.model)  # without the head, whose logits are not needed
    middle = layers[0] - 1

    def read(texts: list[str]) -> np.ndarray:
        found: list[Any] = [None] * len(texts)
        for part in batches(texts, BATCH):
            batch = tokenizer([texts[index] for index in part], return_tensors="pt", padding=True)
            with traced.trace(batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False):
                inner = traced.layers[middle].output.save()
                last = traced.norm.output.save()
            inner = inner[0] if isinstance(inner, tuple) else inner
            rows = np.stack([inner[:, -1].numpy(), last[:, -1].numpy()], axis=1)
            for index, row in zip(part, rows, strict=True):
                found[index] = row
        return np.stack(found)

    return read


def open_lens(folder: Path, layers: list[int]) -> Work:
    os.environ["WANDB_MODE"] = "disabled"
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    model = TransformerBridge.boot_transformers(str(folder), device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    names = (f"blocks.{layers[0] - 1}.hook_out", "ln_final.hook_out")

    def read(texts: list[str]) -> np.ndarray:
        found: list[Any] = [None] * len(texts)
        for part in batches(texts, BATCH):
            batch = tokenizer([texts[index] for index in part], return_tensors="pt", padding=True)
            _, kept = model.run_with_cache(
                batch["input_ids"],
                attention_mask=batch["attention_mask"],
                names_filter=list(names),
                return_type=None,
            )
            rows = np.stack([kept[name][:, -1].numpy() for name in names], axis=1)
            for index, row in zip(part, rows, strict=True):
                found[index] = row
        return np.stack(found)

    return read


def open_graph(peer: str, folder: Path, job: dict[str, Any]) -> Work:
    """The model as an ONNX graph that gives the states alone; exported by the first library that needs it."""
    from transformers import AutoTokenizer

    graph = folder.parent / "states.onnx"
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    if not graph.exists():
        export_graph(folder, tokenizer, job["layers"], graph)
    if peer == ONNX:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = job["threads"]
        session = onnxruntime.InferenceSession(graph, options)
        run = partial(session.run, None)
    else:
        import openvino

        settings = {"INFERENCE_NUM_THREADS": job["threads"], "INFERENCE_PRECISION_HINT": "f32"}
        run = openvino.compile_model(openvino.Core().read_model(graph), "CPU", settings)

    def read(texts: list[str]) -> np.ndarray:
        found: list[Any] = [None] * len(texts)
        for part in batches(texts, BATCH):
            rows = run(graph_inputs(tokenizer, [texts[index] for index in part], "np"))[0]
            for index, row in zip(part, rows, strict=True):
                found[index] = row
        return np.stack(found)

    return read


def graph_inputs(tokenizer: Any, texts: list[str], kind: str) -> dict[str, Any]:
    """What the graph takes, as arrays ("np") or tensors ("pt")."""
    batch = tokenizer(texts, return_tensors=kind, padding=True)
    positions = (batch["attention_mask"].cumsum(-1) - 1).clip(min=0)
    return {**{name: batch[name] for name in ("input_ids", "attention_mask")}, "position_ids": positions}


def export_graph(folder: Path, tokenizer: Any, layers: list[int], path: Path) -> None:
    """Write the model as a graph from a padded batch to the states (P, L, d) of its last position."""
    import torch
    from transformers import AutoModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any) -> Any:
            batch = {"attention_mask": attention_mask, "position_ids": position_ids}
            states = self.model(input_ids, **batch, output_hidden_states=True, use_cache=False).hidden_states
            return torch.stack([states[layer][:, -1] for layer in layers], 1)

    batch = graph_inputs(tokenizer, ["a short text", "a text of some more words"], "pt")
    sizes = {0: torch.export.Dim("prompts", min=1, max=1024), 1: torch.export.Dim("tokens", min=1, max=8192)}
    torch.onnx.export(
        States(), (), path, kwargs=batch, dynamo=True, dynamic_shapes=dict.fromkeys(batch, sizes)
    )


def with_llamacpp(
    job: dict[str, Any], first: list[str], texts: list[str]
) -> tuple[dict[str, Any], np.ndarray]:
    """Times of llama.cpp, and 1 where Yes is more likely than No, 0 where not, NaN where neither is listed."""
    from llamacpp import read_with_llamacpp

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.json")
        path.write_text(json.dumps([first, texts]))
        read = read_with_llamacpp(job["gguf"], path, job["threads"])[1]
    return {"wall": read["wall"], "CPU": read["seconds"]}, np.array(read["answers"], float)


def batches(texts: list[str], size: int) -> list[list[int]]:
    """Indices of texts of similar length."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def check_agreement(peer: str, found: np.ndarray, ours: np.ndarray) -> str:
    """The largest difference from ccrank's numbers, or the share of equal answers; ends the program if they disagree.

    A number may differ by 1e-3, or by a thousandth of it if it is larger than 1.
    """
    if found.shape == ours.shape:
        difference = float(np.max(np.abs(found - ours) / np.maximum(1, np.abs(ours))))
        if not difference <= TOLERANCE:  # NaN is no agreement either
            raise SystemExit(f"{peer} and ccrank differ by {difference:.1e}, more than {TOLERANCE}")
        return f"{difference:.0e}"
    if ours.shape != (len(found), 2) or found.ndim != 1:
        raise SystemExit(f"{peer} gave an array of shape {found.shape}, ccrank {ours.shape}")
    share = float(np.mean(found == (ours[:, 0] > ours[:, 1])))
    if not share >= LEAST_EQUAL_ANSWERS:
        raise SystemExit(f"only {share:.0%} of the answers of {peer} equal ccrank's")
    return f"{share:.0%} equal"


def print_rows(rows: list[dict[str, Any]], threads: int) -> None:
    print(f"threads: {threads}")
    print("| work | library | prompts | wall s | CPU s | wall, ratio | CPU, ratio | difference |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        difference = "" if row["peer"] == "ccrank" else row["difference"]
        print(
            f"| {row['work']} | {row['peer']} | {row['prompts']} | {row['wall']:.2f} | {row['CPU']:.2f} "
            f"| {row['wall ratio']:.1f} | {row['CPU ratio']:.1f} | {difference} |"
        )


def plot_rows(rows: list[dict[str, Any]], threads: int, path: Path) -> None:
    """Bars of CPU time, one panel for each work."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.8), layout="constrained")
    works = list(dict.fromkeys(row["work"] for row in rows))
    for axes, work in zip(figure.subplots(1, len(works), squeeze=False)[0], works, strict=True):
        own = [row for row in rows if row["work"] == work][::-1]
        colors = ["tab:blue" if row["peer"] == "ccrank" else "0.7" for row in own]
        bars = axes.barh([row["peer"] for row in own], [row["CPU"] for row in own], color=colors)
        axes.bar_label(bars, [f"{row['CPU ratio']:.1f}×" for row in own], padding=3)
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(TITLES[work], fontsize=9)
        axes.set_xlabel(f"CPU seconds, {threads} thread{'s' * (threads > 1)}")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
